//! Why a call failed, in words that name the thing, the place and the way out.

pub(crate) mod autopsy;
mod limits;
mod no_workers;
pub(crate) mod remote;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use super::CallId;
use crate::telemetry::TraceError;
use crate::value::ValueError;
pub use autopsy::{Autopsy, Verdict};
pub use no_workers::NoWorkersReason;
pub(crate) use no_workers::SCALED_TO_ZERO;
pub use remote::{RemoteError, RemoteErrorKind};
use snakepit_policy::{Fingerprint, NoRetry};

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The worker answered with an error: its code raised, or the call did not fit the command.
    #[error("{0}")]
    Remote(Box<RemoteError>),
    /// The worker died, or had to be ended, while it had the call.
    #[error(
        "call {call} of {command}{}{}: {autopsy}", shown_attempts(*.attempts, *.no_retry), shown_degraded(.degraded.as_deref())
    )]
    WorkerDied {
        /// The call.
        call: CallId,
        /// Its command.
        command: String,
        /// What is known about the death.
        autopsy: Box<Autopsy>,
        /// How often it was made.
        attempts: u32,
        /// Why it was not made again, if it is idempotent.
        no_retry: Option<NoRetry>,
        /// Why the pool is degraded, if it is.
        degraded: Option<Arc<str>>,
    },
    /// The caller's time ran out while a worker had the call.
    #[error(
        "{command} did not answer within {after:?}{}{}{}", shown_degraded(.degraded.as_deref()), shown_stack(.stack.as_deref()), shown_lines(.output)
    )]
    Timeout {
        /// The command.
        command: String,
        /// The time that it had.
        after: Duration,
        /// Where the worker was, if it could tell: the coroutine of this call, if it is one, and then its threads.
        stack: Option<String>,
        /// What the worker printed in this call: the first lines, the last ones, and those that say why something failed,
        /// with a line that counts what is left out. If it printed nothing, what came before, and a line that says so.
        output: Vec<String>,
        /// Why the pool is degraded, if it is.
        degraded: Option<Arc<str>>,
    },
    /// No worker was free in time.
    #[error(
        "pool {pool}: no worker was free for {command} within {after:?}, {depth} other calls wait: add workers, or raise queue_timeout{}",
        shown_degraded(.degraded.as_deref())
    )]
    QueueTimeout {
        /// The pool.
        pool: String,
        /// The command.
        command: String,
        /// How long it waited.
        after: Duration,
        /// How many others wait.
        depth: usize,
        /// Why the pool is degraded, if it is.
        degraded: Option<Arc<str>>,
    },
    /// Too many calls wait already.
    #[error(
        "pool {pool} is saturated: {depth} calls wait, and no more are taken: call less, add workers, or raise queue_limit{}",
        shown_degraded(.degraded.as_deref())
    )]
    Saturated {
        /// The pool.
        pool: String,
        /// How many wait.
        depth: usize,
        /// Why the pool is degraded, if it is.
        degraded: Option<Arc<str>>,
    },
    /// The session's worker is busy, and the pool's affinity is `strict_fail_fast`.
    #[error(
        "session {session}: its worker {worker} is busy, and strict_fail_fast lets no other one serve it"
    )]
    SessionBusy {
        /// The session.
        session: String,
        /// The worker.
        worker: String,
    },
    /// The session's worker is gone, and the pool's `lost_sessions` is `fail`.
    #[error(
        "session {session} has lost its worker {worker}, and what it had there: end it with end_session, and begin anew"
    )]
    SessionLost {
        /// The session.
        session: String,
        /// The worker that is gone.
        worker: String,
    },
    /// There are too many sessions.
    #[error("pool {pool} has {limit} sessions, and no more are taken: end some, or raise max_sessions")]
    TooManySessions {
        /// The pool.
        pool: String,
        /// How many there may be.
        limit: usize,
    },
    /// Calls wait for one another too deeply.
    #[error("refused, because {depth} calls wait for one another: {cycle}")]
    Cycle {
        /// How many.
        depth: usize,
        /// Who waits for whom.
        cycle: String,
    },
    /// There is no such pool.
    #[error("there is no pool {name}; there is {known}")]
    NoSuchPool {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The pool has no worker, and could not start one.
    #[error("pool {pool} has no worker{}: {reason}", if .degraded.is_some() { DEGRADED } else { "" })]
    NoWorkers {
        /// The pool.
        pool: String,
        /// Why.
        reason: NoWorkersReason,
        /// Why the pool is degraded, if it is.
        degraded: Option<Arc<str>>,
    },
    /// Workers keep dying of this call.
    #[error(
        "{command} with these arguments is refused, because {} workers died of it: mend it, or release {fingerprint}{}",
        .autopsies.len(), listed(.autopsies)
    )]
    Quarantined {
        /// Its command.
        command: String,
        /// By which it is released, with [`Pool::release`](crate::Pool::release).
        fingerprint: Fingerprint,
        /// How they died, the last one last.
        autopsies: Vec<Arc<Autopsy>>,
    },
    /// Too many of the last calls lost their workers or their time.
    #[error(
        "pool {pool}: {} refused, because too many of the last ones lost their workers or their time: try again in {retry_in:?}",
        shown_scope(.command.as_deref())
    )]
    CircuitOpen {
        /// The pool.
        pool: String,
        /// The command, if its calls are refused and not all of the pool.
        command: Option<String>,
        /// When another call may be let in.
        retry_in: Duration,
    },
    /// The arguments cannot be sent.
    #[error("the arguments of {command} cannot be sent")]
    Arguments {
        /// The command.
        command: String,
        /// Where in them, and why.
        #[source]
        source: ValueError,
    },
    /// What was said about its trace is none.
    #[error("{command} is not called with a trace context that is none")]
    Trace {
        /// The command.
        command: String,
        /// What is wrong with it.
        #[source]
        source: TraceError,
    },
    /// The result is not what the caller expects.
    #[error("the result of {command} is not what was expected")]
    Result {
        /// The command.
        command: String,
        /// Where in it, and why.
        #[source]
        source: ValueError,
    },
    /// The call was cancelled.
    #[error("the call was cancelled")]
    Cancelled,
    /// The pool is stopping or has stopped.
    #[error("the pool has stopped: the call was not started")]
    Stopped,
}

impl CallError {
    /// Its name, as policies match it: that of its variant, or the type of an error of the worker.
    pub fn name(&self) -> &str {
        match self {
            Self::Remote(error) => error.type_name.as_deref().unwrap_or(error.kind.as_str()),
            Self::WorkerDied { .. } => "WorkerDied",
            Self::Timeout { .. } => "Timeout",
            Self::QueueTimeout { .. } => "QueueTimeout",
            Self::Saturated { .. } => "Saturated",
            Self::SessionBusy { .. } => "SessionBusy",
            Self::SessionLost { .. } => "SessionLost",
            Self::TooManySessions { .. } => "TooManySessions",
            Self::Cycle { .. } => "Cycle",
            Self::NoSuchPool { .. } => "NoSuchPool",
            Self::NoWorkers { .. } => "NoWorkers",
            Self::Quarantined { .. } => "Quarantined",
            Self::CircuitOpen { .. } => "CircuitOpen",
            Self::Arguments { .. } => "Arguments",
            Self::Trace { .. } => "Trace",
            Self::Result { .. } => "Result",
            Self::Cancelled => "Cancelled",
            Self::Stopped => "Stopped",
        }
    }

    /// Whether time ran out: in the queue, at the worker, or by the worker's own judgement.
    pub fn is_timeout(&self) -> bool {
        match self {
            Self::Remote(error) => error.kind == RemoteErrorKind::Deadline,
            Self::Timeout { .. } | Self::QueueTimeout { .. } => true,
            _ => false,
        }
    }

    /// Whether the worker died, or had to be ended, while it had the call.
    pub fn worker_died(&self) -> bool {
        matches!(self, Self::WorkerDied { .. })
    }

    /// Whether the command may have begun. If not, the call has changed nothing, and making it again is safe.
    pub fn was_started(&self) -> bool {
        match self.class() {
            ErrorClass::Answered | ErrorClass::Died | ErrorClass::TimedOut | ErrorClass::Cancelled => {
                self.remote().is_none_or(RemoteError::may_have_run)
            }
            ErrorClass::Unserved
            | ErrorClass::Saturated
            | ErrorClass::Later
            | ErrorClass::Refused
            | ErrorClass::Stopped => false,
        }
    }

    /// Whether the command has surely not begun, and the same call may succeed later: nothing is wrong with the call itself.
    pub fn is_retryable(&self) -> bool {
        self.retry_after().is_some()
    }

    /// When the call is worth making again, if it [is](CallError::is_retryable): zero if nobody knows.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use snakepit::CallError;
    /// fn pause(error: &CallError) -> Option<Duration> {
    ///     error.retry_after().map(|after| after.max(Duration::from_millis(50)))
    /// }
    /// assert_eq!(pause(&CallError::Stopped), Some(Duration::from_millis(50)));
    /// assert_eq!(pause(&CallError::Cancelled), None);
    /// ```
    pub fn retry_after(&self) -> Option<Duration> {
        match (self.class(), self) {
            (_, Self::CircuitOpen { retry_in, .. }) => Some(*retry_in),
            (ErrorClass::Unserved | ErrorClass::Saturated | ErrorClass::Later | ErrorClass::Stopped, _) => {
                Some(Duration::ZERO)
            }
            (
                ErrorClass::Answered
                | ErrorClass::Died
                | ErrorClass::TimedOut
                | ErrorClass::Refused
                | ErrorClass::Cancelled,
                _,
            ) => None,
        }
    }

    /// What retries, the circuit breaker, the counters of a pool, loops and evaluations tell errors apart by.
    pub(crate) fn class(&self) -> ErrorClass {
        match self {
            Self::Remote(_) | Self::Result { .. } => ErrorClass::Answered,
            Self::WorkerDied { .. } => ErrorClass::Died,
            Self::Timeout { .. } => ErrorClass::TimedOut,
            Self::QueueTimeout { .. } | Self::NoWorkers { .. } => ErrorClass::Unserved,
            Self::Saturated { .. } => ErrorClass::Saturated,
            Self::SessionBusy { .. } | Self::TooManySessions { .. } | Self::CircuitOpen { .. } => {
                ErrorClass::Later
            }
            Self::SessionLost { .. }
            | Self::Cycle { .. }
            | Self::NoSuchPool { .. }
            | Self::Quarantined { .. }
            | Self::Arguments { .. }
            | Self::Trace { .. } => ErrorClass::Refused,
            Self::Cancelled => ErrorClass::Cancelled,
            Self::Stopped => ErrorClass::Stopped,
        }
    }

    /// The worker's own error, if that is what this is.
    pub fn remote(&self) -> Option<&RemoteError> {
        match self {
            Self::Remote(error) => Some(error),
            _ => None,
        }
    }

    /// What is known about the worker's death, if that is what this is.
    pub fn autopsy(&self) -> Option<&Autopsy> {
        match self {
            Self::WorkerDied { autopsy, .. } => Some(autopsy),
            _ => None,
        }
    }
}

/// What errors of calls have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ErrorClass {
    /// A worker answered.
    Answered,
    /// The worker was lost with the call.
    Died,
    /// A worker did not answer in time.
    TimedOut,
    /// No worker took the call.
    Unserved,
    /// Too many others waited.
    Saturated,
    /// Refused for now.
    Later,
    /// Refused, today and tomorrow.
    Refused,
    /// Given up by the caller.
    Cancelled,
    /// The pool stopped.
    Stopped,
}

/// What is said of a pool whose workers fail again and again.
const DEGRADED: &str = ", and is degraded, for they fail again and again";

/// The first line of why a pool is degraded; the others may be what a worker has printed.
fn shown_degraded(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| {
        let first = reason.lines().next().unwrap_or_default();
        format!("; the pool is degraded, for its workers fail again and again ({first})")
    })
}

fn shown_attempts(attempts: u32, no_retry: Option<NoRetry>) -> String {
    let times = if attempts == 1 { "once" } else { &format!("{attempts} times") };
    no_retry.map_or_else(String::new, |why| format!(", made {times} and not again, because {why}"))
}

fn shown_scope(command: Option<&str>) -> String {
    command.map_or_else(|| "calls are".into(), |command| format!("calls of {command} are"))
}

fn listed(autopsies: &[Arc<Autopsy>]) -> String {
    let mut list = String::new();
    for (autopsy, number) in autopsies.iter().zip(1..) {
        let _ = write!(list, "\n{number}. {autopsy}");
    }
    list
}

fn shown_stack(stack: Option<&str>) -> String {
    stack.map_or_else(String::new, |stack| format!("; it was here:\n{}", stack.trim_end()))
}

fn shown_lines(output: &[String]) -> String {
    if output.is_empty() {
        return String::new();
    }
    format!("\nits worker's last lines:\n  {}", output.join("\n  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(kind: RemoteErrorKind) -> CallError {
        CallError::Remote(Box::new(RemoteError::new(kind, "no")))
    }

    #[test]
    fn an_error_says_whether_the_call_was_started_and_when_it_is_worth_making_again() {
        let pause = Duration::from_secs(3);
        let (pool, command) = ("a".to_owned(), "add".to_owned());
        let open = CallError::CircuitOpen { pool: pool.clone(), command: None, retry_in: pause };
        let saturated = CallError::Saturated { pool: pool.clone(), depth: 1, degraded: None };
        let queue = CallError::QueueTimeout {
            pool,
            command: command.clone(),
            after: pause,
            depth: 1,
            degraded: None,
        };
        let timeout =
            CallError::Timeout { command, after: pause, stack: None, output: Vec::new(), degraded: None };
        let lost = CallError::SessionLost { session: "s".into(), worker: "w".into() };
        for (error, is_timeout, was_started, retry_after) in [
            (open, false, false, Some(pause)),
            (saturated, false, false, Some(Duration::ZERO)),
            (queue, true, false, Some(Duration::ZERO)),
            (CallError::Stopped, false, false, Some(Duration::ZERO)),
            (lost, false, false, None),
            (timeout, true, true, None),
            (CallError::Cancelled, false, true, None),
            (remote(RemoteErrorKind::Exception), false, true, None),
            (remote(RemoteErrorKind::Deadline), true, true, None),
            (remote(RemoteErrorKind::UnknownCommand), false, false, None),
            (remote(RemoteErrorKind::from("new_in_2030")), false, true, None),
        ] {
            assert_eq!(error.is_timeout(), is_timeout, "{error:?}");
            assert_eq!(error.was_started(), was_started, "{error:?}");
            assert_eq!(error.retry_after(), retry_after, "{error:?}");
            assert_eq!(error.is_retryable(), retry_after.is_some(), "{error:?}");
        }
    }
}
