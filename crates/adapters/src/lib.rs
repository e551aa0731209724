//! Adapters, one module for each kind of worker: how workers are started, spoken to and ended.
//!
//! [`python`] workers speak spec/wire.md over a socket, `stdio` workers exchange lines of JSON, `http` workers serve
//! routes, `grpc` workers speak spec/snakepit.proto, and [`mock`] workers are closures of the host. `ready_line`
//! reads the ready line of workers with other protocols. `listener` proves that a port belongs to a worker, by the
//! kernel's list of sockets. `json` and `lines` read what untrusted workers write, and `pipe_buffer` makes pipes larger
//! for long lines. Each adapter implements the contract of `snakepit_core::adapter` and knows nothing of the other adapters. The crate `snakepit`
//! re-exports what users need.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "grpc")]
pub mod grpc;
#[cfg(feature = "http")]
pub mod http;
#[cfg(any(feature = "grpc", feature = "http", feature = "stdio"))]
#[cfg_attr(
    not(any(feature = "http", feature = "stdio", test)),
    expect(dead_code, reason = "the messages of gRPC have values in JSON, but no calls and errors")
)]
mod json;
#[cfg(feature = "announce")]
mod lines;
#[cfg(any(feature = "grpc", feature = "http"))]
mod listener;
pub mod mock;
mod pids;
#[cfg(feature = "announce")]
mod pipe_buffer;
mod program;
pub mod python;
#[cfg(feature = "announce")]
pub mod ready_line;
#[cfg(any(feature = "grpc", feature = "http"))]
mod secret;
#[cfg(any(feature = "grpc", feature = "http"))]
mod socket_dir;
#[cfg(feature = "stdio")]
pub mod stdio;
mod transport;

pub use program::Program;

/// Calls a function when dropped, even if the surrounding future is dropped before it completes.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Returns a call to a worker that takes one call at a time, and what is sent for it. A call that cannot be sent is
/// answered here.
#[cfg(any(feature = "http", feature = "stdio"))]
fn prepared<T>(
    call: call::Call,
    prepare: impl FnOnce(&call::Call) -> Result<T, value::ValueError>,
) -> Option<(call::Call, T)> {
    if let call::Input::Many(_) = call.input() {
        let message = "this worker takes one call at a time";
        call.finish(Err(call::RemoteError::new(call::RemoteErrorKind::Refused, message)));
        return None;
    }
    match prepare(&call) {
        Ok(prepared) => Some((call, prepared)),
        Err(source) => {
            let command = call.command().to_owned();
            call.fail(call::CallError::Arguments { command, source });
            None
        }
    }
}

use snakepit_core::adapter::{
    Adapter, CallAdmission, CancelStage, Credit, Handle, HeldCalls, Introduction, ItemDelivery,
    ProtocolFault, Reason, Spawner, StartError, StartKnowledge,
};
use snakepit_core::{adapter, call, error_text, worker};
use snakepit_custody as custody;
use snakepit_environments as environment;
use snakepit_protocol::{harmless, value};
use snakepit_telemetry as telemetry;
use snakepit_telemetry::logging;

/// Entry points for the fuzz targets.
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub mod fuzzing;

#[cfg(test)]
mod tests {
    mod errors;
}
