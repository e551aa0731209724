//! What the records of an evaluation mean: a pure function of the plan and the records, independent of their order.
//!
//! Owns rates, means and comparisons. Errors and timeouts are results: they have not passed, and their score is 0. A
//! sample without a record is missing: it is counted, but belongs to no rate, and makes the report incomplete.
//!
//! - `evaluation_report`: the report.
//! - `summary`: the results of one experiment.
//! - `comparison`: a comparison of two experiments on the same samples.

mod comparison;
mod evaluation_report;
mod summary;

pub use comparison::ExperimentComparison;
pub use evaluation_report::{EvalReport, Methods};
pub use summary::{ExperimentSummary, OutcomeCounts, Unscored, UnscoredKind};
