//! Evaluators.

mod evaluator_function;
