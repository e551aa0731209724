//! How answers are judged.
//!
//! Owns the evaluators. A wrong answer is a judgement. If the evaluator cannot judge (the expected value is not a
//! number, a judge fails), that is an error of the sample. Does not know where judgements go.
//!
//! - `evaluator_notation`: the notation of evaluators.
//! - `evaluator`: the kinds of evaluators, and what each needs.
//! - `comparison`: the evaluators that compare the answer with the expected value.
//! - `evaluator_function`: the evaluators that are functions of the host.
//! - `judgement`: the verdict of an evaluator.

mod comparison;
mod evaluator;
mod evaluator_function;
mod evaluator_notation;
mod judgement;

pub use evaluator::Evaluator;
pub use evaluator_function::EvaluatorFunction;
pub use judgement::{IntoJudgement, Judgement};
