//! What a pool tells about itself, as events of the catalog.

use std::sync::Arc;

use super::of_custody::{code_and_signal, pid};
use super::{Event, Level, emit, is_heard};
use crate::pool::{CircuitScope, PoolEvent};
use crate::worker::{Autopsy, Verdict};

impl PoolEvent {
    /// Tells everybody who listens to the process.
    pub(crate) fn tell(&self, pool: &Arc<str>) {
        if is_heard(Level::Warn) {
            emit(self.event(Arc::clone(pool)));
        }
    }

    pub(super) fn event(&self, pool: Arc<str>) -> Event {
        let text = |text: &str| Arc::<str>::from(text);
        match self {
            Self::WorkerReady { worker, after } => {
                Event::WorkerReady { pool, worker: text(worker), took: *after }
            }
            Self::WorkerNotStarted { reason } => Event::WorkerNotStarted { pool, reason: Arc::clone(reason) },
            Self::WorkerDue { worker, reason } => {
                Event::WorkerDue { pool, worker: text(worker), reason: Arc::clone(reason) }
            }
            Self::WorkerLeaves { worker } => Event::WorkerLeaves { pool, worker: text(worker) },
            Self::WorkerEnded { worker } => Event::WorkerEnded { pool, worker: text(worker) },
            Self::WorkerDied { autopsy } => died(pool, autopsy),
            Self::WorkerStuck { worker, time, stack } => Event::WorkerStuck {
                pool,
                worker: text(worker),
                lasted: *time,
                stack: stack.as_deref().map(text),
            },
            Self::WorkerIgnoresCancel { worker, call } => {
                Event::WorkerIgnoresCancel { pool, worker: text(worker), call: call.get() }
            }
            Self::Resized { from, to } => Event::PoolResized { pool, from: *from, to: *to },
            Self::Tainted { place, fault, lasts } => Event::PoolTainted {
                pool,
                place: text(place),
                fault: text(&fault.to_string()),
                lasts: *lasts,
            },
            Self::Degraded { reason } => Event::PoolDegraded { pool, reason: Arc::clone(reason) },
            Self::Quarantined { command, deaths } => {
                Event::CallQuarantined { pool, command: Arc::clone(command), deaths: *deaths }
            }
            Self::CircuitOpened { scope } => Event::CircuitOpened { pool, command: command_of(scope) },
            Self::CircuitHalfOpen { scope } => Event::CircuitHalfOpen { pool, command: command_of(scope) },
            Self::CircuitClosed { scope } => Event::CircuitClosed { pool, command: command_of(scope) },
            Self::Retried { command, attempt } => {
                Event::CallRetried { pool, command: Arc::clone(command), attempt: *attempt }
            }
            Self::SessionMoved { session, from, to } => Event::SessionMoved {
                pool,
                session: Arc::clone(session),
                from: Arc::clone(from),
                to: Arc::clone(to),
            },
            Self::Recovered => Event::PoolRecovered { pool },
            Self::Reloaded { generation } => Event::PoolReloaded { pool, generation: *generation },
            Self::ReloadAborted { reason } => Event::PoolReloadAborted { pool, reason: Arc::clone(reason) },
        }
    }
}

fn command_of(scope: &CircuitScope) -> Option<Arc<str>> {
    match scope {
        CircuitScope::Pool => None,
        CircuitScope::Command(command) => Some(Arc::clone(command)),
    }
}

fn died(pool: Arc<str>, autopsy: &Autopsy) -> Event {
    let (code, signal) = autopsy.exit.map_or((None, None), |exit| code_and_signal(exit.status));
    Event::WorkerDied {
        pool,
        worker: autopsy.worker.as_str().into(),
        pid: autopsy.pid.map(pid),
        code,
        signal,
        oom: match autopsy.oom {
            Verdict::Yes => Some(true),
            Verdict::No => Some(false),
            Verdict::Unknown => None,
        },
        calls: autopsy.calls,
        age: autopsy.age,
        autopsy: autopsy.to_string().into(),
    }
}
