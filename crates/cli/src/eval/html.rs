//! A report as one page that a browser shows from disk: no script, no network, light and dark.

use std::fmt::Write as _;
use std::path::Path;

use snakepit::evals::{Report, Summary};

use super::plot::{self, Dot};
use super::show::{chance, interval, percent, time};
use crate::say::Failure;

/// So many of the samples without a score are listed of each experiment.
const LISTED: usize = 200;

/// Whether the page can be written there. What is there is left as it is until the page is done.
pub(super) fn probe(file: &Path) -> Result<(), Failure> {
    let opened = std::fs::OpenOptions::new().append(true).create(true).open(file);
    opened.map(drop).map_err(|error| cannot_write(file, &error))
}

pub(super) fn write(file: &Path, page: &str) -> Result<(), Failure> {
    std::fs::write(file, page).map_err(|error| cannot_write(file, &error))
}

fn cannot_write(file: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot write the report {}", file.display()), error)
}

pub(super) fn page(dataset: &Path, report: &Report) -> String {
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
    body.push_str(&unscored(report));
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
         <meta name=\"color-scheme\" content=\"light dark\"><title>{}: evaluation</title><style>{STYLE}</style></head>\
         <body><main>{body}</main></body></html>\n",
        escaped(&name)
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
        "<h2>Compared, sample by sample</h2><div class=\"wide\"><table><thead><tr><th>Experiment<th>Against<th>Pass rate<th>p\
         <th>Only this passed<th>Only that passed<th>Mean score<th>95 %<th>p<th>Pairs</tr></thead><tbody>",
    );
    for it in &report.comparisons {
        let _ = write!(
            text,
            "<tr><th scope=\"row\">{}<td>{}<td><b>{}</b><td>{}<td>{}<td>{}<td><b>{}</b><td>{}<td>{}<td>{}</tr>",
            escaped(&it.other),
            escaped(&it.baseline),
            it.pass_difference.map_or_else(dash, |by| format!("{:+.1} points", by * 100.0)),
            chance(it.pass_p_adjusted),
            it.only_other,
            it.only_baseline,
            it.score_difference.map_or_else(dash, |by| format!("{by:+.3}")),
            it.score_interval.map_or_else(dash, |it| format!("{:+.3} … {:+.3}", it.low, it.high)),
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

fn unscored(report: &Report) -> String {
    let mut text = String::new();
    for summary in report.experiments.iter().filter(|summary| !summary.unscored.is_empty()) {
        let all = summary.unscored.len();
        let _ = write!(
            text,
            "<details{}><summary>Without a score in {}: {all}</summary><div class=\"wide\"><table><thead><tr><th>Sample\
             <th>What<th>Where<th class=\"text\">Why</tr></thead><tbody>",
            if all <= 20 { " open" } else { "" },
            escaped(&summary.experiment.name),
        );
        for one in summary.unscored.iter().take(LISTED) {
            let stage = one.stage.map_or_else(dash, |stage| format!("{stage:?}").to_lowercase());
            let _ = write!(
                text,
                "<tr><th scope=\"row\">{}<td>{}<td>{stage}<td class=\"text\">{}</tr>",
                escaped(&one.sample),
                one.kind,
                escaped(&one.message),
            );
        }
        text.push_str("</tbody></table></div>");
        if all > LISTED {
            let _ = write!(text, "<p>and {} more</p>", all - LISTED);
        }
        text.push_str("</details>");
    }
    if text.is_empty() { text } else { format!("<h2>Errors, timeouts and missing results</h2>{text}") }
}

fn dash() -> String {
    "–".to_owned()
}

/// A text that a page shows and does not obey.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // What HTML has no place for.
            letter if letter.is_control() && !letter.is_whitespace() => safe.push('\u{fffd}'),
            letter => safe.push(letter),
        }
    }
    safe
}

const STYLE: &str = "\
:root{--back:#fbfbfa;--card:#fff;--ink:#1d2025;--soft:#646a73;--line:#e0e2e6;--bad:#b3261e;--badback:#fdeceb;\
--c0:#2f6fde;--c1:#d9740b;--c2:#1a936f;--c3:#a23fb5;--c4:#c0392b;--c5:#6b7280}\
@media(prefers-color-scheme:dark){:root{--back:#15171b;--card:#1d2025;--ink:#e8eaed;--soft:#9aa1ab;--line:#343942;\
--bad:#ff8a80;--badback:#3a2020;--c0:#7aa7ff;--c1:#ffb05c;--c2:#5fd3a8;--c3:#d99bea;--c4:#ff8a80;--c5:#aab1bc}}\
*{box-sizing:border-box}body{margin:0;background:var(--back);color:var(--ink);\
font:15px/1.5 system-ui,-apple-system,\"Segoe UI\",Roboto,sans-serif}\
main{max-width:70rem;margin:0 auto;padding:2rem 1.25rem 4rem}h1{margin:0;font-size:1.7rem}\
h2{margin:2.2rem 0 .8rem;font-size:1.1rem}.lead,.note{color:var(--soft);margin:.3rem 0 1.4rem}.note{font-size:.85rem}\
code{font:.9em ui-monospace,SFMono-Regular,Menlo,monospace;overflow-wrap:anywhere}\
.alarm{background:var(--badback);color:var(--bad);padding:.7rem 1rem;border-radius:.5rem;font-weight:600}\
.wide{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:.6rem}\
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}\
th,td{padding:.5rem .75rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}\
thead th{color:var(--soft);font-weight:600;font-size:.8rem}th:first-child{text-align:left}\
tbody tr:last-child>*{border-bottom:0}.text.text{text-align:left;white-space:pre-wrap;overflow-wrap:anywhere;min-width:20rem}\
small{display:block;color:var(--soft);font-size:.8rem}.none{color:var(--soft)}.bad{color:var(--bad);font-weight:700}\
.mark{display:inline-block;width:.7em;height:.7em;border-radius:50%;margin-right:.5em}\
.mark.c0{background:var(--c0)}.mark.c1{background:var(--c1)}.mark.c2{background:var(--c2)}.mark.c3{background:var(--c3)}\
.mark.c4{background:var(--c4)}.mark.c5{background:var(--c5)}\
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(24rem,1fr));gap:1rem}\
figure{margin:0;padding:1rem;background:var(--card);border:1px solid var(--line);border-radius:.6rem}\
figcaption{color:var(--soft);font-size:.85rem;margin-bottom:.8rem}figcaption b{color:var(--ink)}svg{display:block;width:100%;height:auto}\
svg text{fill:var(--soft);font:12px system-ui,sans-serif}svg .name{fill:var(--ink)}svg .value{fill:var(--ink);font-weight:600}\
svg .grid{stroke:var(--line)}.c0{fill:var(--c0);stroke:var(--c0)}.c1{fill:var(--c1);stroke:var(--c1)}\
.c2{fill:var(--c2);stroke:var(--c2)}.c3{fill:var(--c3);stroke:var(--c3)}.c4{fill:var(--c4);stroke:var(--c4)}\
.c5{fill:var(--c5);stroke:var(--c5)}svg .faint{opacity:.28}svg .box{fill-opacity:.22}svg .bar{stroke:none}\
details{margin:.6rem 0}summary{cursor:pointer;margin-bottom:.5rem}\
@media(max-width:40rem){.plots{grid-template-columns:1fr}}@media print{body{background:#fff}}";
