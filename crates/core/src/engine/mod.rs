//! The engine: everything that one [`Snakepit`] runs.
//!
//! Owns how an engine is described, started, used and ended. Knows no protocol, no mailbox and no configuration file.
//! The steps of a shutdown belong to [`lifecycle`](crate::lifecycle). The files, in the order in which an engine passes
//! them:
//!
//! - `builder.rs`: pools, tools and settings, checked and started;
//! - `handle.rs`: what the user holds; dropping the last clone ends the engine;
//! - `running.rs`: the engine behind the handles, and the progress of its shutdown;
//! - `shutdown_report.rs`: what the shutdown did.

mod builder;
mod handle;
mod running;
mod shutdown_report;

pub use builder::{Builder, EngineError};
pub use handle::Snakepit;
pub(crate) use running::{Engine, EnginePhase};
pub use shutdown_report::ShutdownReport;
