//! Loops: they take messages from a mailbox and handle them; what is in flight completes, what is not started is given back.
//!
//! [`Runnable`] is what every loop is. [`Control`] is how others speak to one, and the only state that they touch.
//! [`MainLoop`] gives messages to a handler, [`PoolLoop`] to a command of a pool, and a [`LoopGroup`] runs many of them. A message travels `engine` → handler → `settle`; `hand` has those under way, and `door` knows
//! whether a pool can take them.

mod beats;
mod control;
mod door;
mod engine;
mod extending;
pub(crate) mod failpoint;
mod failure;
mod group;
mod hand;
mod handling;
#[cfg(feature = "health")]
mod health;
mod heartbeat;
mod lease_thread;
mod main_loop;
mod pool_loop;
mod runnable;
mod scope;
mod settle;
mod signals;
mod trouble;
mod watchdog;
mod window;

pub use beats::{Beats, beat};
pub use control::{Control, End, Holding, InHand, Intake, Orders, Run};
pub use failure::{Boxed, Converted, Failure, IntoFailure};
pub use group::{CrashPolicy, GroupEnd, GroupError, Left, LoopGroup, LoopHealth, MessageHealth};
#[cfg(feature = "health")]
pub use health::HealthServer;
pub use heartbeat::Heartbeat;
pub use main_loop::MainLoop;
pub use pool_loop::{PoolLoop, PoolLoopOptions};
pub use runnable::{LoopError, RunOptions, Runnable, SHUTDOWN_TIMEOUT};
pub use scope::Scope;
pub use settle::{ERROR_ATTRIBUTE, GiveUp, Replies};
pub use watchdog::{IfStuck, Watchdog};
