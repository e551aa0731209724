//! The shim: one per worker, its init.
//!
//! Owns one worker and everything that the worker starts. It creates the process that becomes the worker, reaps what
//! the worker abandons, and ends only when no process is left. It must not depend on other processes: if host or keeper
//! are gone, it does the same work without them.
//!
//! In the order of a shim's life: `start` → `namespace` (in the tier of that name) → `launch` (from clone to exec) →
//! `watch` (until the end). `messages` defines the messages between shim and keeper.

mod launch;
mod messages;
mod namespace;
mod start;
mod watch;

pub(crate) use launch::{InheritedSignals, KEEPER_IGNORES, ORDERS_IN_DESCRIPTOR, ORDERS_INLINE};
pub(crate) use messages::{FromShim, ToShim};
pub(crate) use namespace::{clone_flags, probe_namespace};
pub(crate) use start::{RunDescriptors, ShimOptions, run};
pub(crate) use watch::PROCESSES_LEFT;
