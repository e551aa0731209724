//! The shim: one per worker, its init.
//!
//! Owns one worker and everything that it starts: it makes the process that becomes the worker, reaps what the worker
//! abandons, and ends only when nobody is left. It must not depend on anybody: when host or keeper are gone, it does the same
//! by itself.
//!
//! In the order of its life: `start` → `namespace` (in the tier of that name) → `launch` (from clone to exec) → `watch` (until
//! the end). `messages` is what shim and keeper say to each other.

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
