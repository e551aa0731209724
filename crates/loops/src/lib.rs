//! Loops receive messages from a mailbox, run a handler for each, and settle them. When a loop ends, messages in flight
//! complete, and messages that were not started go back to the mailbox.
//!
//! [`MainLoop`] passes each message to a handler in Rust, [`PoolLoop`] to a command of a pool. A [`LoopGroup`] runs
//! many loops as one. You can write your own loops as a [`Runnable`] that holds a [`Control`].
//!
//! The folders follow the path of a message:
//!
//! - `loop_control`: what every loop is, and how other code controls it.
//! - `receive`: the task that receives messages, as many as there is room for.
//! - `lease`: the messages that a run has received but not settled. Extends their leases.
//! - `handle`: handlers, and what their errors mean.
//! - `settle`: reply, ack, nack or bury.
//! - `group`: many loops that end together.
//! - `health`: heartbeats, the watchdog, and probes over HTTP.
//!
//! The crate knows mailboxes and pools, but nothing of evaluations, configuration files or the program. Users depend on
//! the crate `snakepit`, which re-exports this crate as `snakepit::loops`.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[doc(hidden)]
pub mod failpoint;
mod group;
mod handle;
mod health;
mod lease;
mod loop_control;
mod receive;
mod settle;

pub use group::{CrashPolicy, GroupEnd, GroupError, LoopGroup, RemainingMessages};
pub use handle::{
    Beats, Boxed, Converted, HandlerFailure, IntoFailure, MainLoop, PoolLoop, PoolLoopOptions, beat,
};
#[cfg(feature = "health")]
pub use health::HealthServer;
pub use health::{Heartbeat, IfStuck, LoopHealth, MessageHealth, Watchdog};
pub use loop_control::{
    Control, EndOrder, InFlight, InFlightGuard, Intake, LoopError, LoopOrders, LoopScope, RunGuard,
    RunOptions, Runnable, SHUTDOWN_TIMEOUT, register_loop,
};
pub use settle::{ERROR_ATTRIBUTE, GiveUpAction, Replies};

use std::sync::{Mutex, MutexGuard, PoisonError};

use snakepit_core::{CallError, Pool, error_text, pool, similar_names};
use snakepit_engine::{Snakepit, lifecycle};
use snakepit_mailbox as mailbox;
use snakepit_protocol::value::Value;
use snakepit_telemetry as telemetry;

/// Locks a mutex. The holders of the mutexes in this crate leave no change half done when they panic.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    mod errors;
}
