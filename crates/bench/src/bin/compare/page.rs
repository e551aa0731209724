//! The table of one program's rows.

use std::fmt::Write as _;

use snakepit_bench::comparison::{Build, BuildComparison, CostRatio, RowVerdict};

/// A table in Markdown, and the number of its rows that are worse.
pub(crate) struct ComparisonTable {
    pub(crate) text: String,
    pub(crate) worse: usize,
}

pub(crate) fn table(program: &str, comparison: &BuildComparison) -> ComparisonTable {
    let mut table = ComparisonTable {
        text: format!(
            "| {program} | new / old cost | 95 % interval | pairs | verdict |\n|---|---|---|---|---|\n"
        ),
        worse: 0,
    };
    for (row, costs) in comparison.rows() {
        let cells = match (costs.missing_from(), CostRatio::of(&costs.pairs())) {
            (Some(Build::Old), _) => "– | – | 0 | only in new".to_owned(),
            (Some(Build::New), _) => "– | – | 0 | only in old".to_owned(),
            (None, None) => "– | – | 0 | never in the same round".to_owned(),
            (None, Some(ratio)) => {
                let verdict = ratio.judge();
                table.worse += usize::from(verdict == RowVerdict::Worse);
                show(&ratio, verdict)
            }
        };
        let _ = writeln!(table.text, "| {row} | {cells} |");
    }
    table.text.push('\n');
    table
}

fn show(ratio: &CostRatio, verdict: RowVerdict) -> String {
    let verdict = match verdict {
        RowVerdict::Worse => "**WORSE**",
        RowVerdict::Better => "better",
        RowVerdict::Same => "same",
        RowVerdict::Undecided => "too few pairs",
    };
    let interval =
        ratio.interval.map_or_else(|| "–".to_owned(), |(low, high)| format!("{low:.3} – {high:.3}"));
    format!("{:.3} | {interval} | {} | {verdict}", ratio.median, ratio.pairs)
}
