//! How calls ended, counted. Each call, and each input of a map, is counted once.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::call::{CallError, ErrorClass};

/// How the calls of a pool have ended since it was started. Each call, and each input of a map, is counted in one of
/// these when its caller is told, or goes away; [`retried`](Outcomes::retried) is no end, and is counted besides.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Outcomes {
    /// Answered with a value, whatever the caller made of it.
    pub ok: u64,
    /// Answered with an error: the worker's code raised, or the call did not fit the command.
    pub failed: u64,
    /// Lost with their worker.
    pub died: u64,
    /// Not answered in time by a worker.
    pub timed_out: u64,
    /// Not taken by a worker in time.
    pub queue_timed_out: u64,
    /// Refused, because too many others waited.
    pub saturated: u64,
    /// Refused for another reason: quarantined, circuit open, session busy, arguments that cannot be sent.
    pub refused: u64,
    /// Given up by their callers.
    pub cancelled: u64,
    /// Given back, because the pool stopped.
    pub stopped: u64,
    /// How often a lost call was made again.
    pub retried: u64,
}

impl Outcomes {
    /// How many calls have ended.
    pub fn calls(&self) -> u64 {
        let Self {
            ok,
            failed,
            died,
            timed_out,
            queue_timed_out,
            saturated,
            refused,
            cancelled,
            stopped,
            retried: _,
        } = self;
        ok + failed + died + timed_out + queue_timed_out + saturated + refused + cancelled + stopped
    }
}

/// How a call ended, as it is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallOutcome {
    Ok,
    Failed,
    Died,
    TimedOut,
    QueueTimedOut,
    Saturated,
    Refused,
    Cancelled,
    Stopped,
}

impl CallOutcome {
    pub(crate) fn of(error: &CallError) -> Self {
        match error.class() {
            // A value came.
            ErrorClass::Answered if error.remote().is_none() => Self::Ok,
            ErrorClass::Answered => Self::Failed,
            ErrorClass::Died => Self::Died,
            ErrorClass::TimedOut => Self::TimedOut,
            ErrorClass::Unserved => Self::QueueTimedOut,
            ErrorClass::Saturated => Self::Saturated,
            ErrorClass::Later | ErrorClass::Refused => Self::Refused,
            ErrorClass::Cancelled => Self::Cancelled,
            ErrorClass::Stopped => Self::Stopped,
        }
    }
}

/// The counters of a pool.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    fates: [AtomicU64; 9],
    retried: AtomicU64,
}

impl Tally {
    pub(crate) fn count(&self, outcome: CallOutcome) {
        self.fates[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_retry(&self) {
        self.retried.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Outcomes {
        let count = |outcome: CallOutcome| self.fates[outcome as usize].load(Ordering::Relaxed);
        Outcomes {
            ok: count(CallOutcome::Ok),
            failed: count(CallOutcome::Failed),
            died: count(CallOutcome::Died),
            timed_out: count(CallOutcome::TimedOut),
            queue_timed_out: count(CallOutcome::QueueTimedOut),
            saturated: count(CallOutcome::Saturated),
            refused: count(CallOutcome::Refused),
            cancelled: count(CallOutcome::Cancelled),
            stopped: count(CallOutcome::Stopped),
            retried: self.retried.load(Ordering::Relaxed),
        }
    }
}
