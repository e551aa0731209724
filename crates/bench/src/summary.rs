//! A short table with one row per measurement, which states whether its target is met.

use crate::{SampleSet, machine};

/// A row of the table.
#[derive(Clone, Debug)]
pub struct SummaryRow {
    /// The cells of the row, in Markdown.
    pub text: String,
    /// Whether the target is met. A row without a target always meets it.
    pub met: bool,
}

impl SummaryRow {
    /// Creates a row of our rate beside another one. The target is the minimum ratio.
    pub fn rates(what: &str, ours: &SampleSet, beside: &str, theirs: &SampleSet, least: f64) -> Self {
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

    /// Creates a row of our rate beside another one, without a target.
    pub fn reported(what: &str, ours: &SampleSet, beside: &str, theirs: &SampleSet) -> Self {
        let ratio = ours.median() / theirs.median();
        let (ours, theirs) = (ours.median(), theirs.median());
        Self {
            text: format!("| {what} | {ours:.0}/s | {beside}: {theirs:.0}/s | {ratio:.2} × | – |"),
            met: true,
        }
    }

    /// Creates a row of our rate alone, with the reason why nothing is beside it.
    pub fn alone(what: &str, ours: &SampleSet, why: &str) -> Self {
        Self { text: format!("| {what} | {:.0}/s | {why} | – | – |", ours.median()), met: true }
    }

    /// Creates a row of our time in seconds, shown in milliseconds. The target is a limit.
    pub fn time(what: &str, ours: &SampleSet, limit: f64) -> Self {
        let met = ours.median() < limit;
        let [median, high, limit] = [ours.median(), ours.quantile(0.9), limit].map(|seconds| seconds * 1e3);
        let text = format!(
            "| {what} | {median:.2} ms (p90 {high:.2}) | – | – | < {limit:.0} ms: {} |",
            verdict(met)
        );
        Self { text, met }
    }

    /// Creates a row of our time beside the floor's, both in seconds. The target is the maximum ratio.
    pub fn times(what: &str, ours: &SampleSet, floor: &SampleSet, most: f64) -> Self {
        let show = |samples: &SampleSet| {
            format!("{:.1} ms (p90 {:.1})", samples.median() * 1e3, samples.quantile(0.9) * 1e3)
        };
        let ratio = ours.median() / floor.median();
        let met = ratio <= most;
        let (ours, floor) = (show(ours), show(floor));
        let text =
            format!("| {what} | {ours} | the floor: {floor} | {ratio:.2} × | ≤ {most} ×: {} |", verdict(met));
        Self { text, met }
    }
}

/// Returns the text in a table for whether a target is met.
pub fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISS" }
}

/// Formats all rows with their heading and the machine.
pub fn table(rows: &[SummaryRow]) -> String {
    let mut table = String::from("| what | ours | beside | ratio | wanted |\n|---|---|---|---|---|\n");
    for row in rows {
        table.push_str(&row.text);
        table.push('\n');
    }
    format!("{table}\nMachine: {}\n", machine::describe())
}
