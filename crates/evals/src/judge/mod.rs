//! How an answer is judged.
//!
//! Owns evaluators. A wrong answer is a judgement; what keeps the evaluator from judging (an expected value that is no number, a judge that
//! fails) is an error of the sample. It does not know where judgements go.
//!
//! - `evaluator_notation`: evaluators as people write them.
//! - `evaluator`: the kinds of evaluators, and what each needs.
//! - `comparison`: evaluators that compare the answer with what is expected.
//! - `evaluator_function`: evaluators that are functions of the host.
//! - `judgement`: what an evaluator says.

mod comparison;
mod evaluator;
mod evaluator_function;
mod evaluator_notation;
mod judgement;

pub use evaluator::Evaluator;
pub use evaluator_function::EvaluatorFunction;
pub use judgement::{IntoJudgement, Judgement};
