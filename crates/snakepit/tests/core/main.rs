//! Calls, queues, workers, the supervisor and its policies, with real worker processes.

mod adapter;
mod call;
mod output;
mod policy;
mod pool;
mod queue;
mod request;
mod supervisor;
#[path = "../support/mod.rs"]
mod support;
mod tool;
mod worker;
