//! The gate of the scheduler: which calls it still takes, and how it closes.

use super::Scheduler;
use crate::call::Call;

/// Which calls the scheduler still takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum QueueGate {
    Open,
    /// Only nested calls, because calls that are under way need them to finish.
    Closing,
    Shut,
}

impl Scheduler {
    pub(crate) fn admits(&self, call: &Call) -> bool {
        match self.gate {
            QueueGate::Open => true,
            QueueGate::Closing => call.key.is_nested(),
            QueueGate::Shut => false,
        }
    }

    /// Stops taking calls, except nested ones. Returns the calls that wait.
    pub(crate) fn close(&mut self) -> Vec<Call> {
        self.gate = QueueGate::Closing;
        self.drain()
    }

    /// Stops taking any calls. Returns the calls that wait.
    pub(crate) fn shut(&mut self) -> Vec<Call> {
        self.gate = QueueGate::Shut;
        self.drain()
    }

    /// Reports whether the scheduler is closed, no call waits, and no worker has a call, not even one that leaves.
    pub(crate) fn is_done(&self) -> bool {
        let is_empty = self.gate != QueueGate::Open && self.depth() == 0;
        is_empty && self.all_places().all(|places| places.calls() == 0)
    }

    /// Removes and returns all waiting calls.
    pub(crate) fn drain(&mut self) -> Vec<Call> {
        let queued = std::mem::take(&mut self.queue).into_values();
        let mut calls: Vec<Call> = queued.filter(|call| !call.is_empty_carrier()).collect();
        calls.extend(self.batches.drain());
        for entry in self.entries.iter_mut().flatten() {
            calls.extend(std::mem::take(&mut entry.bound).into_values());
        }
        self.bound = 0;
        calls
    }
}
