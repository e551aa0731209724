//! What is evaluated.
//!
//! Owns the samples and experiments. Does not know where answers come from. Of the evaluator it knows only whether it
//! needs an expected value.
//!
//! - `dataset`: the samples, read from JSON lines.
//! - `sample_json`: reads one sample from a line, or tells why the line is not a sample.
//! - `eval_plan`: the experiments in which each sample is run.

mod dataset;
mod eval_plan;
mod sample_json;

pub use dataset::{Dataset, Sample};
pub use eval_plan::{EvalPlan, Experiment};
