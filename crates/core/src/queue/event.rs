//! How a pool emits its events: to the subscribers of the pool, and to all subscribers of the process.

use std::sync::Arc;

use super::{CircuitScope, PoolInner};
use crate::call::{Autopsy, OomVerdict};
use crate::telemetry::{Event, code_and_signal, pid_number};

impl PoolInner {
    /// Emits an event about the pool, if anyone listens. The function gets the pool's name.
    pub(crate) fn announce(&self, event: impl FnOnce(Arc<str>) -> Event) {
        self.events.emit_with(|| event(Arc::clone(&self.name)));
    }
}

/// Returns the command that a circuit is about, or `None` if it is about the whole pool.
pub(crate) fn command_of(scope: &CircuitScope) -> Option<Arc<str>> {
    match scope {
        CircuitScope::Pool => None,
        CircuitScope::Command(command) => Some(Arc::clone(command)),
    }
}

/// Creates the event of a worker's death.
pub(crate) fn worker_died(pool: Arc<str>, autopsy: &Autopsy) -> Event {
    let (code, signal) = autopsy.exit.map_or((None, None), |exit| code_and_signal(exit.status));
    Event::WorkerDied {
        pool,
        worker: autopsy.worker.as_str().into(),
        pid: autopsy.pid.map(pid_number),
        code,
        signal,
        oom: match autopsy.oom {
            OomVerdict::Yes => Some(true),
            OomVerdict::No => Some(false),
            OomVerdict::Unknown => None,
        },
        calls: autopsy.calls,
        age: autopsy.age,
        autopsy: autopsy.to_string().into(),
    }
}
