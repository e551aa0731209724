//! Evaluations with real workers.

mod checkpoints;
mod evaluations;
mod evaluators;
mod responders;
#[path = "../support/mod.rs"]
mod support;
mod worker_deaths;
