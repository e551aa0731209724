//! Workers whose processes are stopped, for example by SIGSTOP: they keep their calls, and get no more until they
//! continue.

use std::sync::Arc;

use super::Scheduler;
use crate::call::Call;
use crate::worker::Worker;

impl Scheduler {
    /// Pauses a worker whose process is stopped. Calls that only this worker may serve wait for it. Returns a call that
    /// waited for it and can begin at another worker.
    pub(crate) fn pause(&mut self, worker: &Arc<Worker>) -> Option<Call> {
        self.own_entry(worker)?.is_paused = true;
        self.reopen(worker.index);
        self.move_isolated(worker.index)
    }

    /// Resumes a worker whose process continues. [`Scheduler::next_for`] returns work for it.
    pub(crate) fn resume(&mut self, worker: &Arc<Worker>) {
        let Some(entry) = self.own_entry(worker) else { return };
        entry.is_paused = false;
        self.list_asker(worker.index);
        self.reopen(worker.index);
    }
}
