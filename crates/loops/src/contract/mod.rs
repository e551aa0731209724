//! What every loop is, and how others speak to it.
//!
//! Owns the state that a loop shares with others. It knows no mailbox, no handler and no pool: a loop of any kind fits.
//!
//! - `runnable`: the trait of all loops, the options of a run, and why a run fails.
//! - `orders`: what others want of a loop.
//! - `control`: the handle that carries orders to a loop, and its state back.
//! - `scope`: a loop in a task of its own, which ends when its scope is left.
//! - `signals`: a loop that the signals of the process end.

mod control;
mod orders;
mod runnable;
mod scope;
mod signals;

pub use control::{Control, InFlight, InFlightGuard, RunGuard};
pub use orders::{EndOrder, Intake, LoopOrders};
pub use runnable::{LoopError, RunOptions, Runnable, SHUTDOWN_TIMEOUT};
pub use scope::LoopScope;
pub use signals::register_loop;
