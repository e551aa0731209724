//! Whether the pool behind a loop can serve. While it cannot, nothing is received, and messages that no worker has begun wait: they are not to
//! blame.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use crate::pool::{EMPTY, Health};
use crate::{Pool, locked};
use snakepit_core::request::Withdrawal;

/// Whether a pool can serve, as far as its loop is concerned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PoolReadiness {
    /// It serves, or is about to.
    Ready,
    /// It has no worker, for this reason, and will have one.
    NoWorker(String),
    /// It has stopped.
    Stopped(String),
}

/// The gate to a pool. Clones share the calls that were submitted; each sees changes of the pool's health for itself.
#[derive(Clone, Debug)]
pub(crate) struct PoolGate {
    pool: Pool,
    health: watch::Receiver<Health>,
    submitted: Arc<SubmittedCalls>,
}

/// The calls that are with the pool, and how to withdraw them.
#[derive(Debug, Default)]
struct SubmittedCalls {
    next: AtomicU64,
    withdrawals: Mutex<HashMap<u64, Withdrawal>>,
}

/// A call that was submitted and is awaited.
pub(crate) struct SubmittedCall {
    calls: Arc<SubmittedCalls>,
    number: u64,
}

impl SubmittedCall {
    /// Whether it was withdrawn: then no worker has it, and none will.
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

    /// Registers a call that was submitted.
    pub(crate) fn submit(&self, withdrawal: Withdrawal) -> SubmittedCall {
        let calls = Arc::clone(&self.submitted);
        let number = calls.next.fetch_add(1, Ordering::Relaxed);
        locked(&calls.withdrawals).insert(number, withdrawal);
        SubmittedCall { calls, number }
    }

    /// Withdraws what waits in the queue of a pool without workers, because the loop is to give back what is not started: nobody
    /// knows how long it would wait there.
    pub(crate) fn withdraw_queued(&self) {
        let has_worker = self.readiness() == PoolReadiness::Ready && self.pool.has_worker();
        if !has_worker {
            locked(&self.submitted.withdrawals).retain(|_, withdrawal| !withdrawal.withdraw());
        }
    }

    /// Whether the pool can serve now. A pool that sleeps until it is called can.
    pub(crate) fn readiness(&self) -> PoolReadiness {
        let name = self.pool.name();
        match &*self.health.borrow() {
            // A debugged pool has a worker only while a call waits for one.
            _ if self.pool.is_debugged() => PoolReadiness::Ready,
            Health::Short { serving: 0, reason } | Health::Degraded { serving: 0, reason } => {
                let first = reason.lines().next().unwrap_or_default();
                PoolReadiness::NoWorker(format!("pool {name} has no worker: {first}"))
            }
            Health::Empty => PoolReadiness::NoWorker(format!("pool {name} has no worker: {EMPTY}")),
            Health::Stopped => PoolReadiness::Stopped(format!("pool {name} has stopped")),
            Health::Starting | Health::Ready(_) | Health::Short { .. } | Health::Degraded { .. } => {
                PoolReadiness::Ready
            }
        }
    }

    /// Waits for a change of the pool's health.
    pub(crate) async fn changed(&mut self) {
        // It cannot fail: the pool holds the sender.
        let _ = self.health.changed().await;
    }

    /// Waits until the pool is ready; false if it never will be.
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
