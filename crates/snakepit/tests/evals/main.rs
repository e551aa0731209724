//! Evaluations with real workers.

mod evaluators;
mod record;
mod responders;
mod run;
#[path = "../support/mod.rs"]
mod support;
