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

/// Everything needed to repeat a call.
pub(crate) struct RetryState {
    input: Encoded,
    extras: Option<Extras>,
    deadline: Option<Instant>,
    /// The call keeps its place in the queue.
    key: QueueKey,
    /// Whether the worker may have no other call meanwhile.
    alone: bool,
    pub(super) attempts: Attempts,
}

impl RetryState {
    /// Notes what is needed to repeat a call that is about to be submitted. Calls that travel together are repeated by
    /// their map.
    pub(super) fn of(call: &Call, attempts: Attempts) -> Option<Box<Self>> {
        let Input::One(input) = &call.input else { return None };
        let extras = call.extras.as_deref().map(Extras::again);
        let (input, deadline, key, alone) = (input.clone(), call.deadline, call.key, call.alone);
        Some(Box::new(Self { input, extras, deadline, key, alone, attempts }))
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
        match (end, self.again.take()) {
            (CallEnd::Lost { holder, .. }, Some(mut again)) => {
                self.phase = PendingPhase::Over;
                let error = self.lost(Worker::of(&*holder)).await;
                self.try_again(&mut again, error).await.inspect_err(|_| self.settle(CallOutcome::Died))?;
                self.again = Some(again);
                Ok(None)
            }
            (end, again) => {
                self.again = again;
                self.conclude(end).await.map(Some)
            }
        }
    }

    async fn try_again(&mut self, again: &mut RetryState, error: CallError) -> Result<(), CallError> {
        let RetryState { input, extras, deadline, key, alone, attempts } = again;
        // Whatever happens from here on, the permit is settled with the call.
        let permit = self.permit.get_or_insert_default();
        attempts.lose(&self.pool, &self.command, [&mut *permit], error);
        if self.delivered > 0 {
            return Err(attempts.give_up(NoRetry::Delivered));
        }
        attempts.repeat(&self.pool)?;
        attempts.due().await;
        attempts.admit(&self.pool, &self.command, input, permit)?;
        attempts.admitted();
        *alone |= permit.is_trial();
        self.state = Arc::new(CallState::default());
        let (command, input) = (self.command.clone(), Input::One(input.clone()));
        let mut call = Call::new(self.id, command, input, Arc::clone(&self.state), *key);
        call.deadline = *deadline;
        call.extras = extras.as_ref().map(|extras| Box::new(extras.again()));
        call.alone = *alone;
        // The limit of the queue is for new calls. This call was admitted before, and repeated calls are rare. A worker
        // may have died of it, so it travels alone: no other call should die with it.
        let submitted = self.pool.submit_alone(call, QueueLimit::Waived);
        submitted.map_err(|_| attempts.give_up(NoRetry::Refused))?;
        self.queued_at = Instant::now();
        self.phase = PendingPhase::MayBeQueued;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::call::{CallId, PoolCommand};

    #[test]
    fn a_call_that_was_made_alone_is_repeated_alone() {
        let (command, input) = (Arc::new(PoolCommand::new("add")).into(), Input::One(Encoded::nil()));
        let key = QueueKey::new(0, Instant::now(), 1);
        let mut call = Call::new(CallId::next(), command, input, Arc::default(), key);
        call.alone = true;
        let again = RetryState::of(&call, Attempts::first(None, Duration::MAX)).expect("one input");
        assert!(again.alone);
        call.fail(CallError::Cancelled);
    }
}
