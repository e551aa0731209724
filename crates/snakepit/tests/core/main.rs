//! Calls, queues, workers, the supervisor and its policies, with real worker processes.

mod call;
mod policy;
mod queue;
mod request;
mod supervisor;
#[path = "../support/mod.rs"]
mod support;
mod tool;
mod worker;
