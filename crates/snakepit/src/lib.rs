//! Pools of external worker processes for a Rust host: one file of Python, one line of Rust.
//!
//! ```no_run
//! use snakepit::{Snakepit, args, python};
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pit = Snakepit::builder().pool(python("worker.py").workers(4)).start().await?;
//! let sum: i64 = pit.call("add", args! { a: 1, b: 2 }).await?;
//! # Ok(()) }
//! ```
//!
//! Depend on this crate alone. It re-exports what users need from the crates below it, one module for each topic, and
//! it builds engines from a [file](Config). There is no prelude: a first program needs the three names above, and the
//! root has the others that every program meets.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod adapter;
pub mod call;
#[cfg(feature = "config")]
pub mod config;
pub mod policy;
pub mod pool;
pub mod telemetry;
pub mod value;

pub use snakepit_custody as custody;
pub use snakepit_engine::lifecycle;
pub use snakepit_environments as environment;
pub use snakepit_environments::hardware;
#[cfg(feature = "evals")]
pub use snakepit_evals as evals;
#[cfg(feature = "loops")]
pub use snakepit_loops as loops;
#[cfg(feature = "mailbox")]
pub use snakepit_mailbox as mailbox;
#[cfg(feature = "conformance")]
pub use snakepit_testing::{adapters as conformance, conformance_tests, first_conformance_tests};
#[cfg(all(feature = "conformance", feature = "mailbox"))]
pub use snakepit_testing::{mailbox_conformance_tests, mailboxes as mailbox_conformance};

#[cfg(feature = "grpc")]
pub use snakepit_adapters::grpc::pool as grpc;
#[cfg(feature = "http")]
pub use snakepit_adapters::http::pool as http;
pub use snakepit_adapters::mock::pool as mock;
pub use snakepit_adapters::python::{command_pool as command, pool as python};
#[cfg(feature = "stdio")]
pub use snakepit_adapters::stdio::pool as stdio;

#[cfg(feature = "config")]
pub use config::{Config, ConfigError};
pub use snakepit_core::{CallError, Pool, PoolOptions, RemoteError, StartError};
pub use snakepit_engine::{
    Builder, EngineError, Script, ScriptError, ShutdownCoordinator, ShutdownReport, Snakepit, script,
};
pub use snakepit_protocol::args;
pub use value::Value;

#[cfg(all(test, feature = "config"))]
mod tests {
    mod errors;
}
