//! Workers that get no new calls although they could serve: workers that a reload has replaced and may restore, and
//! workers far beyond their term. They finish the calls they have.

use std::sync::Arc;

use super::Scheduler;
use super::isolated_calls::Isolation;
use crate::call::Call;
use crate::worker::Worker;

/// Why a worker gets no new calls, if it gets none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DrainReason {
    None,
    /// The worker is far beyond its term, and a replacement is on the way.
    Worn,
    /// A reload has replaced the worker. It does not count as serving.
    Replaced,
}

impl Scheduler {
    /// Stops giving calls to a worker, which no longer counts as serving. Returns the calls that were bound to it, for
    /// other workers to serve.
    pub(crate) fn drain_replaced(&mut self, worker: &Arc<Worker>) -> Vec<Call> {
        self.drain_worker(worker, DrainReason::Replaced)
    }

    /// Like [`Scheduler::drain_replaced`], but the worker still counts as serving.
    pub(crate) fn drain_worn(&mut self, worker: &Arc<Worker>) -> Vec<Call> {
        self.drain_worker(worker, DrainReason::Worn)
    }

    fn drain_worker(&mut self, worker: &Arc<Worker>, reason: DrainReason) -> Vec<Call> {
        let Some(entry) = self.own_entry(worker) else { return Vec::new() };
        entry.drain = reason;
        if let Isolation::Awaited(_) = entry.isolation {
            entry.isolation = Isolation::None;
        }
        let bound = std::mem::take(&mut entry.bound);
        self.bound -= bound.len();
        self.reopen(worker.index);
        bound.into_values().collect()
    }

    /// Lets a worker take calls again. [`Scheduler::next_for`] returns work for it.
    pub(crate) fn end_drain(&mut self, worker: &Arc<Worker>) {
        let Some(entry) = self.own_entry(worker) else { return };
        entry.drain = DrainReason::None;
        self.list_asker(worker.index);
        self.reopen(worker.index);
    }

    /// Returns all workers except those that a reload has replaced.
    pub(crate) fn workers(&self) -> impl Iterator<Item = &Arc<Worker>> {
        self.entries
            .iter()
            .flatten()
            .filter(|entry| entry.drain != DrainReason::Replaced)
            .map(|entry| &*entry.worker)
    }
}
