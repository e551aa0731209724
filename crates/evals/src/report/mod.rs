//! What the records of an evaluation mean. A pure function of the plan and the records, in whichever order they came.
//!
//! Owns rates, means and comparisons. An error and a timeout are results: they have not passed, and their score is 0. A sample without a record is
//! missing: it is counted, but in no rate, and makes the report incomplete.
//!
//! - `evaluation_report`: the report.
//! - `summary`: one experiment.
//! - `comparison`: two experiments on the same samples.

mod comparison;
mod evaluation_report;
mod summary;

pub use comparison::ExperimentComparison;
pub use evaluation_report::{EvalReport, Methods};
pub use summary::{ExperimentSummary, OutcomeCounts, Unscored};
