//! Whether the pool behind a loop can serve. While it cannot, nothing is received, and messages that no worker has
//! begun wait, because they are not to blame.

use tokio::sync::watch;

use crate::Pool;
use crate::pool::PoolHealth;
use snakepit_core::NoWorkersReason;

/// Whether a pool can serve its loop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PoolReadiness {
    /// The pool serves or is about to.
    Ready,
    /// The pool has no worker for this reason, but will have one.
    NoWorker(String),
    /// The pool has stopped.
    Stopped(String),
}

/// The gate to a pool. Each clone observes changes of the pool's health separately.
#[derive(Clone, Debug)]
pub(crate) struct PoolGate {
    pool: Pool,
    health: watch::Receiver<PoolHealth>,
}

impl PoolGate {
    pub(crate) fn new(pool: &Pool) -> Self {
        Self { pool: pool.clone(), health: pool.health() }
    }

    /// Returns whether the pool can serve now. A pool that starts its workers on the first call can.
    pub(crate) fn readiness(&self) -> PoolReadiness {
        let name = self.pool.name();
        match &*self.health.borrow() {
            // A debugged pool has a worker only while a call waits for one.
            _ if self.pool.is_debugged() => PoolReadiness::Ready,
            PoolHealth::Short { serving: 0, reason } | PoolHealth::Degraded { serving: 0, reason } => {
                let first = reason.lines().next().unwrap_or_default();
                PoolReadiness::NoWorker(format!("pool {name} has no worker: {first}"))
            }
            PoolHealth::Empty => {
                let reason = NoWorkersReason::ScaledToZero;
                PoolReadiness::NoWorker(format!("pool {name} has no worker: {reason}"))
            }
            PoolHealth::Stopped => PoolReadiness::Stopped(format!("pool {name} has stopped")),
            // The pool serves, or is about to.
            _ => PoolReadiness::Ready,
        }
    }

    /// Waits for a change of the pool's health.
    pub(crate) async fn changed(&mut self) {
        // This cannot fail, because the pool holds the sender.
        let _ = self.health.changed().await;
    }

    /// Waits until the pool is ready. Returns `false` if it never will be.
    pub(crate) async fn until_ready(&mut self) -> bool {
        loop {
            self.health.mark_unchanged();
            match self.readiness() {
                PoolReadiness::Ready => return true,
                PoolReadiness::Stopped(_) => return false,
                PoolReadiness::NoWorker(_) => self.changed().await,
            }
        }
    }
}
