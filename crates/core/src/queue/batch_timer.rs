//! The timer of batches: waits for windows to end, and gives batches to workers.
//!
//! [`super::batch`] does the bookkeeping. Each batch command that was called has a task here, which sleeps until a
//! window ends or an event wakes it, such as an answered batch.

use std::sync::{Arc, Weak};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::PoolInner;
use super::batch::BatchStep;
use super::placement::withhold;
use super::{OfferResult, QueueLimit};
use crate::call::command::{BatchTimer, PoolCommand};
use crate::call::progress::CallEnd;
use crate::call::{Call, CallError, Input};
use crate::sharded::ShardRef;
use snakepit_policy::quarantine::Admittance;

fn start_timer(pool: &Arc<PoolInner>, command: &ShardRef<PoolCommand>) -> BatchTimer {
    let bell = Arc::new(Notify::new());
    let conducting = conduct(Arc::downgrade(pool), Arc::downgrade(command), Arc::clone(&bell));
    BatchTimer { bell, task: pool.runtime.spawn(conducting).abort_handle() }
}

async fn conduct(pool: Weak<PoolInner>, command: Weak<PoolCommand>, bell: Arc<Notify>) {
    loop {
        let until = match (pool.upgrade(), command.upgrade()) {
            (Some(pool), Some(command)) => pool.attend(&command.into()),
            _ => return,
        };
        let window = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = window => {}
            // The callers that were just answered run first: they may call again, and their calls form a batch again.
            () = bell.notified() => tokio::task::yield_now().await,
        }
    }
}

impl PoolInner {
    /// Adds a call of a batch command to its group, or sends the call if it need not wait.
    pub(crate) fn gather(self: &Arc<Self>, call: Call, limit: QueueLimit) -> Result<(), CallError> {
        match self.gather_with(call, limit) {
            None => Ok(()),
            Some(BatchRefusal::Saturated(call, depth)) => {
                withhold(call);
                Err(self.saturated(depth))
            }
            Some(BatchRefusal::Closed(call)) => {
                withhold(call);
                Err(CallError::Stopped)
            }
        }
    }

    /// Adds a call to its group again, because its worker did not start the batch.
    pub(crate) fn gather_again(self: &Arc<Self>, call: Call) {
        if call.is_abandoned() {
            return;
        }
        match self.gather_with(call, QueueLimit::Waived) {
            None => {}
            Some(BatchRefusal::Saturated(call, _) | BatchRefusal::Closed(call)) => {
                call.fail(CallError::Stopped);
            }
        }
    }

    fn gather_with(self: &Arc<Self>, call: Call, limit: QueueLimit) -> Option<BatchRefusal> {
        let command = call.command.clone();
        let most_bytes = self.call_limits.max_frame();
        let gathered = self.scheduler().gather(call, limit, most_bytes, Instant::now());
        match gathered {
            BatchStep::Goes(carrier) => {
                self.hand_over(carrier);
                self.send_batches(&command);
            }
            BatchStep::Waits => {}
            BatchStep::Opened => self.ring(&command),
            BatchStep::Queued => self.call_attention(),
            BatchStep::Saturated(call, depth) => return Some(BatchRefusal::Saturated(call, depth)),
            BatchStep::Closed(call) => return Some(BatchRefusal::Closed(call)),
        }
        None
    }

    fn send_batches(self: &Arc<Self>, command: &ShardRef<PoolCommand>) {
        loop {
            // A statement of its own, so that the lock is released before the worker gets the batch.
            let next = self.scheduler().next_batch(command);
            match next {
                None => return,
                Some(carrier) => self.hand_over(carrier),
            }
        }
    }

    fn ring(self: &Arc<Self>, command: &ShardRef<PoolCommand>) {
        command.batch_timer.get_or_init(|| start_timer(self, command)).bell.notify_one();
    }

    /// Records that a batch of `calls` calls was answered or lost.
    pub(crate) fn batch_ended(self: &Arc<Self>, command: &ShardRef<PoolCommand>, calls: usize) {
        self.scheduler().batch_ended(command, calls);
        if calls > 1 {
            self.ring(command);
        } else {
            self.send_batches(command);
        }
    }

    fn attend(self: &Arc<Self>, command: &ShardRef<PoolCommand>) -> Option<Instant> {
        self.scheduler().attend(command, Instant::now());
        self.send_batches(command);
        self.scheduler().watch(command)
    }

    /// Repeats a member of a failed batch alone: this call, or another member, may be the cause. If the pool takes no
    /// more calls, or the call is quarantined, the call ends with `otherwise`.
    pub(crate) fn make_alone(self: &Arc<Self>, mut call: Call, otherwise: CallEnd) {
        let admittance = match &call.input {
            Input::One(input) => self.admittance(&call.command, input),
            Input::Many(_) => Admittance::Free,
        };
        call.alone |= matches!(admittance, Admittance::Trial);
        let refused = matches!(admittance, Admittance::Refused(_));
        let placed = if refused { OfferResult::Closed(call) } else { self.scheduler().requeue(call) };
        match placed {
            OfferResult::Now(call) => self.hand_over(call),
            OfferResult::Queued => self.call_attention(),
            OfferResult::Closed(call) | OfferResult::Saturated(call, _) | OfferResult::Busy(call) => {
                call.end(otherwise);
            }
        }
    }
}

enum BatchRefusal {
    Saturated(Call, usize),
    Closed(Call),
}
