//! What is evaluated.
//!
//! Owns samples and experiments. It does not know who answers, and of the evaluator only whether it needs an expected value.
//!
//! - `dataset`: the samples, read from JSON lines.
//! - `sample_json`: why a line is no sample.
//! - `eval_plan`: the experiments in which each sample is run.

mod dataset;
mod eval_plan;
mod sample_json;

pub use dataset::{Dataset, Sample};
pub use eval_plan::{EvalPlan, Experiment};
