//! A short table: a line for each thing that is measured, which says whether it is as wanted.

use super::{Samples, machine};

/// A line of the table, and whether it is as wanted.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its cells, in Markdown.
    pub text: String,
    /// Whether it is as wanted.
    pub met: bool,
}

impl Line {
    /// Ours beside something else, both so many per second; wanted is the least ratio.
    pub fn rates(what: &str, ours: &Samples, beside: &str, theirs: &Samples, least: f64) -> Self {
        let ratio = ours.median() / theirs.median();
        let met = ratio >= least;
        let text = format!(
            "| {what} | {:.0}/s | {beside}: {:.0}/s | {ratio:.2} × | ≥ {least} ×: {} |",
            ours.median(),
            theirs.median(),
            verdict(met)
        );
        Self { text, met }
    }

    /// Ours beside something for which nothing is wanted.
    pub fn reported(what: &str, ours: &Samples, beside: &str, theirs: &Samples) -> Self {
        let ratio = ours.median() / theirs.median();
        let (ours, theirs) = (ours.median(), theirs.median());
        Self {
            text: format!("| {what} | {ours:.0}/s | {beside}: {theirs:.0}/s | {ratio:.2} × | – |"),
            met: true,
        }
    }

    /// A rate that has nothing beside it, and why.
    pub fn alone(what: &str, ours: &Samples, why: &str) -> Self {
        Self { text: format!("| {what} | {:.0}/s | {why} | – | – |", ours.median()), met: true }
    }

    /// A time in seconds that is to be less than a limit, both shown in milliseconds.
    pub fn time(what: &str, ours: &Samples, limit: f64) -> Self {
        let met = ours.median() < limit;
        let [median, high, limit] = [ours.median(), ours.quantile(0.9), limit].map(|seconds| seconds * 1e3);
        let text = format!(
            "| {what} | {median:.2} ms (p90 {high:.2}) | – | – | < {limit:.0} ms: {} |",
            verdict(met)
        );
        Self { text, met }
    }
}

/// The word for it.
pub fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISS" }
}

/// All lines, with their heading and the machine.
pub fn table(lines: &[Line]) -> String {
    let mut table = String::from("| what | ours | beside | ratio | wanted |\n|---|---|---|---|---|\n");
    for line in lines {
        table.push_str(&line.text);
        table.push('\n');
    }
    format!("{table}\nMachine: {}\n", machine::describe())
}
