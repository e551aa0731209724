//! Trials: a call that workers may have died of runs on a worker that has no other call. So it harms no other call, and
//! its end says something about this call alone.
//!
//! A trial goes to an idle worker. If there is none, the worker with the least work is chosen, which gets no more calls
//! until it has finished its work and the trial. If every worker has a stream, which may have no end, the trial waits
//! in the queue: other calls go first, and the trial gets the first worker that becomes idle.

use super::{Scheduler, WorkerEntry};
use crate::call::Call;
use crate::call::QueueKey;
use crate::queue::OfferResult;

/// Whether a worker runs, or waits for, a call that must run alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Isolation {
    None,
    /// The worker finishes its calls, then gets this one.
    Awaited(QueueKey),
    Running,
}

impl Isolation {
    /// Records that a call has left the worker. A running trial is the worker's only call, so it has ended.
    pub(crate) fn is_over(&mut self) {
        if *self == Self::Running {
            *self = Self::None;
        }
    }
}

/// The work that a stream counts for, in nanoseconds.
const ENDLESS: u64 = u32::MAX as u64;

impl WorkerEntry {
    /// Reports whether the worker has no calls.
    pub(crate) fn is_free(&self) -> bool {
        self.worker.places.calls() == 0
    }
}

impl Scheduler {
    /// Returns the key of the first queued call that is not a trial.
    pub(crate) fn first_not_isolated(&self) -> Option<QueueKey> {
        self.queue.iter().find(|(_, call)| !call.alone).map(|(key, _)| *key)
    }

    /// Takes a worker without calls for a trial.
    pub(crate) fn take_alone(&mut self) -> Option<usize> {
        (0..self.entries.len()).find(|index| self.take_alone_at(*index))
    }

    /// Takes this worker for a trial if it has no calls.
    pub(crate) fn take_alone_at(&mut self, index: usize) -> bool {
        let may = |entry: &&mut WorkerEntry| entry.takes_calls() && entry.isolation == Isolation::None;
        let Some(entry) = self.entries[index].as_mut().filter(may) else { return false };
        // The worker is closed first, so that it gets no call meanwhile.
        entry.isolation = Isolation::Running;
        entry.worker.places.open(entry.open_places());
        let is_taken = entry.guests.is_empty() && entry.worker.places.take(1).is_some();
        if !is_taken {
            entry.isolation = Isolation::None;
            self.reopen(index);
        }
        is_taken
    }

    /// Queues a call that has no place now. A trial waits at the worker with the least work instead, if there is one
    /// and the call is not nested.
    pub(crate) fn wait(&mut self, call: Call) -> OfferResult {
        match call.alone.then(|| self.least_at_work()).flatten() {
            Some(index) if !call.key.is_nested() => self.await_trial(index, call),
            Some(_) | None => {
                self.enqueue(call);
                OfferResult::Queued
            }
        }
    }

    /// Returns the worker with the least work, unless all workers have work without an end.
    fn least_at_work(&self) -> Option<usize> {
        let entries =
            self.entries.iter().enumerate().filter_map(|(index, entry)| Some((index, entry.as_ref()?)));
        let may = |entry: &WorkerEntry| {
            entry.takes_calls() && entry.isolation == Isolation::None && entry.worker.places.nanos() < ENDLESS
        };
        let least =
            entries.filter(|(_, entry)| may(entry)).min_by_key(|(_, entry)| entry.worker.places.nanos());
        least.map(|(index, _)| index)
    }

    fn await_trial(&mut self, index: usize, call: Call) -> OfferResult {
        if let Some(entry) = self.entries[index].as_mut() {
            entry.isolation = Isolation::Awaited(call.key);
        }
        self.bind(index, call)
    }

    /// Returns the call that a worker must run alone, once the worker has no other calls.
    pub(crate) fn next_isolated(&mut self, index: usize, key: QueueKey) -> Option<Call> {
        let entry = self.entries[index].as_mut().filter(|entry| entry.is_free() && entry.takes_calls())?;
        // The worker is closed, so it has got no call meanwhile.
        let beside = entry.worker.places.take(1)?;
        let call = entry.bound.remove(&key)?;
        self.bound -= 1;
        entry.isolation = Isolation::Running;
        Some(self.assign(index, call, Some(beside)))
    }

    /// Ends the wait of a worker for a trial that is no longer bound to it.
    pub(crate) fn cancel_isolation(&mut self, key: QueueKey) {
        let is_its = |entry: &Option<WorkerEntry>| {
            entry.as_ref().is_some_and(|it| it.isolation == Isolation::Awaited(key))
        };
        if let Some(index) = self.entries.iter().position(is_its)
            && let Some(entry) = self.entries[index].as_mut()
        {
            entry.isolation = Isolation::None;
            self.reopen(index);
        }
    }

    /// Moves the trial that a stopped worker waits for to another worker. Returns the trial if that worker can begin it.
    pub(crate) fn move_isolated(&mut self, index: usize) -> Option<Call> {
        let entry = self.entries[index].as_mut()?;
        let Isolation::Awaited(key) = entry.isolation else { return None };
        entry.isolation = Isolation::None;
        let call = entry.bound.remove(&key)?;
        self.bound -= 1;
        match self.wait(call) {
            OfferResult::Now(call) => Some(call),
            OfferResult::Queued
            | OfferResult::Saturated(..)
            | OfferResult::Busy(_)
            | OfferResult::Closed(_) => None,
        }
    }
}
