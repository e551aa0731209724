//! Start, run, stop and exit, in one predictable order.
//!
//! A [`script`] goes through the whole of it: resolve, start, await, run, shut down. What shuts engines down is in one place
//! (`orchestrator.rs`), whether a script asks for it, a signal ([`ShutdownCoordinator`]), a call of
//! [`Snakepit::stop`](crate::Snakepit::stop) or the drop of the last handle. A host that neither runs a script nor installs
//! the coordinator keeps its signals as they are.

mod coordinator;
mod exit;
mod failpoint;
mod global;
mod mode;
pub(crate) mod orchestrator;
mod script;
mod selection;
mod signals;
pub(crate) mod stop_window;

pub use crate::custody::{Signal, exit_now};
pub use coordinator::{CallbackId, ShutdownCoordinator, SignalError, Stage};
pub use exit::{EXIT_LIMIT, HookId, exit, forget, on_exit, set_exit_limit};
pub use mode::{ArgumentError, ExitMode, StopMode};
pub use script::{Script, ScriptError, script};
