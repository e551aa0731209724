//! The attempts of a call, or of inputs of a map that travel together.
//!
//! ```text
//! attempt 1 ──worker lost──► decide ──► pause ──► admit ──► attempt 2 ──► …
//!                              │                    │
//!                              └──────► give up ◄───┘   the error of the last attempt, and why there is no other
//! ```

use tokio::time::Instant;

use crate::call::{CallError, ErrorClass, PoolCommand};
use crate::queue::AdmissionPermit;
use crate::queue::PoolInner;
use crate::value::Encoded;
use snakepit_policy::NoRetry;
use snakepit_policy::time::after;

/// How often a call was made, and how the last attempt ended.
#[derive(Clone)]
pub(super) struct Attempts {
    /// The number of the attempt that is under way, or comes next.
    number: u32,
    /// The last attempt that lost its worker: its number and its error.
    last: Option<(u32, CallError)>,
}

impl Attempts {
    pub(super) const FIRST: Self = Self { number: 1, last: None };

    pub(super) fn is_first(&self) -> bool {
        self.number == 1
    }

    /// Decides whether an attempt that lost its worker is followed by another. Returns when, or the caller's error.
    pub(super) fn lose(
        &mut self,
        pool: &PoolInner,
        deadline: Instant,
        error: CallError,
    ) -> Result<Instant, CallError> {
        self.record_loss(error);
        let pause = pool.decide_retry(self.number, deadline).map_err(|why| self.give_up(why))?;
        self.number += 1;
        Ok(after(Instant::now(), pause))
    }

    /// Records that the attempt lost its worker, without starting another.
    pub(super) fn record_loss(&mut self, error: CallError) {
        self.last = Some((self.number, error));
    }

    /// Admits the next attempt, after the pause.
    pub(super) fn admit(
        &self,
        pool: &PoolInner,
        command: &PoolCommand,
        input: &Encoded,
    ) -> Result<AdmissionPermit, CallError> {
        pool.admit_again(command, input, self.number).map_err(|why| self.give_up(why))
    }

    /// Returns the error of a call that lost its worker and is not repeated.
    pub(super) fn give_up(&self, why: NoRetry) -> CallError {
        match &self.last {
            Some((made, error)) => error.clone().given_up(*made, why),
            None => CallError::Cancelled,
        }
    }

    /// Replaces the error of an attempt that did not reach a worker by the error of the last one that did.
    pub(super) fn explain(&self, error: CallError) -> CallError {
        let why = match error.class() {
            ErrorClass::Unserved => NoRetry::Queue,
            ErrorClass::Saturated | ErrorClass::Later | ErrorClass::Stopped => NoRetry::Refused,
            ErrorClass::Refused if matches!(error, CallError::SessionLost { .. }) => NoRetry::Refused,
            _ => return error,
        };
        if self.last.is_some() { self.give_up(why) } else { error }
    }
}

impl CallError {
    /// Records how often the call was made, and why it is not made again.
    fn given_up(mut self, made: u32, why: NoRetry) -> Self {
        if let Self::WorkerDied { attempts, no_retry, .. } = &mut self {
            (*attempts, *no_retry) = (made, Some(why));
        }
        self
    }
}
