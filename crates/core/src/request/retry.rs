//! A call that is marked as idempotent and whose worker was lost: it is made again, as the same call with the same
//! deadline, or its error says why not.

use std::sync::Arc;

use tokio::time::Instant;

use super::pending::{PendingCall, PendingPhase};
use crate::call::QueueKey;
use crate::call::state::{CallEnd, CallState};
use crate::call::{Call, CallError, ErrorClass, Extras, Input};
use crate::pool::CallOutcome;
use crate::queue::QueueLimit;
use crate::value::Encoded;
use crate::worker::Worker;
use snakepit_policy::NoRetry;
use snakepit_policy::time::after;

/// What it takes to make a call again.
pub(crate) struct RetryState {
    input: Encoded,
    extras: Option<Extras>,
    priority: i8,
    /// How often it was made so far.
    attempts: u32,
    /// How the last attempt ended.
    last: Option<CallError>,
}

impl RetryState {
    pub(crate) fn new(input: &Encoded, extras: Option<&Extras>, priority: i8) -> Box<Self> {
        let extras = extras.map(Extras::again);
        Box::new(Self { input: input.clone(), extras, priority, attempts: 1, last: None })
    }

    /// What an error means to a caller whose call was lost before.
    pub(super) fn explain(&self, error: CallError) -> CallError {
        explain(self.last.as_ref(), self.attempts - 1, error)
    }
}

/// A lost call was to be made again, and did not get so far: then it is its last death that counts.
pub(super) fn explain(last: Option<&CallError>, attempts: u32, error: CallError) -> CallError {
    let why = match error.class() {
        ErrorClass::Unserved => NoRetry::Queue,
        ErrorClass::Saturated | ErrorClass::Later | ErrorClass::Stopped => NoRetry::Refused,
        ErrorClass::Refused if matches!(error, CallError::SessionLost { .. }) => NoRetry::Refused,
        _ => return error,
    };
    last.map_or(error, |last| last.clone().given_up(attempts, why))
}

impl Extras {
    /// The same for another attempt.
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

impl CallError {
    /// Says how often the call was made, and why no more.
    pub(super) fn given_up(mut self, made: u32, why: NoRetry) -> Self {
        if let Self::WorkerDied { attempts, no_retry, .. } = &mut self {
            (*attempts, *no_retry) = (made, Some(why));
        }
        self
    }
}

impl PendingCall {
    /// As [`PendingCall::conclude`]; none if the call was lost and is under way again.
    pub(crate) async fn conclude_or_again(&mut self, end: CallEnd) -> Result<Option<Encoded>, CallError> {
        match end {
            CallEnd::Lost { holder, .. } if self.again.is_some() => {
                self.make_again(&Worker::of(&holder)).await.map(|()| None)
            }
            end => self.conclude(end).await.map(Some),
        }
    }

    async fn make_again(&mut self, worker: &Arc<Worker>) -> Result<(), CallError> {
        self.phase = PendingPhase::Over;
        let error = self.lost(worker).await;
        let Some(mut again) = self.again.take() else { return Err(error) };
        let made = self.try_again(&again).await;
        again.last = Some(error.clone());
        match made {
            Ok(()) => {
                again.attempts += 1;
                self.again = Some(again);
                Ok(())
            }
            Err(why) => {
                self.settle(CallOutcome::Died);
                Err(error.given_up(again.attempts, why))
            }
        }
    }

    async fn try_again(&mut self, again: &RetryState) -> Result<(), NoRetry> {
        if let Some(permit) = &mut self.permit {
            self.pool.attempt_lost(&self.command, permit);
        }
        if self.delivered > 0 {
            return Err(NoRetry::Delivered);
        }
        let deadline = after(self.began, self.timeout);
        let pause = self.pool.decide_retry(again.attempts, deadline)?;
        tokio::time::sleep_until(after(Instant::now(), pause)).await;
        // Whatever happens from here on, the permit is settled with the call.
        let permit = self.pool.admit_again(&self.command, &again.input, again.attempts + 1)?;
        let alone = permit.is_trial();
        self.permit = Some(permit);
        self.state = Arc::new(CallState::default());
        let nested = again.extras.as_ref().is_some_and(|extras| extras.chain.is_some());
        // It stands where it stood.
        let key = if nested {
            QueueKey::nested(self.id.0)
        } else {
            QueueKey::new(again.priority, self.began, self.id.0)
        };
        let (command, input) = (Arc::clone(&self.command), Input::One(again.input.clone()));
        let mut call = Call::new(self.id, command, input, Arc::clone(&self.state), key);
        call.deadline = Some(deadline);
        call.extras = again.extras.as_ref().map(|extras| Box::new(extras.again()));
        call.alone = alone;
        // It was let in already, and there are few of its kind: the queue's limit is for new ones. A worker may have died of
        // it, and is not to die of it again with others batched.
        self.pool.submit_alone(call, QueueLimit::Waived).map_err(|_| NoRetry::Refused)?;
        self.queued_at = Instant::now();
        self.phase = PendingPhase::MayBeQueued;
        Ok(())
    }
}
