//! Start, run, stop and exit, in one predictable order.
//!
//! A [`script`] goes through the whole of it: resolve, start, await, run, shut down. What shuts engines down is in one place
//! ([`orchestrator`]), whether a script asks for it, a signal ([`ShutdownCoordinator`]), a call of
//! [`Snakepit::stop`](crate::Snakepit::stop) or the drop of the last handle.

mod coordinator;
mod exit;
mod failpoint;
mod global;
mod mode;
pub(crate) mod orchestrator;
mod script;
mod selection;
mod signals;

pub use coordinator::ShutdownCoordinator;
pub use exit::{exit, exit_now};
pub use mode::{ArgumentError, ExitMode, StopMode};
pub use script::{Script, ScriptError, script};
