//! Many loops that run, drain and end as one.
//!
//! Owns the list of loops, their priorities and the deadline of their end. It sees a loop as a [`Runnable`](crate::Runnable) only, and knows no mailbox.
//!
//! - `loop_group`: the loops of a group, and what others ask of it.
//! - `run`: the run of a group: loops that end, crash and are restarted.
//! - `crash_policy`: what a crash leads to.
//! - `shutdown_order`: in which order the loops end.

mod crash_policy;
mod loop_group;
mod run;
mod shutdown_order;

pub use crash_policy::CrashPolicy;
pub use loop_group::{GroupEnd, GroupError, LoopGroup, RemainingMessages};
