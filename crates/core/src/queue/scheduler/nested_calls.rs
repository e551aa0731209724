//! Places that are lent: a call that waits for a tool of the host does nothing, and a nested call may be served in its place.

use std::sync::Arc;

use super::Scheduler;
use crate::call::CallId;
use crate::worker::Worker;

impl Scheduler {
    /// A call of this worker waits for a tool: its place may serve a nested call meanwhile.
    pub(crate) fn asks(&mut self, worker: &Arc<Worker>, call: CallId) {
        let Some(entry) = self.own_entry(worker) else { return };
        match entry.asking.iter_mut().find(|(asker, _)| *asker == call) {
            Some((_, tools)) => *tools += 1,
            None => entry.asking.push((call, 1)),
        }
        self.list_asker(worker.index);
    }

    /// The tool has answered.
    pub(crate) fn answered(&mut self, worker: &Arc<Worker>, call: CallId) {
        let Some(entry) = self.own_entry(worker) else { return };
        if let Some((_, tools)) = entry.asking.iter_mut().find(|(asker, _)| *asker == call) {
            *tools -= 1;
        }
        entry.asking.retain(|(_, tools)| *tools > 0);
    }

    /// A entry is listed once, however many of its calls wait for tools.
    pub(crate) fn list_asker(&mut self, index: usize) {
        let lends = self.lends(index);
        let Some(entry) = self.entries[index].as_mut() else { return };
        if lends && !std::mem::replace(&mut entry.listed_asking, true) {
            self.askers.push_back(index);
        }
    }

    /// Whether a nested call may have the place of one that waits for a tool.
    pub(crate) fn lends(&self, index: usize) -> bool {
        let Some(entry) = self.entry(index).filter(|entry| !entry.is_paused) else { return false };
        let asks = |call: &CallId| entry.asking.iter().any(|(asker, _)| asker == call);
        match (entry.worker.concurrency, entry.guests.last()) {
            (1, None) => !entry.asking.is_empty(),
            // One thread: its calls stand on one another, and only the one on top counts. One below may have its answer,
            // and cannot go on before those above it have ended.
            (1, Some(top)) => asks(top),
            _ => entry.held + entry.guests.len() < entry.places + entry.asking.len(),
        }
    }
}
