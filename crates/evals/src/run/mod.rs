//! How a sample becomes a record.
//!
//! Owns the order in which samples run. Does not know how an answer is judged or what a report says.
//!
//! - `evaluation`: asks directly.
//! - `remote_evaluation`: sends samples through a mailbox and collects their records.
//! - `eval_loop`: evaluates the samples of a mailbox.
//! - `sample_runner`: answers and judges one sample.
//! - `progress`: the progress of an evaluation.

mod eval_loop;
mod evaluation;
mod progress;
mod remote_evaluation;
mod sample_runner;

pub use eval_loop::{EvalLoop, EvalRequest};
pub use evaluation::Evaluation;
pub use progress::EvalProgress;
pub use remote_evaluation::RemoteEvaluation;
pub(crate) use sample_runner::SampleRunner;
