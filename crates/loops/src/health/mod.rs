//! How loops show that they are alive, and what happens if they do not.
//!
//! Owns the signs of life and their limits. Sees a loop only through its control.
//!
//! - `heartbeat`: the time of a loop's last sign of life.
//! - `loop_health`: the state of one loop, as probes show it.
//! - `watchdog`: a thread that reports stuck loops, restarts them, or ends the process.
//! - `health_server`: probes over HTTP.

#[cfg(feature = "health")]
mod health_server;
mod heartbeat;
mod loop_health;
mod watchdog;

#[cfg(feature = "health")]
pub use health_server::HealthServer;
pub use heartbeat::Heartbeat;
pub(crate) use heartbeat::real_now;
pub use loop_health::{LoopHealth, MessageHealth};
pub(crate) use watchdog::WatchdogGuard;
pub use watchdog::{IfStuck, Watchdog};
