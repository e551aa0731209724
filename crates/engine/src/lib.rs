//! Engines: everything that one [`Snakepit`] runs, and what its start and end mean for the process.
//!
//! Knows pools, hands out the builders of their calls, and ends their processes through custody. Knows no protocols,
//! mailboxes or configuration files. An engine passes these files in this order:
//!
//! - `builder.rs`: pools, tools and settings, checked and started;
//! - `handle.rs`: what the user holds; dropping the last clone ends the engine;
//! - `blocking.rs`: the same for hosts without a runtime;
//! - `running.rs`: the engine behind the handles, and the progress of its end;
//! - [`lifecycle`]: scripts, signals, the steps of a shutdown, and the exit of the process;
//! - `shutdown_report.rs`: what the shutdown did.
//!
//! The crate `snakepit` re-exports what users need.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod blocking;
mod builder;
mod handle;
pub mod lifecycle;
mod running;
mod shutdown_report;

use snakepit_core::{CallError, StartError, error_text, pool, tool};
use snakepit_custody as custody;
use snakepit_telemetry as telemetry;
use snakepit_telemetry::logging;

pub use builder::{Builder, EngineError};
pub use handle::Snakepit;
pub use lifecycle::{Script, ScriptError, ShutdownCoordinator, script};
pub use shutdown_report::ShutdownReport;

#[cfg(test)]
mod tests {
    mod errors;
}
