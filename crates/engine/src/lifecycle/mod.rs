//! Start, run, stop and exit, in a fixed order.
//!
//! Owns what an engine means for its process: scripts, signals, the process-wide engine, the steps of a shutdown, and
//! the exit. Knows engines; of calls only their errors, and of workers only their processes. A host that runs no script
//! and installs no [`ShutdownCoordinator`] keeps its signal handlers.
//!
//! A [`script`] passes these files in this order:
//!
//! - `script.rs`: resolve, start, await, run; then the shutdown;
//! - `script_error.rs`: why a script failed;
//! - `mode.rs`, `selection.rs`: how the script ends its process, and which setting decides;
//! - `global.rs`: the process-wide engine, found or started;
//! - `signals.rs`, `coordinator.rs`: how a script reacts to signals, and what the first, second and third signal mean;
//! - `shutdown.rs`: the one way in which engines stop, for scripts, signals, [`Snakepit::stop`](crate::Snakepit::stop)
//!   and drops;
//! - `exit.rs`: the two ways out of a process;
//! - `failpoint.rs`: signals on demand at each step, for tests.

mod coordinator;
mod exit;
mod failpoint;
mod global;
mod mode;
mod script;
mod script_error;
mod selection;
pub(crate) mod shutdown;
mod signals;

pub use crate::blocking::Blocking;
pub use crate::custody::{Signal, exit_now};
pub use coordinator::{CallbackId, CoordinatorError, ShutdownCoordinator, Stage};
pub use exit::{EXIT_LIMIT, HookId, exit, forget, on_exit, set_exit_limit};
pub use mode::{ArgumentError, ExitMode, StopMode};
pub use script::{Script, script};
pub use script_error::ScriptError;
