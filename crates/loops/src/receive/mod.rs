//! The task that runs a loop over a mailbox: it receives messages and starts their handlers.
//!
//! Owns when and how much is received. No code of a handler runs in this task, so that a slow handler delays no lease and no shutdown.
//!
//! - `message_loop`: what such a loop is made of, and the task of a run.
//! - `run_context`: what the task shares with its handlers.
//! - `window`: how many messages a run has at a time.
//! - `pool_gate`: whether the pool behind a loop can serve.
//! - `availability`: whether mailbox and pool work, and the pauses between tries.

mod availability;
mod message_loop;
mod pool_gate;
mod run_context;
mod window;

pub(crate) use message_loop::{MessageHandler, MessageLoop};
pub(crate) use pool_gate::{PoolGate, PoolReadiness};
pub(crate) use run_context::RunContext;
pub(crate) use window::Concurrency;
