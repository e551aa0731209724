//! Compares two builds of one benchmark: reads what each run printed, pairs the runs, and judges every row.
//!
//! Nothing here starts a process or knows which benchmarks exist. `bench-compare` does both.

mod measurement;
mod ratio;

use std::collections::BTreeMap;

pub use measurement::{Measurement, measurements};
pub use ratio::{CostRatio, RowVerdict};

/// The costs of one row, in pairs of consecutive runs of the old and the new build.
#[derive(Clone, Debug, Default)]
pub struct PairedCosts {
    old: Vec<Option<f64>>,
    new: Vec<Option<f64>>,
}

/// The build that printed a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// The build that the other one is compared with.
    Old,
    /// The build that is judged.
    New,
}

/// Every row that either build printed, in alphabetical order.
#[derive(Clone, Debug, Default)]
pub struct BuildComparison {
    rounds: usize,
    rows: BTreeMap<String, PairedCosts>,
}

impl PairedCosts {
    /// Returns the costs of each round in which both builds printed the row: the old cost, then the new one.
    pub fn pairs(&self) -> Vec<(f64, f64)> {
        self.old.iter().zip(&self.new).filter_map(|(old, new)| Some(((*old)?, (*new)?))).collect()
    }

    /// Returns the build that never printed the row, if there is one.
    pub fn missing_from(&self) -> Option<Build> {
        let is_missing = |costs: &[Option<f64>]| costs.iter().all(Option::is_none);
        match (is_missing(&self.old), is_missing(&self.new)) {
            (true, _) => Some(Build::Old),
            (_, true) => Some(Build::New),
            (false, false) => None,
        }
    }
}

impl BuildComparison {
    /// Adds what both builds printed in one round.
    pub fn add_round(&mut self, old: &str, new: &str) {
        self.rounds += 1;
        for (build, output) in [(Build::Old, old), (Build::New, new)] {
            for measurement in measurements(output) {
                let costs = self.rows.entry(measurement.row).or_default();
                let costs = match build {
                    Build::Old => &mut costs.old,
                    Build::New => &mut costs.new,
                };
                costs.resize(self.rounds, None);
                costs[self.rounds - 1] = Some(measurement.cost);
            }
        }
    }

    /// Returns every row with its costs.
    pub fn rows(&self) -> impl Iterator<Item = (&str, &PairedCosts)> {
        self.rows.iter().map(|(row, costs)| (row.as_str(), costs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(time: &str) -> String {
        format!("| what | ours |\n|---|---|\n| a start | {time} |\n")
    }

    #[test]
    fn the_costs_of_a_round_stand_side_by_side() {
        let mut comparison = BuildComparison::default();
        comparison.add_round(&table("2.0 ms"), &table("3.0 ms"));
        comparison.add_round(&table("4.0 ms"), &table("5.0 ms"));
        let [(row, costs)] = comparison.rows().collect::<Vec<_>>()[..] else { panic!("{comparison:?}") };
        assert_eq!(row, "a start");
        assert_eq!(costs.pairs(), [(2e-3, 3e-3), (4e-3, 5e-3)]);
    }

    #[test]
    fn a_round_that_lacks_a_row_shifts_no_later_pair() {
        let mut comparison = BuildComparison::default();
        comparison.add_round(&table("1 ms"), "");
        comparison.add_round("", &table("2 ms"));
        comparison.add_round(&table("3 ms"), &table("4 ms"));
        let (_, costs) = comparison.rows().next().expect("one row");
        assert_eq!(costs.pairs(), [(3e-3, 4e-3)]);
        assert_eq!(costs.missing_from(), None);
    }

    #[test]
    fn a_row_of_one_build_alone_is_reported_as_missing_from_the_other() {
        let mut comparison = BuildComparison::default();
        comparison.add_round(&table("1 ms"), "");
        let (_, costs) = comparison.rows().next().expect("one row");
        assert_eq!(costs.missing_from(), Some(Build::New));
    }
}
