//! Whether the pool behind a loop can serve. While it cannot, nothing is received, and messages that no worker has
//! begun wait, because they are not to blame.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use crate::pool::Health;
use crate::{Pool, locked};
use snakepit_core::NoWorkersReason;
use snakepit_core::request::Withdrawal;

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

/// The gate to a pool. Clones share the submitted calls, but each clone observes changes of the pool's health
/// separately.
#[derive(Clone, Debug)]
pub(crate) struct PoolGate {
    pool: Pool,
    health: watch::Receiver<Health>,
    submitted: Arc<SubmittedCalls>,
}

/// The calls that were submitted to the pool, and how to withdraw them.
#[derive(Debug, Default)]
struct SubmittedCalls {
    next: AtomicU64,
    withdrawals: Mutex<HashMap<u64, Withdrawal>>,
}

/// A submitted call whose answer is awaited.
pub(crate) struct SubmittedCall {
    calls: Arc<SubmittedCalls>,
    number: u64,
}

impl SubmittedCall {
    /// Reports whether the call was withdrawn. If so, no worker has it or will get it.
    pub(crate) fn is_withdrawn(&self) -> bool {
        !locked(&self.calls.withdrawals).contains_key(&self.number)
    }
}

impl Drop for SubmittedCall {
    fn drop(&mut self) {
        locked(&self.calls.withdrawals).remove(&self.number);
    }
}

impl PoolGate {
    pub(crate) fn new(pool: &Pool) -> Self {
        Self { pool: pool.clone(), health: pool.health(), submitted: Arc::default() }
    }

    /// Registers a submitted call.
    pub(crate) fn submit(&self, withdrawal: Withdrawal) -> SubmittedCall {
        let calls = Arc::clone(&self.submitted);
        let number = calls.next.fetch_add(1, Ordering::Relaxed);
        locked(&calls.withdrawals).insert(number, withdrawal);
        SubmittedCall { calls, number }
    }

    /// Withdraws the calls in the queue of a pool without workers. The loop must give back messages that were not
    /// started, and such calls could wait in the queue for any time.
    pub(crate) fn withdraw_queued(&self) {
        let has_worker = self.readiness() == PoolReadiness::Ready && self.pool.has_worker();
        if !has_worker {
            locked(&self.submitted.withdrawals).retain(|_, withdrawal| !withdrawal.withdraw());
        }
    }

    /// Returns whether the pool can serve now. A pool that starts its workers on the first call can.
    pub(crate) fn readiness(&self) -> PoolReadiness {
        let name = self.pool.name();
        match &*self.health.borrow() {
            // A debugged pool has a worker only while a call waits for one.
            _ if self.pool.is_debugged() => PoolReadiness::Ready,
            Health::Short { serving: 0, reason } | Health::Degraded { serving: 0, reason } => {
                let first = reason.lines().next().unwrap_or_default();
                PoolReadiness::NoWorker(format!("pool {name} has no worker: {first}"))
            }
            Health::Empty => {
                let reason = NoWorkersReason::ScaledToZero;
                PoolReadiness::NoWorker(format!("pool {name} has no worker: {reason}"))
            }
            Health::Stopped => PoolReadiness::Stopped(format!("pool {name} has stopped")),
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
