//! Messages: what the payload of each frame says, as the table of kinds in `spec/wire.md` lists them.
//!
//! A message is written or decoded here, and means nothing here: this module knows no call, no pool and no runtime. The
//! limits of the specification apply when a message is decoded.
//!
//! | kinds | file |
//! |---|---|
//! | HELLO | `hello.rs`: [`Hello`] |
//! | READY | `ready.rs`: [`ReadyMessage`] |
//! | CALL, CALLS | `call.rs`: [`CallMessage`] |
//! | ERROR | `error.rs`: [`RemoteError`], and its limits in `error_limits.rs` |
//! | CREDIT, CANCEL, DRAIN, FAULT to a worker | `host_message.rs`: [`HostMessage`] |
//! | all that a worker sends | `worker_message.rs`: [`WorkerMessage`] |
//! | `HOST_CALL`, and `HOST_RESULT`, `HOST_ERROR`, `HOST_ITEM`, `HOST_END` | `host_call.rs`: [`HostCall`], [`ToolReply`] |
//! | TELEMETRY | `span.rs`: [`WorkerSpan`] |
//! | the values of ITEM and ITEMS, the entries of RESULTS | `../value/`: [`EncodedItems`], [`Encoded::flagged`] |
//!
//! `trace.rs` has the trace that CALL, CALLS and `HOST_CALL` may name ([`TraceTexts`]).

#[cfg(doc)]
use crate::value::{Encoded, EncodedItems};

mod call;
mod error;
mod error_limits;
mod hello;
mod host_call;
mod host_message;
mod ready;
mod span;
#[cfg(test)]
mod tests;
mod trace;
mod worker_message;

pub use call::{CallMessage, CallMessageOptions, Input};
pub use error::{RemoteError, RemoteErrorKind};
pub use hello::Hello;
pub use host_call::{HostCall, HostCallOptions, ToolReply};
pub use host_message::HostMessage;
pub use ready::{Batching, ReadyMessage, Signals};
pub use span::WorkerSpan;
pub use trace::TraceTexts;
pub use worker_message::{PROGRESS_TEXT, WorkerMessage};
