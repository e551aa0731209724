//! Repeats an idempotent call whose worker was lost. The same call is submitted again with the same deadline, or its
//! error says why not.

use std::sync::Arc;

use tokio::time::Instant;

use super::attempts::Attempts;
use super::pending::{PendingCall, PendingPhase};
use crate::call::QueueKey;
use crate::call::answer::CallState;
use crate::call::progress::CallEnd;
use crate::call::{Call, CallError, Extras, Input};
use crate::queue::CallOutcome;
use crate::queue::QueueLimit;
use crate::value::Encoded;
use crate::worker::Worker;
use snakepit_policy::NoRetry;
use snakepit_policy::time::after;

/// Everything needed to repeat a call.
pub(crate) struct RetryState {
    input: Encoded,
    extras: Option<Extras>,
    priority: i8,
    pub(super) attempts: Attempts,
}

impl RetryState {
    pub(crate) fn new(input: &Encoded, extras: Option<&Extras>, priority: i8) -> Box<Self> {
        let extras = extras.map(Extras::again);
        Box::new(Self { input: input.clone(), extras, priority, attempts: Attempts::FIRST })
    }
}

impl Extras {
    /// Returns the same options for another attempt.
    pub(super) fn again(&self) -> Self {
        Self {
            session: self.session.clone(),
            session_in_use: None,
            metadata: self.metadata.clone(),
            stream: self.stream,
            chain: self.chain.clone(),
            trace_headers: None,
            trace: self.trace.clone(),
            traces: Vec::new(),
        }
    }
}

impl PendingCall {
    /// Like [`PendingCall::conclude`]. Returns `None` if the call was lost and is under way again.
    pub(crate) async fn conclude_or_again(&mut self, end: CallEnd) -> Result<Option<Encoded>, CallError> {
        match end {
            CallEnd::Lost { holder, .. } if self.again.is_some() => {
                self.make_again(Worker::of(&*holder)).await.map(|()| None)
            }
            end => self.conclude(end).await.map(Some),
        }
    }

    async fn make_again(&mut self, worker: &Arc<Worker>) -> Result<(), CallError> {
        self.phase = PendingPhase::Over;
        let error = self.lost(worker).await;
        let Some(mut again) = self.again.take() else { return Err(error) };
        self.try_again(&mut again, error).await.inspect_err(|_| self.settle(CallOutcome::Died))?;
        self.again = Some(again);
        Ok(())
    }

    async fn try_again(&mut self, again: &mut RetryState, error: CallError) -> Result<(), CallError> {
        if let Some(permit) = &mut self.permit {
            self.pool.attempt_lost(&self.command, permit);
        }
        if self.delivered > 0 {
            again.attempts.record_loss(error);
            return Err(again.attempts.give_up(NoRetry::Delivered));
        }
        let deadline = after(self.began, self.timeout);
        let due = again.attempts.lose(&self.pool, deadline, error)?;
        tokio::time::sleep_until(due).await;
        // Whatever happens from here on, the permit is settled with the call.
        let permit = again.attempts.admit(&self.pool, &self.command, &again.input)?;
        let alone = permit.is_trial();
        self.permit = Some(permit);
        self.state = Arc::new(CallState::default());
        let nested = again.extras.as_ref().is_some_and(|extras| extras.chain.is_some());
        // The call keeps its place in the queue.
        let key = if nested {
            QueueKey::nested(self.id.0)
        } else {
            QueueKey::new(again.priority, self.began, self.id.0)
        };
        let (command, input) = (self.command.clone(), Input::One(again.input.clone()));
        let mut call = Call::new(self.id, command, input, Arc::clone(&self.state), key);
        call.deadline = Some(deadline);
        call.extras = again.extras.as_ref().map(|extras| Box::new(extras.again()));
        call.alone = alone;
        // The limit of the queue is for new calls. This call was admitted before, and repeated calls are rare. A worker
        // may have died of it, so it travels alone: no other call should die with it.
        let submitted = self.pool.submit_alone(call, QueueLimit::Waived);
        submitted.map_err(|_| again.attempts.give_up(NoRetry::Refused))?;
        self.queued_at = Instant::now();
        self.phase = PendingPhase::MayBeQueued;
        Ok(())
    }
}
