//! How loops show that they are alive, and what happens if they are not.
//!
//! Owns signs of life and the limits for them. It sees a loop through its control only.
//!
//! - `heartbeat`: when a loop was last alive.
//! - `loop_health`: the state of one loop, as probes show it.
//! - `watchdog`: a thread that reports stuck loops, restarts them or ends the process.
//! - `health_server`: probes over HTTP.

#[cfg(feature = "health")]
mod health_server;
mod heartbeat;
mod loop_health;
mod watchdog;

#[cfg(feature = "health")]
pub use health_server::HealthServer;
pub use heartbeat::Heartbeat;
pub use loop_health::{LoopHealth, MessageHealth};
pub(crate) use watchdog::WatchdogGuard;
pub use watchdog::{IfStuck, Watchdog};
