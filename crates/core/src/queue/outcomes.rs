//! Counts how calls ended. Each call, and each input of a map, is counted once.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::call::{CallError, ErrorClass};
use crate::sharded::Sharded;

/// How the calls of a pool have ended since the pool was started. Each call, and each input of a map, is counted in one
/// of these fields when its caller gets the outcome or goes away. [`retried`](Outcomes::retried) is not an end, and is
/// counted in addition.
///
/// ```no_run
/// # fn example(pool: snakepit::Pool) {
/// let outcomes = pool.outcomes();
/// let unanswered = outcomes.died + outcomes.timed_out + outcomes.queue_timed_out;
/// println!("{unanswered} of {} calls were not answered", outcomes.calls());
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Outcomes {
    /// Calls that were answered with a value, even if their callers could not use it.
    pub ok: u64,
    /// Calls that were answered with an error: the worker's code raised an exception, or the call did not fit the
    /// command.
    pub failed: u64,
    /// Calls that were lost with their worker.
    pub died: u64,
    /// Calls that a worker did not answer in time.
    pub timed_out: u64,
    /// Calls that no worker took in time.
    pub queue_timed_out: u64,
    /// Calls that were rejected because too many others waited.
    pub saturated: u64,
    /// Calls that were rejected for another reason, such as a quarantine, an open circuit, a busy session, or arguments
    /// that cannot be sent.
    pub refused: u64,
    /// Calls that their callers gave up.
    pub cancelled: u64,
    /// Calls that were given back because the pool stopped.
    pub stopped: u64,
    /// The number of times that a lost call was made again.
    pub retried: u64,
}

impl Outcomes {
    /// Returns how many calls have ended.
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
            // A value came, but it was not what the caller expected.
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

/// The counters of a pool. Each thread has counters of its own, so that counting the calls of one thread does not slow
/// down those of another.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    ends: Sharded<[AtomicU64; 9]>,
    retried: AtomicU64,
}

impl Tally {
    pub(crate) fn count(&self, outcome: CallOutcome) {
        self.count_all(outcome, 1);
    }

    pub(crate) fn count_all(&self, outcome: CallOutcome, calls: usize) {
        self.ends.own().1[outcome as usize].fetch_add(calls as u64, Ordering::Relaxed);
    }

    pub(crate) fn count_retry(&self) {
        self.retried.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Outcomes {
        let count = |outcome: CallOutcome| {
            self.ends.iter().map(|ends| ends[outcome as usize].load(Ordering::Relaxed)).sum()
        };
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
