//! The task that runs a loop over a mailbox: it receives messages and starts their handlers.
//!
//! Owns when and how many messages are received. No handler code runs in this task, so a slow handler delays neither a
//! lease nor a shutdown.
//!
//! - `message_loop`: the parts of such a loop, and the task of a run.
//! - `run_context`: the state that the task shares with its handlers.
//! - `message_window`: how many messages a run has at a time.
//! - `pool_gate`: whether the pool behind a loop can serve.
//! - `submitted_calls`: the calls that the pool has got, and how to withdraw those that no worker has begun.
//! - `availability`: whether mailbox and pool work, and the pauses between attempts.

mod availability;
mod message_loop;
mod message_window;
mod pool_gate;
mod run_context;
mod submitted_calls;

pub(crate) use message_loop::{MessageHandler, MessageLoop};
pub(crate) use message_window::Concurrency;
pub(crate) use pool_gate::{PoolGate, PoolReadiness};
pub(crate) use run_context::RunContext;
pub(crate) use submitted_calls::SubmittedCalls;
