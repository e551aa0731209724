//! From a command to a worker: checks, the request to the keeper, and its answer.
//!
//! Owns [`Command`](command::Command), the checks that need no process, and the errors of a spawn. It must not know how
//! a process is created: that belongs to the keeper (`keeper/spawn.rs`, `keeper/shim/`).
//!
//! In the order of a spawn: `command` → `prepare` → `request` → `error`, if the spawn failed.

pub(crate) mod command;
pub(crate) mod error;
pub(crate) mod prepare;
pub(crate) mod request;
