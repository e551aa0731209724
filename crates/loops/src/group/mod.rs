//! Many loops that run, drain and end as one.
//!
//! Owns the list of loops, their priorities and the deadline for their end. Sees a loop only as a
//! [`Runnable`](crate::Runnable), and knows no mailbox.
//!
//! - `loop_group`: the loops of a group, and the methods that control them.
//! - `run`: the run of a group: loops that end, crash and are restarted.
//! - `crash_policy`: what happens after a crash.
//! - `shutdown_order`: the order in which the loops end.

mod crash_policy;
mod loop_group;
mod run;
mod shutdown_order;

pub use crash_policy::CrashPolicy;
pub use loop_group::{GroupEnd, GroupError, LoopGroup, RemainingMessages};
