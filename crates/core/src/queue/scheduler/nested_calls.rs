//! Lent places: a call that waits for a tool of the host does nothing, so a nested call may be served in its place.

use std::sync::Arc;

use super::Scheduler;
use crate::call::CallId;
use crate::worker::Worker;

impl Scheduler {
    /// Records that a call of this worker waits for a tool. Its place may serve a nested call meanwhile.
    pub(crate) fn asks(&mut self, worker: &Arc<Worker>, call: CallId) {
        let Some(entry) = self.own_entry(worker) else { return };
        match entry.asking.iter_mut().find(|(asker, _)| *asker == call) {
            Some((_, tools)) => *tools += 1,
            None => entry.asking.push((call, 1)),
        }
        self.list_asker(worker.index);
        self.reopen(worker.index);
    }

    /// Records that a tool has answered.
    pub(crate) fn answered(&mut self, worker: &Arc<Worker>, call: CallId) {
        let Some(entry) = self.own_entry(worker) else { return };
        if let Some((_, tools)) = entry.asking.iter_mut().find(|(asker, _)| *asker == call) {
            *tools -= 1;
        }
        entry.asking.retain(|(_, tools)| *tools > 0);
        self.reopen(worker.index);
    }

    /// Lists a worker that can lend a place. A worker is listed once, however many of its calls wait for tools.
    pub(crate) fn list_asker(&mut self, index: usize) {
        let lends = self.lends(index);
        let Some(entry) = self.entries[index].as_mut() else { return };
        if lends && !std::mem::replace(&mut entry.listed_asking, true) {
            self.askers.push_back(index);
        }
    }

    /// Reports whether a nested call may take the place of a call that waits for a tool.
    pub(crate) fn lends(&self, index: usize) -> bool {
        let Some(entry) = self.entry(index).filter(|entry| !entry.is_paused) else { return false };
        let asks = |call: &CallId| entry.asking.iter().any(|(asker, _)| asker == call);
        match (entry.worker.concurrency, entry.guests.last()) {
            (1, None) => !entry.asking.is_empty(),
            // A single thread runs its calls on one stack, so only the topmost call counts. A call below it may have
            // its answer, but cannot go on before the calls above it have ended.
            (1, Some(top)) => asks(top),
            _ => entry.worker.places.calls() < entry.worker.places.places() + entry.asking.len(),
        }
    }
}
