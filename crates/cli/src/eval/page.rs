//! The report as one page that a browser shows from disk: no script, no network, light and dark.
//!
//! `maud` escapes markup. `snakepit::value::harmless` spells out characters that are invisible or that change the
//! direction of writing.

use std::io::Write as _;
use std::path::Path;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use snakepit::evals::stats::Interval;
use snakepit::evals::{EvalReport, ExperimentComparison, ExperimentSummary};
use snakepit::value::harmless;

use super::failed_samples::FailedSamples;
use super::plot::{self, PlotDot};
use super::stylesheet;
use super::text_report::{INCOMPLETE, chance, interval, percent, points, score, time};
use crate::shared::failure::CliFailure;

/// Checks whether the page can be written, without leaving a trace.
pub(super) fn probe(file: &Path) -> Result<(), CliFailure> {
    if file.is_dir() {
        return Err(cannot_write(file, &std::io::ErrorKind::IsADirectory.into()));
    }
    // A regular file is replaced by a new one in its directory. A device or a pipe is written to.
    let place = if is_special(file) { file } else { directory(file) };
    rustix::fs::access(place, rustix::fs::Access::WRITE_OK).map_err(|error| cannot_write(file, &error.into()))
}

/// Replaces the page atomically: readers see either the whole old page or the whole new one.
pub(super) fn write(file: &Path, page: &str) -> Result<(), CliFailure> {
    let written = if is_special(file) {
        std::fs::write(file, page)
    } else {
        // A link stays, and its target is replaced.
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

/// Reports whether the path is a device, a pipe or a socket.
fn is_special(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|it| !it.is_file() && !it.is_dir())
}

fn cannot_write(file: &Path, error: &std::io::Error) -> CliFailure {
    CliFailure::new(format!("cannot write the report {}", file.display()), error)
        .hint("name another file with --html, in a directory that exists and that you may write to")
}

pub(super) fn page(dataset: &Path, report: &EvalReport, failed: &FailedSamples<'_>) -> String {
    let name = dataset.file_name().unwrap_or(dataset.as_os_str()).to_string_lossy();
    let name = harmless(&name);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                meta name="color-scheme" content="light dark";
                title { (name) ": evaluation" }
                style { (PreEscaped(stylesheet::sheet(report.experiments.len()))) }
            }
            body {
                main {
                    h1 { (name) }
                    p class="lead" {
                        (report.samples) " samples, judged by " code { (harmless(&report.evaluator.to_string())) }
                        ", data set " code { (harmless(&report.dataset)) }
                    }
                    @if !report.complete { p class="alarm" { (INCOMPLETE) } }
                    (overview(report))
                    (comparisons(report))
                    (plots(report))
                    (failed.section())
                    (methods(report))
                }
            }
        }
    };
    page.into_string() + "\n"
}

fn methods(report: &EvalReport) -> Markup {
    let methods = &report.methods;
    html! {
        h2 { "How the numbers were made" }
        ul {
            li { "Intervals of pass rates: " (methods.pass_interval) "." }
            li { "Intervals of means: " (methods.score_interval) "." }
            li { "Test of what passed: " (methods.pass_test) "." }
            li { "Test of scores: " (methods.score_test) "." }
            li { "Several comparisons: " (methods.adjusted) "." }
            li { "An error or timeout is a result that has not passed, with a score of 0. Missing ones are in no rate." }
        }
    }
}

fn table(headers: &[&str], rows: &Markup) -> Markup {
    html! {
        div class="wide" {
            table {
                thead { tr { @for header in headers { th { (header) } } } }
                tbody { (rows) }
            }
        }
    }
}

fn overview(report: &EvalReport) -> Markup {
    let headers = [
        "Experiment",
        "Pass rate, 95 %",
        "Mean score, 95 %",
        "Passed",
        "Failed",
        "Errors",
        "Timeouts",
        "Missing",
        "Latency p50, p99",
        "Tokens in, out",
    ];
    let row = |at: usize, it: &ExperimentSummary| {
        let rates = it.pass_interval.map(|it| format!("{} – {}", percent(it.low), percent(it.high)));
        html! {
            tr {
                th scope="row" { span class={ "mark c" (plot::colour(at)) } {} (harmless(&it.experiment.name)) }
                td { b { (or_dash(it.pass_rate.map(percent))) } (small(rates)) }
                td { b { (or_dash(it.mean_score.map(score))) } (small(it.score_interval.map(interval))) }
                td { (it.counts.passed) }
                td { (it.counts.failed) }
                @for number in [it.counts.errors, it.counts.timeouts, it.counts.missing] {
                    // A number that should be zero stands out if it is not.
                    td class=(if number == 0 { "none" } else { "bad" }) { (number) }
                }
                td { (or_dash(it.latency_ms.map(|it| time(it.p50)))) (small(it.latency_ms.map(|it| time(it.p99)))) }
                td {
                    (or_dash(it.tokens.map(|it| format!("{}, {}", it.input, it.output))))
                    @if it.tokens.is_some() && it.tokens_told < report.samples {
                        small { "reported by " (it.tokens_told) " answers" }
                    }
                }
            }
        }
    };
    table(&headers, &html! { @for (at, it) in report.experiments.iter().enumerate() { (row(at, it)) } })
}

fn comparisons(report: &EvalReport) -> Markup {
    let headers = [
        "Experiment",
        "Pass rate",
        "p",
        "Only this one passed",
        "Only the other passed",
        "Mean score, 95 %",
        "p",
        "Pairs",
    ];
    let row = |it: &ExperimentComparison| {
        let scores = it.score_interval.map(|it| format!("{:+.3} … {:+.3}", it.low, it.high));
        html! {
            tr {
                th scope="row" { (harmless(&it.other)) small { "against " (harmless(&it.baseline)) } }
                td { b { (or_dash(it.pass_difference.map(points))) } }
                td { (chance(it.pass_p_adjusted)) }
                td { (it.only_other) }
                td { (it.only_baseline) }
                td { b { (or_dash(it.score_difference.map(|by| format!("{by:+.3}")))) } (small(scores)) }
                td { (chance(it.score_p_adjusted)) }
                td { (it.pairs) }
            }
        }
    };
    html! {
        @if !report.comparisons.is_empty() {
            h2 { "Compared, sample by sample" }
            (table(&headers, &html! { @for it in &report.comparisons { (row(it)) } }))
            p class="note" {
                "p: how likely a difference of at least this size is if both are equally good, adjusted for the number of \
                 comparisons."
            }
        }
    }
}

/// Returns a second line for a cell.
fn small(text: Option<String>) -> Markup {
    html! { @if let Some(text) = text { small { (text) } } }
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".to_owned())
}

fn plots(report: &EvalReport) -> Markup {
    let experiments = &report.experiments;
    let dots = |value: fn(&ExperimentSummary) -> Option<f64>,
                range: fn(&ExperimentSummary) -> Option<Interval>| {
        let dot = |it: &ExperimentSummary| PlotDot {
            name: it.experiment.name.clone(),
            value: value(it),
            range: range(it).map(|it| (it.low, it.high)),
        };
        experiments.iter().map(dot).collect::<Vec<_>>()
    };
    let rates = dots(|it| it.pass_rate, |it| it.pass_interval);
    let means = dots(|it| it.mean_score, |it| it.score_interval);
    let scores: Vec<_> = experiments.iter().map(|it| (it.experiment.name.clone(), &it.scores[..])).collect();
    let latencies: Vec<_> =
        experiments.iter().map(|it| (it.experiment.name.clone(), &it.latencies[..])).collect();
    let figures = [
        ("Pass rate", ", with its 95 % interval", plot::dots(&rates, percent)),
        ("Mean score", ", with its 95 % interval", plot::dots(&means, score)),
        ("Distribution of scores", ": how many judged samples have which", plot::bars(&scores)),
        (
            "Latency",
            ": each answer, the middle half as a box with its median, a dot for the 99th percentile; logarithmic",
            plot::strips(&latencies, time),
        ),
    ];
    html! {
        h2 { "Side by side" }
        div class="plots" {
            @for (title, text, plot) in &figures {
                figure { figcaption { b { (title) } (text) } (plot) }
            }
        }
    }
}
