//! One call: what a caller asks for, what a worker is given, and how the answer comes back.
//!
//! Knows no protocol, queue, pool or worker. To a call, a worker is a `Holder`. A call passes these files in this
//! order:
//!
//! - `input.rs`, `id.rs`, `command.rs`, `chain.rs`: what is called, with what, and inside which other calls;
//! - `queue_key.rs`, `estimate.rs`: its position in the queue, and how long it may take;
//! - `lease.rs`: its right to a place at a worker;
//! - `lease/dispatch.rs`: when the places that become free are filled;
//! - `batch.rs`: calls that travel together;
//! - `answer.rs`: the call as its worker has it, and how it is answered;
//! - `state.rs`: what it shares with its caller;
//! - `progress.rs`: what that state says: where the call is, how far, and how it ended;
//! - `credit.rs`: how much of a stream may follow;
//! - `error/`: why a call failed.

pub(crate) mod answer;
pub(crate) mod batch;
mod chain;
pub(crate) mod command;
mod credit;
pub(crate) mod error;
pub(crate) mod estimate;
mod id;
mod input;
pub(crate) mod lease;
pub(crate) mod progress;
pub(crate) mod queue_key;
mod state;

pub use answer::Call;
pub use chain::{Chain, Link, MAX_NESTING};
pub(crate) use command::PoolCommand;
pub use command::is_reserved;
pub use credit::Portion;
pub(crate) use error::ErrorClass;
#[cfg(test)]
pub(crate) use error::autopsy::crash;
pub use error::{Autopsy, CallError, NoWorkersReason, OomVerdict, RemoteError, RemoteErrorKind};
pub(crate) use error::{SCALED_TO_ZERO, has_run};
pub use id::CallId;
pub(crate) use input::Extras;
pub use lease::dispatch::answer_together;
pub use progress::Progress;
pub(crate) use queue_key::QueueKey;
pub use snakepit_protocol::message::{Batching, Input};
