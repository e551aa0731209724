//! What every loop is, and how other code controls it.
//!
//! Owns the state that a loop shares with other code. Knows no mailbox, no handler and no pool, so that any kind of
//! loop fits.
//!
//! - `runnable`: the trait of all loops, the options of a run, and why a run fails.
//! - `loop_orders`: the orders that a loop must follow.
//! - `control`: the handle that carries orders to a loop and the loop's state back.
//! - `loop_scope`: a loop in its own task, which ends when its scope is left.
//! - `signals`: ends a loop on the signals of the process.

mod control;
mod loop_orders;
mod loop_scope;
mod runnable;
mod signals;

pub use control::{Control, InFlight, InFlightGuard, RunGuard};
pub use loop_orders::{EndOrder, Intake, LoopOrders};
pub use loop_scope::LoopScope;
pub use runnable::{LoopError, RunOptions, Runnable, SHUTDOWN_TIMEOUT};
pub use signals::register_loop;
