//! Trials: a call of which workers may have died is done by a worker that has no other call, so that it harms nobody, and
//! that its end says something about it.
//!
//! It goes to a worker that has nothing to do. If there is none, one with little work is chosen, which gets no more calls until
//! it has finished and done this one. Where every worker has a stream, which may have no end, it waits aside: others go
//! first, and it gets the first worker that has nothing to do.

use super::{Scheduler, WorkerEntry};
use crate::call::Call;
use crate::call::QueueKey;
use crate::call::state::CallPlace;

/// Whether a worker has, or waits for, a call that it does alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EntryTrial {
    None,
    /// It finishes what it has; then it gets this one.
    Awaited(QueueKey),
    Running,
}

impl EntryTrial {
    /// A call has left the worker. One that runs alone was it.
    pub(crate) fn is_over(&mut self) {
        if *self == Self::Running {
            *self = Self::None;
        }
    }
}

/// As much work as a stream is taken for.
const ENDLESS: u64 = u32::MAX as u64;

impl WorkerEntry {
    /// Whether it has nothing to do.
    pub(crate) fn is_free(&self) -> bool {
        self.held == 0 && self.guests.is_empty()
    }

    /// Whether it may have this call, as far as trials are concerned.
    pub(crate) fn is_fit_for(&self, call: &Call) -> bool {
        self.trial == EntryTrial::None && (!call.alone || self.is_free())
    }
}

impl Scheduler {
    /// The first in the queue that does not wait aside.
    pub(crate) fn first_in_line(&self) -> Option<QueueKey> {
        self.queue.iter().find(|(_, call)| !call.alone).map(|(key, _)| *key)
    }

    /// A call for which there is no place now.
    pub(crate) fn wait(&mut self, call: Call) {
        match call.alone.then(|| self.least_at_work()).flatten() {
            Some(index) if !call.key.is_nested() => self.await_trial(index, call),
            Some(_) | None => self.enqueue(call),
        }
    }

    /// The worker that has the least to do, if that has an end.
    fn least_at_work(&self) -> Option<usize> {
        let entries =
            self.entries.iter().enumerate().filter_map(|(index, entry)| Some((index, entry.as_ref()?)));
        let may = |entry: &WorkerEntry| {
            entry.takes_calls() && entry.trial == EntryTrial::None && entry.nanos < ENDLESS
        };
        entries.filter(|(_, entry)| may(entry)).min_by_key(|(_, entry)| entry.nanos).map(|(index, _)| index)
    }

    fn await_trial(&mut self, index: usize, call: Call) {
        let Some(entry) = self.entries[index].as_mut() else { return self.enqueue(call) };
        call.state.set_place(CallPlace::Queued(call.key));
        entry.trial = EntryTrial::Awaited(call.key);
        entry.bound.insert(call.key, call);
        self.bound += 1;
        self.relist(index);
    }

    /// The call that a worker is to do alone, once it has nothing else to do.
    pub(crate) fn next_on_trial(&mut self, index: usize, key: QueueKey) -> Option<Call> {
        let entry = self.entries[index].as_mut().filter(|entry| entry.is_free() && entry.takes_calls())?;
        let call = entry.bound.remove(&key)?;
        self.bound -= 1;
        Some(self.assign(index, call, false))
    }

    /// The call that a worker was to do alone is no longer bound to it.
    pub(crate) fn call_off_trial(&mut self, key: QueueKey) {
        let is_its = |entry: &Option<WorkerEntry>| {
            entry.as_ref().is_some_and(|it| it.trial == EntryTrial::Awaited(key))
        };
        if let Some(index) = self.entries.iter().position(is_its)
            && let Some(entry) = self.entries[index].as_mut()
        {
            entry.trial = EntryTrial::None;
            self.relist(index);
        }
    }

    /// A worker is stopped: a call that was to be alone with it waits for another one.
    pub(crate) fn move_trial(&mut self, index: usize) {
        let Some(entry) = self.entries[index].as_mut() else { return };
        if let EntryTrial::Awaited(key) = entry.trial {
            entry.trial = EntryTrial::None;
            if let Some(call) = entry.bound.remove(&key) {
                self.bound -= 1;
                self.wait(call);
            }
        }
    }
}
