//! A report as one page that a browser shows from disk: no script, no network, light and dark.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use snakepit::evals::{Report, Summary};
use snakepit::harmless;

use super::plot::{self, Dot};
use super::show::{chance, interval, percent, time};
use super::style;
use super::wrong::Answers;
use crate::say::Failure;

/// Whether the page can be written there, as far as that can be told without leaving anything there.
pub(super) fn probe(file: &Path) -> Result<(), Failure> {
    if file.is_dir() {
        return Err(cannot_write(file, &std::io::ErrorKind::IsADirectory.into()));
    }
    // A file that is there is replaced by another one in its directory; a device or a pipe is written to.
    let place = if is_special(file) { file } else { directory(file) };
    rustix::fs::access(place, rustix::fs::Access::WRITE_OK).map_err(|error| cannot_write(file, &error.into()))
}

/// All of it, or nothing: whoever has the old page open, or comes while this is written, sees a whole one.
pub(super) fn write(file: &Path, page: &str) -> Result<(), Failure> {
    let written = if is_special(file) {
        std::fs::write(file, page)
    } else {
        // A link stays, and what it points to is replaced.
        let target = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
        replace(&target, page)
    };
    written.map_err(|error| cannot_write(file, &error))
}

fn replace(file: &Path, page: &str) -> std::io::Result<()> {
    let mut new = tempfile::Builder::new()
        .prefix(".report-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .tempfile_in(directory(file))?;
    new.write_all(page.as_bytes())?;
    new.persist(file).map_err(|error| error.error)?;
    Ok(())
}

fn directory(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// Neither a file nor the place for one.
fn is_special(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|it| !it.is_file() && !it.is_dir())
}

fn cannot_write(file: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot write the report {}", file.display()), error)
}

pub(super) fn page(dataset: &Path, report: &Report, wrong: &Answers) -> String {
    let name = dataset.file_name().unwrap_or(dataset.as_os_str()).to_string_lossy();
    let mut body = String::new();
    let _ = write!(
        body,
        "<h1>{}</h1><p class=\"lead\">{} samples, judged by <code>{}</code>, data set <code>{}</code></p>",
        escaped(&name),
        report.samples,
        escaped(&report.evaluator.to_string()),
        escaped(&report.dataset),
    );
    if !report.complete {
        body.push_str(
            "<p class=\"alarm\">Not complete: samples without a result are counted as missing and are in no rate.</p>",
        );
    }
    body.push_str(&overview(report));
    body.push_str(&comparisons(report));
    body.push_str(&plots(report));
    body.push_str(&wrong.section());
    let methods = &report.methods;
    let _ = write!(
        body,
        "<h2>How the numbers were made</h2><ul><li>Intervals of pass rates: {}.</li><li>Intervals of means: {}.</li>\
         <li>Test of what passed: {}.</li><li>Test of scores: {}.</li><li>Several comparisons: {}.</li>\
         <li>Errors and timeouts are results that have not passed, with a score of 0. Missing ones are in no rate.</li></ul>",
        methods.pass_interval,
        methods.score_interval,
        methods.pass_test,
        methods.score_test,
        methods.adjusted,
    );
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{}: evaluation</title><style>{}</style></head>\
         <body><main>{body}</main></body></html>\n",
        escaped(&name),
        style::sheet(report.experiments.len()),
    )
}

fn overview(report: &Report) -> String {
    let mut text = String::from(
        "<div class=\"wide\"><table><thead><tr><th>Experiment<th>Pass rate, 95 %<th>Mean score, 95 %<th>Passed<th>Failed\
         <th>Errors<th>Timeouts<th>Missing<th>Latency p50, p99<th>Tokens in, out</tr></thead><tbody>",
    );
    for (at, summary) in report.experiments.iter().enumerate() {
        let counts = &summary.counts;
        let tokens = summary.tokens.map_or_else(dash, |tokens| {
            let told = if summary.tokens_told < report.samples {
                format!("<small>told by {} answers</small>", summary.tokens_told)
            } else {
                String::new()
            };
            format!("{}, {}{told}", tokens.input, tokens.output)
        });
        let _ = write!(
            text,
            "<tr><th scope=\"row\"><span class=\"mark c{}\"></span>{}<td><b>{}</b>{}<td><b>{}</b>{}<td>{}<td>{}{}{}{}<td>{}<td>{}</tr>",
            plot::colour(at),
            escaped(&summary.experiment.name),
            summary.pass_rate.map_or_else(dash, percent),
            summary.pass_interval.map_or_else(String::new, |it| small(&format!(
                "{} – {}",
                percent(it.low),
                percent(it.high)
            ))),
            summary.mean_score.map_or_else(dash, |score| format!("{score:.3}")),
            summary.score_interval.map_or_else(String::new, |it| small(&interval(it))),
            counts.passed,
            counts.failed,
            trouble(counts.errors),
            trouble(counts.timeouts),
            trouble(counts.missing),
            summary.latency_ms.map_or_else(dash, |it| format!("{}{}", time(it.p50), small(&time(it.p99)))),
            tokens,
        );
    }
    text.push_str("</tbody></table></div>");
    text
}

/// A second line in a cell.
fn small(text: &str) -> String {
    format!("<small>{text}</small>")
}

/// What should be nothing stands out when it is not.
fn trouble(number: usize) -> String {
    if number == 0 { "<td class=\"none\">0".to_owned() } else { format!("<td class=\"bad\">{number}") }
}

fn comparisons(report: &Report) -> String {
    if report.comparisons.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "<h2>Compared, sample by sample</h2><div class=\"wide\"><table><thead><tr><th>Experiment<th>Pass rate<th>p\
         <th>Only this one passed<th>Only the other passed<th>Mean score, 95 %<th>p<th>Pairs</tr></thead><tbody>",
    );
    for it in &report.comparisons {
        let interval = it.score_interval.map(|it| small(&format!("{:+.3} … {:+.3}", it.low, it.high)));
        let _ = write!(
            text,
            "<tr><th scope=\"row\">{}<small>against {}</small><td><b>{}</b><td>{}<td>{}<td>{}<td><b>{}</b>{}<td>{}<td>{}</tr>",
            escaped(&it.other),
            escaped(&it.baseline),
            it.pass_difference.map_or_else(dash, |by| format!("{:+.1} points", by * 100.0)),
            chance(it.pass_p_adjusted),
            it.only_other,
            it.only_baseline,
            it.score_difference.map_or_else(dash, |by| format!("{by:+.3}")),
            interval.unwrap_or_default(),
            chance(it.score_p_adjusted),
            it.pairs,
        );
    }
    text.push_str(
        "</tbody></table></div><p class=\"note\">p: how likely a difference of at least this size is if both are equally \
         good, adjusted for the number of comparisons.</p>",
    );
    text
}

fn plots(report: &Report) -> String {
    let dots = |value: fn(&Summary) -> Option<f64>, range: fn(&Summary) -> Option<(f64, f64)>| {
        let rows = report.experiments.iter().map(|summary| Dot {
            name: summary.experiment.name.clone(),
            value: value(summary),
            range: range(summary),
        });
        rows.collect::<Vec<_>>()
    };
    let rates = dots(|it| it.pass_rate, |it| it.pass_interval.map(|it| (it.low, it.high)));
    let means = dots(|it| it.mean_score, |it| it.score_interval.map(|it| (it.low, it.high)));
    let scores: Vec<(String, &[usize])> =
        report.experiments.iter().map(|it| (it.experiment.name.clone(), &it.scores[..])).collect();
    let latencies: Vec<(String, &[f64])> =
        report.experiments.iter().map(|it| (it.experiment.name.clone(), &it.latencies[..])).collect();
    format!(
        "<h2>Side by side</h2><div class=\"plots\"><figure><figcaption><b>Pass rate</b>, with its 95 % interval</figcaption>{}\
         </figure><figure><figcaption><b>Mean score</b>, with its 95 % interval</figcaption>{}</figure>\
         <figure><figcaption><b>Distribution of scores</b>: how many judged samples have which</figcaption>{}</figure>\
         <figure><figcaption><b>Latency</b>: each answer, the middle half as a box with its median, a dot for the 99th percentile; \
         logarithmic</figcaption>{}</figure></div>",
        plot::dots(&rates, percent),
        plot::dots(&means, |score| format!("{score:.3}")),
        plot::bars(&scores),
        plot::strips(&latencies, time),
    )
}

fn dash() -> String {
    "–".to_owned()
}

/// A text that a page shows and does not obey; what would turn the direction of writing, or not be seen, is spelled out.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in harmless(text).chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            letter => safe.push(letter),
        }
    }
    safe
}
