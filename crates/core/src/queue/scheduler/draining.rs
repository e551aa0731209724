//! Workers that get no new calls although they could serve: workers that a reload has replaced and may restore, and
//! workers far beyond their term. They finish the calls they have.

use std::sync::Arc;

use super::Scheduler;
use super::isolated_calls::EntryTrial;
use crate::call::Call;
use crate::worker::Worker;

/// Whether a worker gets calls, and why not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WorkerRest {
    None,
    /// The worker is far beyond its term, and a replacement is on the way.
    Worn,
    /// A reload has replaced the worker. It does not count as serving.
    Aside,
}

impl Scheduler {
    /// Stops giving calls to a worker, which no longer counts as serving. Returns the calls that were bound to it, for
    /// other workers to serve.
    pub(crate) fn set_aside(&mut self, worker: &Arc<Worker>) -> Vec<Call> {
        self.rest(worker, WorkerRest::Aside)
    }

    /// Like [`Scheduler::set_aside`], but the worker still counts as serving.
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

    /// Lets a worker take calls again. [`Scheduler::next_for`] returns work for it.
    pub(crate) fn take_back(&mut self, worker: &Arc<Worker>) {
        let Some(entry) = self.own_entry(worker) else { return };
        entry.rest = WorkerRest::None;
        self.list_asker(worker.index);
        self.relist(worker.index);
    }

    /// Returns all workers except those that a reload has set aside.
    pub(crate) fn workers(&self) -> impl Iterator<Item = &Arc<Worker>> {
        self.entries
            .iter()
            .flatten()
            .filter(|entry| entry.rest != WorkerRest::Aside)
            .map(|entry| &entry.worker)
    }
}
