//! The workers of a pool, as its supervisor lists them.

use std::sync::Arc;

use serde::Serialize;

use crate::adapter::ReplaceReason;

use crate::worker::Worker;
use snakepit_policy::Tainted;
use snakepit_policy::liveness::Liveness;

/// Whether a worker gets calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkerDuty {
    /// The worker serves.
    Serving,
    /// The worker serves until its replacement does.
    Due,
    /// An unfinished reload has replaced the worker. It has no calls, and serves again if the reload fails.
    Kept,
    /// The worker finishes its calls.
    Leaving,
}

/// What only the supervisor knows.
#[derive(Default)]
pub(crate) struct WorkerRows {
    pub(crate) generation: u64,
    pub(crate) target: usize,
    pub(crate) starting: usize,
    pub(crate) workers: Vec<WorkerRow>,
    pub(crate) tainted: Vec<Tainted>,
}

/// A worker in the supervisor's list.
pub(crate) struct WorkerRow {
    pub(crate) worker: Arc<Worker>,
    pub(crate) state: WorkerDuty,
    pub(crate) reason: Option<ReplaceReason>,
    pub(crate) liveness: Option<Liveness>,
}
