//! Custody of worker processes: no worker, and nothing that it starts, outlives its owner.
//!
//! [`Run::open`] clears what dead hosts left behind, starts the keeper and gives back the run.
//! [`Run::spawn`] starts a [`Command`] below the keeper, recorded before its first instruction.
//! [`Run::stop`] ends everything, bounded in time, and says who is left if anybody is.
//! When the host dies instead, however it dies, the keeper and the shims do the same without it.
//!
//! Synchronous and free of any runtime; [`Worker::exited`] is a plain future for those who have one.

#[cfg(windows)]
compile_error!("snakepit keeps custody by Unix process groups, sessions and pidfds; Windows is not supported");

mod command;
mod config;
mod event;
mod id;
mod stub;
pub use stub::*;

pub use command::{Command, MAX_HANDED_FDS, Rlimit, Stdio, TerminalUse};
pub use config::{Config, Containment, LedgerSync, Session, Tier};
pub use event::{Event, Events, Level};
pub use id::{InvalidId, Pgid, Pid, RunId, WorkerId};
