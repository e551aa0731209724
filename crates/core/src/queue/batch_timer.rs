//! The time of batches: who looks when a window is over, and gives batches to workers.
//!
//! [`super::batch`] keeps the books. Here is the task, one for each batch command that was called, which sleeps until a
//! window is over or a batch lands.

use std::sync::{Arc, Weak};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::batch::BatchStep;
use super::placement::withhold;
use super::{OfferResult, QueueLimit};
use crate::call::command::{BatchTimer, PoolCommand};
use crate::call::state::CallEnd;
use crate::call::{Call, CallError, Input};
use crate::pool::PoolInner;
use snakepit_policy::quarantine::Admittance;

fn start_timer(pool: &Arc<PoolInner>, command: &Arc<PoolCommand>) -> BatchTimer {
    let bell = Arc::new(Notify::new());
    let conducting = conduct(Arc::downgrade(pool), Arc::downgrade(command), Arc::clone(&bell));
    BatchTimer { bell, task: pool.runtime.spawn(conducting).abort_handle() }
}

async fn conduct(pool: Weak<PoolInner>, command: Weak<PoolCommand>, bell: Arc<Notify>) {
    loop {
        let until = match (pool.upgrade(), command.upgrade()) {
            (Some(pool), Some(command)) => pool.attend(&command),
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
            // Those who were just answered go first: they may call again, and travel together again.
            () = bell.notified() => tokio::task::yield_now().await,
        }
    }
}

impl PoolInner {
    /// Gathers a call of a batch command, or sends it if it need not wait.
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

    /// A call that travelled with others to a worker which did not start it.
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
        let command = Arc::clone(&call.command);
        let most_bytes = self.bounds.max_frame();
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

    fn send_batches(&self, command: &Arc<PoolCommand>) {
        loop {
            // Taken in a statement of its own, so that the lock is free when the worker gets the batch.
            let next = self.scheduler().next_batch(command);
            match next {
                None => return,
                Some(carrier) => self.hand_over(carrier),
            }
        }
    }

    fn ring(self: &Arc<Self>, command: &Arc<PoolCommand>) {
        command.batch_timer.get_or_init(|| start_timer(self, command)).bell.notify_one();
    }

    /// A batch of so many calls is answered, or lost.
    pub(crate) fn lands(self: &Arc<Self>, command: &Arc<PoolCommand>, calls: usize) {
        self.scheduler().lands(command, calls);
        if calls > 1 {
            self.ring(command);
        } else {
            self.send_batches(command);
        }
    }

    fn attend(&self, command: &Arc<PoolCommand>) -> Option<Instant> {
        self.scheduler().attend(command, Instant::now());
        self.send_batches(command);
        self.scheduler().watch(command)
    }

    /// Makes a call again that travelled with others to a worker which is gone: it, or one of them, may be why. If the
    /// pool takes no more calls, or workers keep dying of this one, it fails as the batch did.
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
