//! Reads measured values from the tables that the benchmarks print, in Markdown or aligned for a terminal.
//!
//! The text is the only interface that an older binary has. A table with a column "ours" yields that column. Any other
//! table yields each column whose cells begin with a value and its unit.

/// One cell of a table as a cost: seconds per operation, or mebibytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// The text of the first cell of the row. If the table has several measured columns, also the column.
    pub row: String,
    /// The cost, where less is better. A rate becomes the time of one operation.
    pub cost: f64,
}

/// Returns every value that the tables in this output report, each row once.
pub fn measurements(output: &str) -> Vec<Measurement> {
    let mut found: Vec<Measurement> = Vec::new();
    let mut header: Option<Vec<&str>> = None;
    for line in output.lines() {
        let Some(cells) = cells(line) else {
            header = None;
            continue;
        };
        match &header {
            None => header = Some(cells),
            Some(header) => {
                for measurement in row_measurements(header, &cells) {
                    // Our value stands beside several peers and is the same in each of these rows.
                    if found.iter().all(|earlier| earlier.row != measurement.row) {
                        found.push(measurement);
                    }
                }
            }
        }
    }
    found
}

/// Returns the cells of a line of a table, or `None` if the line does not belong to a table.
fn cells(line: &str) -> Option<Vec<&str>> {
    let line = line.trim();
    if let Some(inner) = line.strip_prefix('|') {
        return Some(inner.trim_end_matches('|').split('|').map(str::trim).collect());
    }
    // Columns for a terminal are at least two spaces apart, and no cell is empty.
    let cells: Vec<&str> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    (cells.len() > 1).then_some(cells)
}

fn row_measurements(header: &[&str], cells: &[&str]) -> Vec<Measurement> {
    let name = cells[0];
    let columns = || header.iter().zip(cells).skip(1);
    if let Some((_, cell)) = columns().find(|(column, _)| column.starts_with("ours")) {
        return cost(cell).map(|cost| Measurement { row: name.to_owned(), cost }).into_iter().collect();
    }
    columns()
        .filter_map(|(column, cell)| {
            Some(Measurement { row: format!("{name}: {column}"), cost: cost(cell)? })
        })
        .collect()
}

/// Returns the cost that a cell begins with, such as "12.3 ms (p90 15.0)" or "1234/s, p50 3 µs". Nothing costs zero: a
/// value that was rounded to zero has no ratio and is left out.
fn cost(cell: &str) -> Option<f64> {
    let end = cell.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let value: f64 = cell[..end].parse().ok()?;
    let unit = cell[end..].trim_start();
    let unit = unit.split(|c: char| c.is_whitespace() || ",(".contains(c)).next()?;
    let cost = match unit {
        "/s" => 1.0 / value,
        "s" | "MiB" => value,
        "ms" => value * 1e-3,
        "µs" => value * 1e-6,
        _ => return None,
    };
    (cost.is_finite() && cost > 0.0).then_some(cost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BenchReport, Comparand, ReportPage, ReportRow, RowTarget, SampleSet, Side, Unit};

    fn assert_costs(output: &str, expected: &[(&str, f64)]) {
        let found = measurements(output);
        let rows: Vec<&str> = found.iter().map(|it| it.row.as_str()).collect();
        assert_eq!(rows, expected.iter().map(|(row, _)| *row).collect::<Vec<_>>());
        for (found, (row, cost)) in found.iter().zip(expected) {
            assert!((found.cost / cost - 1.0).abs() < 1e-9, "{row}: {} instead of {cost}", found.cost);
        }
    }

    #[test]
    fn a_table_for_a_terminal_yields_ours_once_for_each_row() {
        let mut report = BenchReport::begin(ReportPage { opening: "", beside: "floor or peer", method: "" });
        let samples = || [1e-3, 2e-3, 3e-3].into_iter().collect::<SampleSet>();
        for peer in ["mp.Pool", "Ray actors"] {
            report.add(ReportRow {
                what: "64 B, one in flight: p50".to_owned(),
                unit: Unit::Seconds,
                ours: Side::Measured { samples: samples(), aside: vec!["p99 9.00 ms".to_owned()] },
                beside: Some(Comparand {
                    name: peer.to_owned(),
                    side: Side::Absent("not installed".to_owned()),
                }),
                target: RowTarget::None,
            });
        }
        report.add(ReportRow {
            what: "spawn + wait".to_owned(),
            unit: Unit::PerSecond,
            ours: std::iter::once(500.0).collect::<SampleSet>().into(),
            beside: None,
            target: RowTarget::None,
        });
        report.note("a note  with two spaces");
        assert_costs(&report.text(), &[("64 B, one in flight: p50", 2e-3), ("spawn + wait", 2e-3)]);
        assert_costs(&report.markdown(), &[("64 B, one in flight: p50", 2e-3), ("spawn + wait", 2e-3)]);
    }

    #[test]
    fn a_table_without_a_column_of_ours_yields_every_measured_column() {
        let output = "Machine: 2 cores\n\n\
            | reload | before | lowest | least of it | took |\n|---|---|---|---|---|\n\
            | calls that compute | 2000/s | 1000/s | 0.50× (MISS) | 1.5 s |\n\
            \nA death costs 1.30 fresh starts.\n";
        assert_costs(
            output,
            &[
                ("calls that compute: before", 5e-4),
                ("calls that compute: lowest", 1e-3),
                ("calls that compute: took", 1.5),
            ],
        );
    }

    #[test]
    fn memory_is_a_cost_and_what_has_no_value_is_left_out() {
        let output = "| what | ours |\n|---|---|\n| Pss | 1.500 MiB (1.4 – 1.6) |\n| wake | 0 µs (p90 1) |\n| peer | – |\n";
        assert_costs(output, &[("Pss", 1.5)]);
    }
}
