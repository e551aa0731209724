//! How a process that uses the library ends: what its signals mean, and the two ways out.
//!
//! Nothing here happens by itself: a host that never installs the [`ShutdownCoordinator`] keeps its signals as they are.

mod coordinator;
mod exit;

pub use crate::custody::{Signal, exit_now};
pub use coordinator::{CallbackId, ShutdownCoordinator, SignalError, Stage};
pub use exit::{EXIT_LIMIT, HookId, exit, forget, on_exit, set_exit_limit};
