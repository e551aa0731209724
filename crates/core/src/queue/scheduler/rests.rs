//! Workers that get no new call although they could do one: those that a reload has replaced and may want back, and those that
//! are worn beyond measure. What they have they finish.

use std::sync::Arc;

use super::Scheduler;
use super::trials::EntryTrial;
use crate::call::Call;
use crate::worker::Worker;

/// Whether a worker gets calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WorkerRest {
    None,
    /// It is worn, and its replacement is on its way.
    Worn,
    /// It has been replaced. Nobody counts it among those that serve.
    Aside,
}

impl Scheduler {
    /// It gets no more calls. Gives those that were bound to it, for the others.
    pub(crate) fn set_aside(&mut self, worker: &Arc<Worker>) -> Vec<Call> {
        self.rest(worker, WorkerRest::Aside)
    }

    /// As [`Scheduler::set_aside`], for one that still counts.
    pub(crate) fn lay_off(&mut self, worker: &Arc<Worker>) -> Vec<Call> {
        self.rest(worker, WorkerRest::Worn)
    }

    fn rest(&mut self, worker: &Arc<Worker>, rest: WorkerRest) -> Vec<Call> {
        let Some(entry) = self.own_entry(worker) else { return Vec::new() };
        entry.rest = rest;
        if let EntryTrial::Awaited(_) = entry.trial {
            entry.trial = EntryTrial::None;
        }
        let bound = std::mem::take(&mut entry.bound);
        self.bound -= bound.len();
        self.relist(worker.index);
        bound.into_values().collect()
    }

    /// It gets calls again. Work for it is had by [`Scheduler::next_for`].
    pub(crate) fn take_back(&mut self, worker: &Arc<Worker>) {
        let Some(entry) = self.own_entry(worker) else { return };
        entry.rest = WorkerRest::None;
        self.list_asker(worker.index);
        self.relist(worker.index);
    }

    /// Those that serve, or are about to again.
    pub(crate) fn workers(&self) -> impl Iterator<Item = &Arc<Worker>> {
        self.entries
            .iter()
            .flatten()
            .filter(|entry| entry.rest != WorkerRest::Aside)
            .map(|entry| &entry.worker)
    }
}
