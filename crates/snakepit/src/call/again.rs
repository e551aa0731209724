//! A call that is marked as idempotent and whose worker was lost: it is made again, as the same call with the same
//! deadline, or its error says why not.

use std::sync::Arc;

use tokio::time::Instant;

use super::ticket::{End, Ticket};
use super::waiting::{Phase, Waiting, after};
use super::{Call, CallError, Extras, Input};
use crate::pool::{Fate, Limit, QueueKey};
use crate::supervision::NoRetry;
use crate::value::Encoded;
use crate::worker::Berth;

/// What it takes to make a call again.
pub(crate) struct Again {
    input: Encoded,
    extras: Option<Extras>,
    priority: i8,
    /// How often it was made so far.
    attempts: u32,
    /// How the last attempt ended.
    last: Option<CallError>,
}

impl Again {
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
    let why = match error {
        CallError::QueueTimeout { .. } | CallError::NoWorkers { .. } => NoRetry::Queue,
        CallError::Stopped
        | CallError::SessionBusy { .. }
        | CallError::SessionLost { .. }
        | CallError::TooManySessions { .. }
        | CallError::Saturated { .. } => NoRetry::Refused,
        other => return other,
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
            said_of_trace: None,
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

impl Waiting {
    /// As [`Waiting::conclude`]; none if the call was lost and is under way again.
    pub(crate) async fn conclude_or_again(&mut self, end: End) -> Result<Option<Encoded>, CallError> {
        match end {
            End::Lost { berth, .. } if self.again.is_some() => self.make_again(&berth).await.map(|()| None),
            end => self.conclude(end).await.map(Some),
        }
    }

    async fn make_again(&mut self, berth: &Arc<Berth>) -> Result<(), CallError> {
        self.phase = Phase::Over;
        let error = self.lost(berth).await;
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
                self.settle(Fate::Died);
                Err(error.given_up(again.attempts, why))
            }
        }
    }

    async fn try_again(&mut self, again: &Again) -> Result<(), NoRetry> {
        if let Some(account) = &mut self.account {
            self.pool.attempt_lost(&self.command, account);
        }
        if self.delivered > 0 {
            return Err(NoRetry::Delivered);
        }
        let deadline = after(self.began, self.timeout);
        let pause = self.pool.decide_retry(again.attempts, deadline)?;
        tokio::time::sleep_until(after(Instant::now(), pause)).await;
        // Whatever happens from here on, the account is settled with the call.
        let account = self.pool.admit_again(&self.command, &again.input, again.attempts + 1)?;
        let alone = account.is_trial();
        self.account = Some(account);
        self.ticket = Arc::new(Ticket::default());
        let nested = again.extras.as_ref().is_some_and(|extras| extras.chain.is_some());
        let call = Call {
            id: self.id,
            command: Arc::clone(&self.command),
            input: Input::One(again.input.clone()),
            deadline: Some(deadline),
            extras: again.extras.as_ref().map(|extras| Box::new(extras.again())),
            ticket: Arc::clone(&self.ticket),
            // It stands where it stood.
            key: if nested {
                QueueKey::nested(self.id.0)
            } else {
                QueueKey::new(again.priority, self.began, self.id.0)
            },
            slot: None,
            queued_at: None,
            returns: 0,
            is_over: false,
            alone,
            batch: None,
        };
        // It was let in already, and there are few of its kind: the queue's limit is for new ones. A worker may have died of
        // it, and is not to die of it again with others aboard.
        self.pool.submit_alone(call, Limit::Waived).map_err(|_| NoRetry::Refused)?;
        self.queued_at = Instant::now();
        self.phase = Phase::MayBeQueued;
        Ok(())
    }
}
