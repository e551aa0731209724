//! The attempts of a call, of a stream, or of inputs of a map that travel together: which comes next, when, and with
//! whose permit.
//!
//! ```text
//! Ready ──lost──────────────► decide ──► Paused ──due and admitted──► Ready, as the next attempt
//!   │                           │           │
//!   │                           └───────────┼──► given up
//!   │                                       │
//!   └──lost with other inputs────────────► Alone ──admitted─────────► Ready, as the same attempt
//! ```
//!
//! An attempt is `Ready` until it ends. `Alone` is still the same attempt, with the same permit: of a list of inputs, it
//! is unknown which one the worker died of. What is given up ends with the error of the last attempt that lost its
//! worker, and with the reason why there is no other.

use std::time::Duration;

use tokio::time::Instant;

use crate::call::{CallError, ErrorClass, PoolCommand};
use crate::queue::{AdmissionPermit, PoolInner};
use crate::value::Encoded;
use snakepit_policy::NoRetry;
use snakepit_policy::time::after;

/// The attempts so far, and what has to happen before the next one.
#[derive(Clone)]
pub(super) struct Attempts {
    /// The number of the attempt that is under way, or comes next.
    number: u32,
    step: AttemptStep,
    /// The last attempt that lost its worker: its number and its error.
    last: Option<(u32, CallError)>,
    /// When the time of the call began. `None` if it begins with the next attempt.
    began: Option<Instant>,
    timeout: Duration,
}

/// What has to happen before an attempt is made.
#[derive(Clone, Copy)]
enum AttemptStep {
    /// Nothing, because the permits are there.
    Ready,
    /// Workers may not have died too often of the input.
    Alone,
    /// The time has to come, and new permits are needed.
    Paused(Instant),
}

impl Attempts {
    /// Creates the first attempt. Its permits are there.
    pub(super) fn first(began: Option<Instant>, timeout: Duration) -> Self {
        Self { number: 1, step: AttemptStep::Ready, last: None, began, timeout }
    }

    /// Returns when the time of the call began, which is now if it did not begin before.
    pub(super) fn begin(&mut self) -> Instant {
        *self.began.get_or_insert_with(Instant::now)
    }

    pub(super) fn is_ready(&self) -> bool {
        matches!(self.step, AttemptStep::Ready)
    }

    /// Records that the attempt lost its worker, also with the breaker, which gets its permits back.
    pub(super) fn lose<'a>(
        &mut self,
        pool: &PoolInner,
        command: &PoolCommand,
        permits: impl IntoIterator<Item = &'a mut AdmissionPermit>,
        error: CallError,
    ) {
        for permit in permits {
            pool.attempt_lost(command, permit);
        }
        self.last = Some((self.number, error));
    }

    /// Decides whether a lost attempt is followed by another. Returns the caller's error if it is not.
    pub(super) fn repeat(&mut self, pool: &PoolInner) -> Result<(), CallError> {
        let deadline = after(self.begin(), self.timeout);
        let pause = pool.decide_retry(self.number, deadline).map_err(|why| self.give_up(why))?;
        self.number += 1;
        self.step = AttemptStep::Paused(after(Instant::now(), pause));
        Ok(())
    }

    /// Returns the same attempt for inputs that were sent with it, but that no worker has begun. The time of a first
    /// attempt begins again.
    pub(super) fn not_begun(&self) -> Self {
        let began = self.began.filter(|_| self.number > 1);
        Self { step: AttemptStep::Ready, began, ..self.clone() }
    }

    /// Returns the same attempt for one of several inputs that lost their worker together.
    pub(super) fn alone(&self, error: CallError) -> Self {
        Self { step: AttemptStep::Alone, last: Some((self.number, error)), ..self.not_begun() }
    }

    /// Waits until the attempt may be made.
    pub(super) async fn due(&self) {
        if let AttemptStep::Paused(until) = self.step {
            tokio::time::sleep_until(until).await;
        }
    }

    /// Admits the call or an input to the attempt, when it is due. Returns the caller's error if it is rejected.
    pub(super) fn admit(
        &self,
        pool: &PoolInner,
        command: &PoolCommand,
        input: &Encoded,
        permit: &mut AdmissionPermit,
    ) -> Result<(), CallError> {
        let admitted = match self.step {
            AttemptStep::Alone if pool.refuses(command, input).is_some() => Err(NoRetry::Quarantined),
            AttemptStep::Ready | AttemptStep::Alone => Ok(()),
            AttemptStep::Paused(_) => {
                pool.admit_again(command, input, self.number).map(|admitted| *permit = admitted)
            }
        };
        admitted.map_err(|why| self.give_up(why))
    }

    /// Records that everything was admitted that goes with the attempt.
    pub(super) fn admitted(&mut self) {
        self.step = AttemptStep::Ready;
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::adapter::testing::NoWorkers;
    use crate::call::{CallId, crash};
    use crate::logging::Logging;
    use crate::options::PoolOptions;
    use crate::tool::Tools;
    use crate::worker::OomDetector;
    use snakepit_policy::Retry;
    use snakepit_policy::quarantine::{Blame, Charge};

    const LONG: Duration = Duration::from_mins(1);

    fn pool(retry: Retry) -> Arc<PoolInner> {
        let (options, runtime) = (PoolOptions::new("pool", NoWorkers), tokio::runtime::Handle::current());
        let (oom, logging) = (OomDetector::default(), Logging::default());
        PoolInner::new(options.retry(retry), Arc::new(Tools::default()), runtime, oom, logging)
    }

    fn died() -> CallError {
        CallError::WorkerDied {
            call: CallId::next(),
            command: "add".into(),
            autopsy: Box::new(crash()),
            attempts: 1,
            no_retry: None,
            degraded: None,
        }
    }

    fn reason(error: &CallError) -> Option<(u32, NoRetry)> {
        match error {
            CallError::WorkerDied { attempts, no_retry, .. } => no_retry.map(|why| (*attempts, why)),
            _ => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_attempt_is_repeated_when_it_is_due_until_all_were_made() {
        let pool = pool(Retry::default().attempts(2).first_pause(Duration::from_secs(1)));
        let (command, mut permit) = (PoolCommand::new("add"), AdmissionPermit::default());
        let mut attempts = Attempts::first(None, LONG);
        let began = attempts.begin();
        attempts.lose(&pool, &command, [&mut permit], died());
        attempts.repeat(&pool).expect("there is a second attempt");
        assert!(!attempts.is_ready());
        attempts.due().await;
        assert!(began.elapsed() <= Duration::from_secs(1), "the pause is over");
        attempts.admit(&pool, &command, &Encoded::nil(), &mut permit).expect("it is admitted");
        attempts.admitted();
        assert!(attempts.is_ready());
        assert_eq!(pool.outcomes().retried, 1);
        attempts.lose(&pool, &command, [&mut permit], died());
        let error = attempts.repeat(&pool).expect_err("there is no third attempt");
        assert_eq!(reason(&error), Some((2, NoRetry::Attempts)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_call_goes_on_while_it_is_repeated() {
        let pool = pool(Retry::default());
        let mut attempts = Attempts::first(Some(Instant::now()), LONG);
        tokio::time::advance(LONG).await;
        attempts.lose(&pool, &PoolCommand::new("add"), [], died());
        let error = attempts.repeat(&pool).expect_err("its time is over");
        assert_eq!(reason(&error), Some((1, NoRetry::Deadline)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_inputs_that_no_worker_has_begun_begins_again_only_in_the_first_attempt() {
        let (pool, command) = (pool(Retry::default().first_pause(Duration::ZERO)), PoolCommand::new("add"));
        let mut attempts = Attempts::first(None, LONG);
        let began = attempts.begin();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(attempts.not_begun().begin(), began + Duration::from_secs(1));
        attempts.lose(&pool, &command, [], died());
        attempts.repeat(&pool).expect("there is a second attempt");
        let mut rest = attempts.not_begun();
        assert_eq!(rest.begin(), began);
        assert!(rest.is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn an_input_that_was_lost_with_others_goes_alone_unless_it_is_quarantined() {
        let (pool, command, input) = (pool(Retry::default()), PoolCommand::new("add"), Encoded::nil());
        let mut permit = AdmissionPermit::default();
        let alone = Attempts::first(None, LONG).alone(died());
        assert!(!alone.is_ready());
        alone.admit(&pool, &command, &input, &mut permit).expect("it is admitted");
        assert_eq!(pool.outcomes().retried, 0, "it is the same attempt");
        for number in 0..3 {
            let worker = crate::custody::WorkerId::new(format!("w{number}")).expect("an id");
            let autopsy = Arc::new(crate::call::Autopsy { worker, ..crash() });
            pool.suspect(&command, &input, &autopsy, Charge { blame: Blame::Own, among: 1 });
        }
        let error = alone.admit(&pool, &command, &input, &mut permit).expect_err("workers die of it");
        assert_eq!(reason(&error), Some((1, NoRetry::Quarantined)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_before_the_first_loss_stays_and_a_later_one_says_why_the_call_ended() {
        let pool = pool(Retry::default());
        let mut attempts = Attempts::first(None, LONG);
        assert!(matches!(attempts.explain(CallError::Stopped), CallError::Stopped));
        attempts.lose(&pool, &PoolCommand::new("add"), [], died());
        assert_eq!(reason(&attempts.explain(CallError::Stopped)), Some((1, NoRetry::Refused)));
        assert!(matches!(attempts.explain(CallError::Cancelled), CallError::Cancelled));
    }
}
