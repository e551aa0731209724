//! What happens in a pool, for those who want to hear of it. Everything here is told to [`crate::telemetry`], too.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;

use super::{CircuitScope, Shared};
use crate::call::CallId;
use crate::supervision::Fault;
use crate::worker::Autopsy;

/// How many events wait for a listener before it loses the oldest.
const KEPT: usize = 1024;

/// Something that happened in a pool.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PoolEvent {
    /// A worker serves.
    WorkerReady {
        /// The worker.
        worker: String,
        /// How long its start took.
        after: Duration,
    },
    /// A worker could not be started.
    WorkerNotStarted {
        /// Why not.
        reason: Arc<str>,
    },
    /// A worker is to be replaced: it serves until its replacement does.
    WorkerDue {
        /// The worker.
        worker: String,
        /// Why.
        reason: Arc<str>,
    },
    /// A worker takes no more calls, and ends when it has finished what it has.
    WorkerLeaves {
        /// The worker.
        worker: String,
    },
    /// A worker ended because it was told to.
    WorkerEnded {
        /// The worker.
        worker: String,
    },
    /// A worker died, or had to be ended.
    WorkerDied {
        /// What is known about it.
        autopsy: Arc<Autopsy>,
    },
    /// A worker has a call, and for some time it has shown no sign of life.
    WorkerStuck {
        /// The worker.
        worker: String,
        /// For how long.
        time: Duration,
        /// Where it is, if it can be told.
        stack: Option<String>,
    },
    /// A call was cancelled and does not end: its worker takes no more calls, and is ended once its other calls are over.
    WorkerIgnoresCancel {
        /// The worker.
        worker: String,
        /// The call.
        call: CallId,
    },
    /// The number of workers that there should be has changed.
    Resized {
        /// Before.
        from: usize,
        /// Now.
        to: usize,
    },
    /// A worker died of the place that it ran in, which is not used for a while.
    Tainted {
        /// The device, or the slot.
        place: String,
        /// Of what it died.
        fault: Fault,
        /// For how long.
        lasts: Duration,
    },
    /// Workers fail so often that only one at a time is tried.
    Degraded {
        /// The last failure.
        reason: Arc<str>,
    },
    /// A call is refused for a while, because workers keep dying of it.
    Quarantined {
        /// Its command.
        command: Arc<str>,
        /// How many workers died of it.
        deaths: usize,
    },
    /// So many calls failed that no more are let in for a while.
    CircuitOpened {
        /// Which calls.
        scope: CircuitScope,
    },
    /// Calls are let in on trial.
    CircuitHalfOpen {
        /// Which calls.
        scope: CircuitScope,
    },
    /// All calls are let in again.
    CircuitClosed {
        /// Which calls.
        scope: CircuitScope,
    },
    /// A call whose worker was lost is made again.
    Retried {
        /// Its command.
        command: Arc<str>,
        /// Which attempt this is; the first was 1.
        attempt: u32,
    },
    /// A session with a strict affinity has lost its worker, and another one serves it from now on.
    SessionMoved {
        /// The session.
        session: Arc<str>,
        /// The worker that is gone.
        from: Arc<str>,
        /// The worker that serves it now.
        to: Arc<str>,
    },
    /// It was degraded, and is no longer.
    Recovered,
    /// All workers are of a new generation.
    Reloaded {
        /// Its number.
        generation: u64,
    },
    /// A reload failed, and the old workers stay.
    ReloadAborted {
        /// Why.
        reason: Arc<str>,
    },
}

impl PoolEvent {
    /// A name that stays the same.
    pub fn name(&self) -> &'static str {
        match self {
            Self::WorkerReady { .. } => "snakepit.worker.ready",
            Self::WorkerNotStarted { .. } => "snakepit.worker.not_started",
            Self::WorkerDue { .. } => "snakepit.worker.due",
            Self::WorkerLeaves { .. } => "snakepit.worker.leaves",
            Self::WorkerEnded { .. } => "snakepit.worker.ended",
            Self::WorkerDied { .. } => "snakepit.worker.died",
            Self::WorkerStuck { .. } => "snakepit.worker.stuck",
            Self::WorkerIgnoresCancel { .. } => "snakepit.worker.ignores_cancel",
            Self::Resized { .. } => "snakepit.pool.resized",
            Self::Tainted { .. } => "snakepit.pool.tainted",
            Self::Degraded { .. } => "snakepit.pool.degraded",
            Self::Quarantined { .. } => "snakepit.call.quarantined",
            Self::CircuitOpened { .. } => "snakepit.circuit.opened",
            Self::CircuitHalfOpen { .. } => "snakepit.circuit.half_open",
            Self::CircuitClosed { .. } => "snakepit.circuit.closed",
            Self::Retried { .. } => "snakepit.call.retried",
            Self::SessionMoved { .. } => "snakepit.session.moved",
            Self::Recovered => "snakepit.pool.recovered",
            Self::Reloaded { .. } => "snakepit.pool.reloaded",
            Self::ReloadAborted { .. } => "snakepit.pool.reload_aborted",
        }
    }
}

impl fmt::Display for PoolEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WorkerReady { worker, after } => write!(f, "worker {worker} is ready after {after:?}"),
            Self::WorkerNotStarted { reason } => write!(f, "a worker could not be started: {reason}"),
            Self::WorkerDue { worker, reason } => write!(f, "worker {worker} is to be replaced: {reason}"),
            Self::WorkerLeaves { worker } => write!(f, "worker {worker} takes no more calls"),
            Self::WorkerEnded { worker } => write!(f, "worker {worker} has ended"),
            Self::WorkerDied { autopsy } => autopsy.fmt(f),
            Self::WorkerStuck { worker, time, stack } => {
                write!(f, "worker {worker} has shown no sign of life for {time:?}")?;
                stack.as_ref().map_or(Ok(()), |stack| write!(f, "; it is here:\n{}", stack.trim_end()))
            }
            Self::WorkerIgnoresCancel { worker, call } => {
                write!(f, "worker {worker} is replaced, because call {call} was cancelled and does not end")
            }
            Self::Resized { from, to } => write!(f, "there should be {to} workers, and no longer {from}"),
            Self::Tainted { place, fault, lasts } => {
                write!(f, "{place} is not used for {lasts:?}, because a worker died of it: {fault}")
            }
            Self::Degraded { reason } => {
                write!(f, "workers fail again and again, only one at a time is tried: {reason}")
            }
            Self::Quarantined { command, deaths } => {
                write!(f, "{command} with the same arguments is refused, because {deaths} workers died of it")
            }
            Self::CircuitOpened { scope } => {
                write!(f, "the circuit of {scope} is open: too many calls failed, and no more are let in")
            }
            Self::CircuitHalfOpen { scope } => {
                write!(f, "the circuit of {scope} is half open: calls are let in on trial")
            }
            Self::CircuitClosed { scope } => write!(f, "the circuit of {scope} is closed again"),
            Self::Retried { command, attempt } => {
                write!(f, "{command} lost its worker and is made again, for the {attempt}. time")
            }
            Self::SessionMoved { session, from, to } => {
                write!(f, "session {session} has lost its worker {from}, and {to} serves it from now on")
            }
            Self::Recovered => f.write_str("workers start again"),
            Self::Reloaded { generation } => write!(f, "all workers are of generation {generation}"),
            Self::ReloadAborted { reason } => write!(f, "the old workers stay: {reason}"),
        }
    }
}

/// The events of one pool, from the moment it was asked for.
#[derive(Debug)]
pub struct PoolEvents {
    receiver: broadcast::Receiver<PoolEvent>,
    lost: u64,
}

impl PoolEvents {
    /// The next event; none when the pool is gone.
    pub async fn next(&mut self) -> Option<PoolEvent> {
        loop {
            match self.receiver.recv().await {
                Ok(event) => return Some(event),
                Err(broadcast::error::RecvError::Lagged(lost)) => self.lost += lost,
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// How many were lost, because they came faster than they were read.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// Where a pool tells its events.
#[derive(Debug)]
pub(super) struct Announcer(broadcast::Sender<PoolEvent>);

impl Default for Announcer {
    fn default() -> Self {
        Self(broadcast::Sender::new(KEPT))
    }
}

impl Announcer {
    pub(super) fn listen(&self) -> PoolEvents {
        PoolEvents { receiver: self.0.subscribe(), lost: 0 }
    }
}

impl Shared {
    pub(crate) fn announce(&self, event: PoolEvent) {
        event.tell(&self.name);
        let _ = self.events.0.send(event);
    }
}
