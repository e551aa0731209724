//! The report as text tables.

use std::fmt::Write as _;

use snakepit::evals::stats::Interval;
use snakepit::evals::{EvalReport, ExperimentComparison, ExperimentSummary, SampleStage};

use crate::shared::output::table::{aligned, dash};

/// The number of samples without a score to list per experiment. The checkpoint and `--json` have all of them.
const SHOWN: usize = 5;

pub(super) const INCOMPLETE: &str =
    "NOT COMPLETE: samples without a result are counted as missing and are in no rate.";

pub(super) fn report(report: &EvalReport) -> String {
    let mut text = String::new();
    if !report.complete {
        let _ = writeln!(text, "{INCOMPLETE}\n");
    }
    let rows: Vec<[String; 10]> = report.experiments.iter().map(row).collect();
    let header = [
        "EXPERIMENT",
        "PASSED",
        "95 %",
        "SCORE",
        "95 %",
        "FAILED",
        "ERRORS",
        "TIMEOUTS",
        "MISSING",
        "P50 / P99",
    ];
    text.push_str(&aligned(header, &rows));
    if report.experiments.iter().any(|summary| summary.tokens.is_some()) {
        text.push('\n');
        let rows: Vec<[String; 4]> = report.experiments.iter().map(tokens).collect();
        text.push_str(&aligned(["EXPERIMENT", "TOKENS IN", "TOKENS OUT", "REPORTED BY"], &rows));
    }
    if !report.comparisons.is_empty() {
        text.push('\n');
        let rows: Vec<[String; 7]> = report.comparisons.iter().map(comparison).collect();
        let header = ["COMPARED", "PASSED", "P", "SCORE", "95 %", "P", "PAIRS"];
        text.push_str(&aligned(header, &rows));
    }
    for summary in &report.experiments {
        let unscored = &summary.unscored;
        if unscored.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\nwithout a score in {}:", plain(&summary.experiment.name));
        for one in unscored.iter().take(SHOWN) {
            let message = one.message.lines().next().unwrap_or_default();
            // The answer may be right and the evaluator wrong.
            let whose = if one.stage == Some(SampleStage::Judge) { " of the evaluator" } else { "" };
            let _ = writeln!(text, "  {}  {}{whose}: {}", plain(&one.sample), one.kind, plain(message));
        }
        if unscored.len() > SHOWN {
            let _ = writeln!(text, "  and {} more", unscored.len() - SHOWN);
        }
    }
    text
}

fn row(summary: &ExperimentSummary) -> [String; 10] {
    let counts = &summary.counts;
    let latency = summary.latency_ms.map(|it| format!("{} / {}", time(it.p50), time(it.p99)));
    [
        plain(&summary.experiment.name),
        summary.pass_rate.map_or_else(dash, |rate| format!("{} ({})", percent(rate), counts.passed)),
        summary.pass_interval.map_or_else(dash, |it| format!("{}–{}", percent(it.low), percent(it.high))),
        summary.mean_score.map_or_else(dash, score),
        summary.score_interval.map_or_else(dash, interval),
        counts.failed.to_string(),
        counts.errors.to_string(),
        counts.timeouts.to_string(),
        counts.missing.to_string(),
        latency.unwrap_or_else(dash),
    ]
}

fn tokens(summary: &ExperimentSummary) -> [String; 4] {
    let reported = |number: fn(snakepit::evals::Tokens) -> u64| {
        summary.tokens.map_or_else(dash, |tokens| number(tokens).to_string())
    };
    [
        plain(&summary.experiment.name),
        reported(|tokens| tokens.input),
        reported(|tokens| tokens.output),
        format!("{} answers", summary.tokens_told),
    ]
}

fn comparison(it: &ExperimentComparison) -> [String; 7] {
    [
        plain(&format!("{} against {}", it.other, it.baseline)),
        it.pass_difference.map_or_else(dash, points),
        chance(it.pass_p_adjusted),
        it.score_difference.map_or_else(dash, |difference| format!("{difference:+.3}")),
        it.score_interval.map_or_else(dash, |it| format!("{:+.3}…{:+.3}", it.low, it.high)),
        chance(it.score_p_adjusted),
        it.pairs.to_string(),
    ]
}

pub(super) fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

pub(super) fn points(difference: f64) -> String {
    format!("{:+.1} points", difference * 100.0)
}

pub(super) fn score(score: f64) -> String {
    format!("{score:.3}")
}

pub(super) fn interval(it: Interval) -> String {
    format!("{:.3}–{:.3}", it.low, it.high)
}

pub(super) fn chance(p: f64) -> String {
    if p < 0.0001 { "< 0.0001".to_owned() } else { format!("{p:.4}") }
}

/// Formats milliseconds for people.
pub(super) fn time(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.2} ms"),
        ms if ms < 1_000.0 => format!("{ms:.0} ms"),
        ms => format!("{:.1} s", ms / 1_000.0),
    }
}

/// Returns the text on one line.
fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}
