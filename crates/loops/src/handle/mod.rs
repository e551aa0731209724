//! Who handles a message, and what came of it.
//!
//! Owns the run of a handler: its task, its span, its panic, its heartbeat. It does not decide what becomes of the message.
//!
//! - `handler_task`: handles one message after another.
//! - `main_loop`: messages go to a handler in Rust.
//! - `pool_loop_options`, `pool_loop`: messages go to a command of a pool.
//! - `message_heartbeat`: how a handler reports that its message makes progress.
//! - `failure`: why a handling failed, by the names that policies know.

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
