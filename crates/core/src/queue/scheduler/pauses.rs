//! Workers whose processes are stopped, as by SIGSTOP: they keep what they have, and get no more until they go on.

use std::sync::Arc;

use super::Scheduler;
use crate::worker::Worker;

impl Scheduler {
    /// A worker is stopped. Calls that only it may serve wait for it.
    pub(crate) fn pause(&mut self, worker: &Arc<Worker>) {
        let Some(entry) = self.own_entry(worker) else { return };
        entry.is_paused = true;
        self.move_trial(worker.index);
        self.relist(worker.index);
    }

    /// It goes on. Work for it is had by [`Scheduler::next_for`].
    pub(crate) fn resume(&mut self, worker: &Arc<Worker>) {
        let Some(entry) = self.own_entry(worker) else { return };
        entry.is_paused = false;
        self.list_asker(worker.index);
        self.relist(worker.index);
    }
}
