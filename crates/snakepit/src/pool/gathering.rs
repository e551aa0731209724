//! The time of batches: who looks when a window is over, and gives batches to workers.
//!
//! [`super::batch`] keeps the books. Here is the task, one for each batch command that was called, which sleeps until a
//! window is over or a batch lands.

use std::sync::{Arc, Weak};

use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::batch::Gathered;
use super::placing::withhold;
use super::{Command, Limit, Placed, Shared};
use crate::call::{Call, CallError, Input};
use crate::supervision::quarantine::Admittance;
use crate::worker::Berth;

/// Keeps the time for one command, as long as the command is known.
#[derive(Debug)]
pub(super) struct Conductor {
    bell: Arc<Notify>,
    task: AbortHandle,
}

impl Drop for Conductor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Conductor {
    fn start(pool: &Arc<Shared>, command: &Arc<Command>) -> Self {
        let bell = Arc::new(Notify::new());
        let conducting = conduct(Arc::downgrade(pool), Arc::downgrade(command), Arc::clone(&bell));
        Self { bell, task: pool.runtime.spawn(conducting).abort_handle() }
    }
}

async fn conduct(pool: Weak<Shared>, command: Weak<Command>, bell: Arc<Notify>) {
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

impl Shared {
    /// Gathers a call of a batch command, or sends it if it need not wait.
    pub(super) fn gather(self: &Arc<Self>, call: Call, limit: Limit) -> Result<(), CallError> {
        match self.gather_with(call, limit) {
            None => Ok(()),
            Some(Refused::Saturated(call, depth)) => {
                withhold(call);
                Err(self.saturated(depth))
            }
            Some(Refused::Closed(call)) => {
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
        match self.gather_with(call, Limit::Waived) {
            None => {}
            Some(Refused::Saturated(call, _) | Refused::Closed(call)) => call.fail(CallError::Stopped),
        }
    }

    fn gather_with(self: &Arc<Self>, call: Call, limit: Limit) -> Option<Refused> {
        let command = Arc::clone(&call.command);
        let most_bytes = self.bounds.max_frame();
        let gathered = self.scheduler().gather(call, limit, most_bytes, Instant::now());
        match gathered {
            Gathered::Goes(van) => {
                self.hand_over(van);
                self.send_batches(&command);
            }
            Gathered::Waits => {}
            Gathered::Opened => self.ring(&command),
            Gathered::Queued => self.call_attention(),
            Gathered::Saturated(call, depth) => return Some(Refused::Saturated(call, depth)),
            Gathered::Closed(call) => return Some(Refused::Closed(call)),
        }
        None
    }

    fn send_batches(&self, command: &Arc<Command>) {
        loop {
            // Taken in a statement of its own, so that the lock is free when the worker gets the batch.
            let next = self.scheduler().next_batch(command);
            match next {
                None => return,
                Some(van) => self.hand_over(van),
            }
        }
    }

    fn ring(self: &Arc<Self>, command: &Arc<Command>) {
        command.conductor.get_or_init(|| Conductor::start(self, command)).bell.notify_one();
    }

    /// A batch of so many calls is answered, or lost.
    pub(crate) fn lands(self: &Arc<Self>, command: &Arc<Command>, calls: usize) {
        self.scheduler().lands(command, calls);
        if calls > 1 {
            self.ring(command);
        } else {
            self.send_batches(command);
        }
    }

    fn attend(&self, command: &Arc<Command>) -> Option<Instant> {
        self.scheduler().attend(command, Instant::now());
        self.send_batches(command);
        self.scheduler().watch(command)
    }

    /// Makes a call again that travelled with others to a worker which is gone: it, or one of them, may be why. If the
    /// pool takes no more calls, or workers keep dying of this one, it fails as the batch did.
    pub(crate) fn make_alone(self: &Arc<Self>, mut call: Call, otherwise: Otherwise) {
        let admittance = match &call.input {
            Input::One(input) => self.admittance(&call.command, input),
            Input::Many(_) => Admittance::Free,
        };
        call.alone |= matches!(admittance, Admittance::Trial);
        let refused = matches!(admittance, Admittance::Refused(_));
        let placed = if refused { Placed::Closed(call) } else { self.scheduler().requeue(call) };
        match placed {
            Placed::Now(call) => self.hand_over(call),
            Placed::Queued => self.call_attention(),
            Placed::Closed(call) | Placed::Saturated(call, _) | Placed::Busy(call) => match otherwise {
                Otherwise::Lost(berth) => call.lose_with(berth),
                Otherwise::Failed(error) => call.fail(error),
            },
        }
    }
}

enum Refused {
    Saturated(Call, usize),
    Closed(Call),
}

/// How a call fails that cannot be made again.
pub(crate) enum Otherwise {
    Lost(Arc<Berth>),
    Failed(CallError),
}
