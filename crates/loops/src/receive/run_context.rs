//! The state that the task of a run shares with its handlers and with the thread that extends leases.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::availability::LoopAvailability;
use super::{PoolGate, PoolReadiness, SubmittedCalls};
use crate::lease::{LeaseTimes, LeasedMessages, SlowMessages};
use crate::settle::SettlementRules;
use crate::{Control, EndOrder, LoopOrders};

/// The state that a run shares with its tasks.
pub(crate) struct RunContext {
    pub(crate) control: Control,
    pub(crate) leased: LeasedMessages,
    pub(crate) availability: LoopAvailability,
    pub(crate) rules: Arc<SettlementRules>,
    /// `None` if the host itself handles messages, or if the policy gives up messages for lack of workers.
    pub(crate) gate: Option<PoolGate>,
    /// `None` if the host itself handles messages.
    pub(crate) submitted: Option<SubmittedCalls>,
    pub(crate) leases: LeaseTimes,
    pub(crate) slow: SlowMessages,
    /// The number of messages that the running receives may return.
    pub(super) requested: AtomicUsize,
    /// The number of messages, received or requested, from which another receive is not worth its cost.
    pub(super) enough: AtomicUsize,
    /// Notified when another receive is worth its cost.
    pub(super) room: Notify,
}

impl RunContext {
    /// Records that a message is settled and this many are left.
    pub(crate) fn note_settled(&self, left: usize) {
        if left + self.requested.load(Ordering::Relaxed) < self.enough.load(Ordering::Relaxed) {
            self.room.notify_one();
        }
    }

    /// Withdraws the calls that wait in the pool's queue. Their messages were not begun, so they will be given back
    /// without a counted delivery, however the run ends.
    pub(crate) fn withdraw_queued(&self) {
        if let Some(submitted) = &self.submitted {
            submitted.withdraw_queued(|receipt| self.leased.note_not_begun(receipt));
        }
    }

    pub(crate) fn pool_readiness(&self) -> PoolReadiness {
        self.gate.as_ref().map_or(PoolReadiness::Ready, PoolGate::readiness)
    }

    /// Waits for the pause and then until the pool is ready. Returns `false` if the pool never will be, or if the loop
    /// no longer receives messages.
    pub(crate) async fn until_pool_is_ready(&self, pause: Duration) -> bool {
        let mut orders = self.control.orders();
        if timeout(pause, orders.wait_for(|orders| !orders.receives())).await.is_ok() {
            return false;
        }
        let Some(mut gate) = self.gate.clone() else { return true };
        tokio::select! {
            biased;
            _ = orders.wait_for(|orders| !orders.receives()) => false,
            is_ready = gate.until_ready() => is_ready,
        }
    }

    /// Waits for the pause. Returns `false` if the loop's deadline has passed.
    pub(crate) async fn pause(&self, pause: Duration) -> bool {
        let mut orders: watch::Receiver<LoopOrders> = self.control.orders();
        let was_cut = timeout(pause, orders.wait_for(|orders| orders.end == EndOrder::Cut)).await.is_ok();
        !was_cut && !orders.borrow().is_overdue()
    }
}
