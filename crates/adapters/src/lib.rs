//! The kinds of workers that Snakepit knows, one module each: how they are started, spoken to and ended.
//!
//! [`python`] is anything that speaks spec/wire.md over a socket, `stdio` lines of JSON, `http` routes, `grpc` anything that speaks
//! spec/snakepit.proto, [`mock`] closures of the host. `announce` reads the line by which those of other protocols say that they are ready, `listener`
//! proves whose port it is. Each fulfils the contract of `snakepit_core::adapter` and knows nothing of the others. The crate `snakepit`
//! shows users what they need of it.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "announce")]
pub mod announce;
#[cfg(feature = "grpc")]
pub mod grpc;
#[cfg(any(feature = "grpc", feature = "http"))]
mod home;
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
mod program;
pub mod python;
#[cfg(any(feature = "grpc", feature = "http"))]
mod secret;
#[cfg(feature = "stdio")]
pub mod stdio;
mod transport;

pub use program::Program;

/// Calls a function when it is dropped, also where a future is dropped before its end.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

use snakepit_core::adapter::{
    Adapter, Begun, CancelStage, Credit, Handle, HeldCalls, Introduction, Reason, Spawner, StartError,
    Starts, Streamed,
};
use snakepit_core::{adapter, call, causes, worker};
use snakepit_custody as custody;
use snakepit_environments as environment;
use snakepit_protocol::{harmless, value};
use snakepit_telemetry as telemetry;
use snakepit_telemetry::logging;

/// What the fuzz targets need of this.
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub mod fuzzing;
