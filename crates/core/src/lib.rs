//! Pools without any protocol: calls, queues, workers and their supervision.
//!
//! A [`request`] becomes a [`call`], which travels `queue` → `worker` → [`adapter`]. The adapter contract is what each
//! kind of worker fulfils. `snakepit_custody` holds the processes, and ends them when the host is gone. This crate
//! knows no adapter, no mailbox and no configuration file. The crate `snakepit` re-exports what users need.
//!
//! The folders point one way; a test keeps them so. Each knows only those before it:
//!
//! - `call`: one call, its answer and its errors. `tool`: functions of the host that calls may use.
//! - `output`: what a worker prints. `adapter`: the contract. `options`: what a pool is asked to be.
//! - `worker`: one worker from ready to gone. It knows its queue only as a `WorkerQueue`.
//! - `queue`: the state of a pool, and which worker serves which call.
//! - `request`: what callers ask and wait for. `supervisor`: how many workers there are.
//! - `pool`: the handle that users have.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod adapter;
pub mod call;
// Public only because the crates above need it, too. It is no part of what users may depend on.
#[doc(hidden)]
pub mod error_text;
mod options;
mod output;
pub mod pool;
mod queue;
pub mod request;
mod sharded;
// Public only because the crates above need it, too. It is no part of what users may depend on.
#[doc(hidden)]
pub mod similar_names;
mod supervisor;
pub mod tool;
pub mod worker;

use snakepit_custody as custody;
use snakepit_environments as environment;
use snakepit_environments::hardware;
use snakepit_protocol::{harmless, value};
use snakepit_telemetry as telemetry;
use snakepit_telemetry::logging;

pub use adapter::{Adapter, StartError};
pub use call::Progress;
pub use call::{
    Autopsy, Call, CallError, CallId, Chain, Input, Link, MAX_NESTING, NoWorkersReason, OomVerdict, Portion,
    RemoteError, RemoteErrorKind,
};
pub use pool::{
    Affinity, CallAtWork, CancelGrace, CommandGrowth, HealthAnswer, LostSessions, Outcomes, Pool, PoolHealth,
    PoolOptions, PoolSettings, PoolStatus, TaintedSlot, WorkerDuty, WorkerInfo, WorkerLiveness, WorkerSlot,
    WorkerStatus,
};
pub use queue::{CircuitRow, CircuitScope, CircuitTable, SessionInfo, Suspect};
pub use request::{
    CallBuilder, CallStream, MapAsTheyCome, MapBuilder, MapInOrder, PendingCall, StreamBuilder, Withdrawal,
};
pub use snakepit_policy::{
    Breaker, CircuitPhase, CircuitState, CountedFailures, Fault, FaultKind, Fingerprint, NoRetry, Quarantine,
    RecycleReason, Recycling, Restarts, Retry, Sizing, Stuck, SuspectCall, Taint, Tainted, WhenStuck,
};
pub use supervisor::{ReloadError, Reloaded};
pub use tool::{ToolAnswer, ToolContext};
pub use worker::{OutputLine, OutputStream, StopWindow, WorkerOutput};

#[cfg(test)]
mod tests {
    mod endings;
    mod errors;
}
