//! Pools as their users hold them: workers of one kind behind a queue.
//!
//! `handle` is a running pool, `set` the pools of one engine, and `status` what a pool shows of itself. The state of a
//! pool is in `queue`, what it was asked to be in `options`, and who starts and ends its workers in `supervisor`.

mod handle;
mod set;
pub(crate) mod status;
mod testing;

pub use crate::options::{Affinity, CancelGrace, LostSessions, PoolOptions, PoolSettings, WarmUp};
pub use crate::queue::{Outcomes, PoolHealth};
pub use crate::supervisor::WorkerDuty;
pub use crate::worker::AUTOPSY_PATIENCE;
pub use handle::Pool;
pub use set::{FirstStart, PoolSet};
pub use status::{
    CallAtWork, CommandGrowth, HealthAnswer, PoolStatus, TaintedSlot, WorkerInfo, WorkerLiveness, WorkerSlot,
    WorkerStatus,
};
#[doc(hidden)]
pub use testing::WatchedWorker;
