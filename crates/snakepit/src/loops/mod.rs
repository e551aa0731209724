//! Loops: they take messages from a mailbox and handle them; what is in flight completes, what is not started is given back.
//!
//! [`Runnable`] is what every loop is. [`Control`] is how others speak to one, and the only state that they touch.

mod control;
mod heartbeat;
mod runnable;
mod scope;

pub use control::{Control, End, Intake, Orders, Run};
pub use heartbeat::Heartbeat;
pub use runnable::{LoopError, RunOptions, Runnable, SHUTDOWN_TIMEOUT};
pub use scope::Scope;
