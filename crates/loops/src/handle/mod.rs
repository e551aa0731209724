//! What handles a message, and with which result.
//!
//! Owns the run of a handler: its task, its span, its panic and its heartbeat. Does not decide what happens to the
//! message.
//!
//! - `handler_task`: handles one message after another.
//! - `main_loop`: passes messages to a handler in Rust.
//! - `pool_loop_options`, `pool_loop`: passes messages to a command of a pool.
//! - `message_heartbeat`: how a handler reports progress of its message.
//! - `failure`: the failure of a handler, with the names that policies match.

mod failure;
mod handler_task;
mod main_loop;
mod message_heartbeat;
mod pool_loop;
mod pool_loop_options;

pub use failure::{Boxed, Converted, HandlerFailure, IntoFailure};
pub(crate) use handler_task::{NO_WORKERS, handle_all};
pub use main_loop::MainLoop;
pub use message_heartbeat::{Beats, beat};
pub use pool_loop::PoolLoop;
pub use pool_loop_options::PoolLoopOptions;
