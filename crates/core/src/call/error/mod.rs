//! Why a call failed. Each error names the thing, the place and the way out.

pub(crate) mod autopsy;
mod missing_workers;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use super::CallId;
use crate::telemetry::TraceError;
use crate::value::ValueError;
pub use autopsy::Autopsy;
pub use missing_workers::NoWorkersReason;
pub(crate) use missing_workers::SCALED_TO_ZERO;
use snakepit_policy::{Fingerprint, NoRetry};
pub use snakepit_process_stats::OomVerdict;
pub use snakepit_protocol::message::{RemoteError, RemoteErrorKind};

/// Why a call failed.
///
/// ```no_run
/// use snakepit::{CallError, args};
///
/// # async fn example(pit: snakepit::Snakepit) {
/// match pit.call::<i64>("divide", args! { a: 1, b: 0 }).await {
///     Ok(quotient) => println!("{quotient}"),
///     Err(CallError::Remote(error)) => eprintln!("{error}\n{}", error.traceback.as_deref().unwrap_or_default()),
///     Err(CallError::WorkerDied { autopsy, .. }) => eprintln!("{autopsy}"),
///     Err(error) if error.is_retryable() => eprintln!("later, after {:?}: {error}", error.retry_after()),
///     Err(error) => eprintln!("{error}"),
/// }
/// # }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The worker answered with an error: its code raised an exception, or the call does not fit the command.
    #[error("{0}")]
    Remote(Box<RemoteError>),
    /// The worker died, or had to be ended, while it had the call.
    #[error(
        "call {call} of {command}{}{}: {autopsy}", shown_attempts(*.attempts, *.no_retry), shown_degraded(.degraded.as_deref())
    )]
    WorkerDied {
        /// The call.
        call: CallId,
        /// The command of the call.
        command: String,
        /// What is known about the death.
        autopsy: Box<Autopsy>,
        /// The number of attempts.
        attempts: u32,
        /// Why the call was not repeated, if it is idempotent.
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
        /// The time that the call had.
        after: Duration,
        /// Where the worker was, if it could say: the coroutine of this call, if it is one, and then the worker's
        /// threads.
        stack: Option<String>,
        /// What the worker printed during this call: the first lines, the last lines, the lines that say why something
        /// failed, and a line that counts the lines left out. If the worker printed nothing, the lines from before the
        /// call, and a line that says so.
        output: Vec<String>,
        /// Why the pool is degraded, if it is.
        degraded: Option<Arc<str>>,
    },
    /// No worker was free in time.
    #[error(
        "pool {pool}: no worker was free for {command} within {after:?}, and {depth} other calls wait: add workers, or raise queue_timeout{}",
        shown_degraded(.degraded.as_deref())
    )]
    QueueTimeout {
        /// The pool.
        pool: String,
        /// The command.
        command: String,
        /// How long the call waited.
        after: Duration,
        /// The number of other calls that wait.
        depth: usize,
        /// Why the pool is degraded, if it is.
        degraded: Option<Arc<str>>,
    },
    /// Too many calls wait already.
    #[error(
        "pool {pool} is saturated: {depth} calls wait, and no more are accepted: make fewer calls at a time, add workers, or raise queue_limit{}",
        shown_degraded(.degraded.as_deref())
    )]
    Saturated {
        /// The pool.
        pool: String,
        /// The number of calls that wait.
        depth: usize,
        /// Why the pool is degraded, if it is.
        degraded: Option<Arc<str>>,
    },
    /// The session's worker is busy, and the pool's affinity is `strict_fail_fast`.
    #[error(
        "session {session}: its worker {worker} is busy, and strict_fail_fast neither waits nor uses another worker: try \
         again later, or set the affinity to strict_queue"
    )]
    SessionBusy {
        /// The session.
        session: String,
        /// The worker.
        worker: String,
    },
    /// The session's worker is gone, and the pool's `lost_sessions` is `fail`.
    #[error(
        "session {session} has lost its worker {worker} and the state that it had there: end it with end_session, and start a \
         new one"
    )]
    SessionLost {
        /// The session.
        session: String,
        /// The worker that is gone.
        worker: String,
    },
    /// The pool has too many sessions.
    #[error("pool {pool} has {limit} sessions, and no more are accepted: end some, or raise max_sessions")]
    TooManySessions {
        /// The pool.
        pool: String,
        /// The largest number of sessions.
        limit: usize,
    },
    /// Too many calls wait for one another.
    #[error(
        "the call was refused, because {depth} calls already wait for one another: {cycle}; let a tool return before it calls \
         again"
    )]
    Cycle {
        /// The number of calls.
        depth: usize,
        /// Which call waits for which.
        cycle: String,
    },
    /// No pool has this name.
    #[error("there is no pool {name}; the pools are {known}")]
    NoSuchPool {
        /// The name that was asked for.
        name: String,
        /// The names of the pools that exist.
        known: String,
    },
    /// The pool has no worker, and could not start one.
    #[error("pool {pool} has no worker{}: {reason}", if .degraded.is_some() { DEGRADED } else { "" })]
    NoWorkers {
        /// The pool.
        pool: String,
        /// Why the pool has no worker.
        reason: NoWorkersReason,
        /// Why the pool is degraded, if it is.
        degraded: Option<Arc<str>>,
    },
    /// Workers keep dying of this call.
    #[error(
        "{command} with these arguments is refused, because {} workers died of it: correct the call, or release its fingerprint {fingerprint}{}",
        .autopsies.len(), listed(.autopsies)
    )]
    Quarantined {
        /// The command of the call.
        command: String,
        /// The fingerprint that releases the call, with [`Pool::release`](crate::Pool::release).
        fingerprint: Fingerprint,
        /// The deaths of the workers, the last one last.
        autopsies: Vec<Arc<Autopsy>>,
    },
    /// Too many of the last calls lost their worker or ran out of time.
    #[error(
        "pool {pool}: {} refused, because too many recent ones lost their workers or timed out: try again in {retry_in:?}",
        shown_scope(.command.as_deref())
    )]
    CircuitOpen {
        /// The pool.
        pool: String,
        /// The command, if only its calls are rejected. `None` if all calls of the pool are.
        command: Option<String>,
        /// The time until another call may be admitted.
        retry_in: Duration,
    },
    /// The arguments cannot be sent.
    #[error("the arguments of {command} cannot be sent")]
    Arguments {
        /// The command.
        command: String,
        /// The place in the arguments, and the reason.
        #[source]
        source: ValueError,
    },
    /// The trace context of the call is invalid.
    #[error("{command} was not called, because its trace context is invalid")]
    Trace {
        /// The command.
        command: String,
        /// What is wrong with the trace context.
        #[source]
        source: TraceError,
    },
    /// The result is not what the caller expects.
    #[error("the result of {command} does not have the expected type")]
    Result {
        /// The command.
        command: String,
        /// The place in the result, and the reason.
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
    /// Returns the name that policies match: the name of the variant, or the type of a worker's error.
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

    /// Reports whether time ran out: in the queue, at the worker, or by the worker's own judgement.
    pub fn is_timeout(&self) -> bool {
        match self {
            Self::Remote(error) => error.kind == RemoteErrorKind::Deadline,
            Self::Timeout { .. } | Self::QueueTimeout { .. } => true,
            _ => false,
        }
    }

    /// Reports whether the worker died, or had to be ended, while it had the call.
    pub fn worker_died(&self) -> bool {
        matches!(self, Self::WorkerDied { .. })
    }

    /// Reports whether the command may have begun. If not, the call has changed nothing and can safely be repeated.
    pub fn was_started(&self) -> bool {
        match self.class() {
            ErrorClass::Answered | ErrorClass::Died | ErrorClass::TimedOut | ErrorClass::Cancelled => {
                self.remote().is_none_or(may_have_run)
            }
            ErrorClass::Unserved
            | ErrorClass::Saturated
            | ErrorClass::Later
            | ErrorClass::Refused
            | ErrorClass::Stopped => false,
        }
    }

    /// Reports whether the pool did not serve the call, for a reason that lies with the pool and not with the call: no
    /// worker was free, the queue was full, the pool has stopped, and the like.
    pub fn was_not_served(&self) -> bool {
        match self.class() {
            ErrorClass::Unserved | ErrorClass::Saturated | ErrorClass::Later | ErrorClass::Stopped => true,
            ErrorClass::Answered
            | ErrorClass::Died
            | ErrorClass::TimedOut
            | ErrorClass::Refused
            | ErrorClass::Cancelled => false,
        }
    }

    /// Reports whether the same call may succeed later: the pool [did not serve](CallError::was_not_served) it, but may
    /// do so without anybody's help. A pool that was stopped or scaled to zero does not.
    pub fn is_retryable(&self) -> bool {
        self.retry_after().is_some()
    }

    /// Returns how long to wait before you repeat a call that is [retryable](CallError::is_retryable). Zero means that
    /// the time is unknown.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use snakepit::CallError;
    /// fn pause(error: &CallError) -> Option<Duration> {
    ///     error.retry_after().map(|after| after.max(Duration::from_millis(50)))
    /// }
    /// let saturated = CallError::Saturated { pool: "numbers".into(), depth: 1000, degraded: None };
    /// assert_eq!(pause(&saturated), Some(Duration::from_millis(50)));
    /// assert_eq!(pause(&CallError::Stopped), None);
    /// ```
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::CircuitOpen { retry_in, .. } => Some(*retry_in),
            Self::Stopped | Self::NoWorkers { reason: NoWorkersReason::ScaledToZero, .. } => None,
            _ => self.was_not_served().then_some(Duration::ZERO),
        }
    }

    /// Returns the class by which retries, the circuit breaker, a pool's counters, loops and evaluations distinguish
    /// errors.
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

    /// Returns the worker's own error, if this is one.
    pub fn remote(&self) -> Option<&RemoteError> {
        match self {
            Self::Remote(error) => Some(error),
            _ => None,
        }
    }

    /// Returns what is known about the worker's death, if the worker died.
    pub fn autopsy(&self) -> Option<&Autopsy> {
        match self {
            Self::WorkerDied { autopsy, .. } => Some(autopsy),
            _ => None,
        }
    }
}

/// What an error of a call means, independent of its details.
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
    /// Too many other calls waited.
    Saturated,
    /// Rejected for now.
    Later,
    /// Rejected for good.
    Refused,
    /// The caller gave up the call.
    Cancelled,
    /// The pool stopped.
    Stopped,
}

/// What an error adds about a pool whose workers keep failing.
const DEGRADED: &str = " and is degraded, because its workers fail again and again";

/// Shows the first line of the reason why a pool is degraded. Further lines may be output of a worker.
fn shown_degraded(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| {
        let first = reason.lines().next().unwrap_or_default();
        format!("; the pool is degraded, because its workers fail again and again ({first})")
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

/// Reports whether the command's code has run. With an error of another kind, the call did not get that far.
pub(crate) fn has_run(error: &RemoteError) -> bool {
    use RemoteErrorKind::{BadValue, Deadline, Exception};
    matches!(error.kind, Exception | BadValue | Deadline)
}

/// Reports whether the command's code may have run. Only some kinds rule that out.
fn may_have_run(error: &RemoteError) -> bool {
    use RemoteErrorKind::{BadArgument, Refused, Start, UnknownCommand};
    !matches!(error.kind, BadArgument | Refused | Start | UnknownCommand)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(kind: RemoteErrorKind) -> CallError {
        CallError::Remote(Box::new(RemoteError::new(kind, "no")))
    }

    #[test]
    fn an_error_says_whether_the_call_was_started_and_when_to_retry_it() {
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
        let empty =
            CallError::NoWorkers { pool: "a".into(), reason: NoWorkersReason::ScaledToZero, degraded: None };
        let lost = CallError::SessionLost { session: "s".into(), worker: "w".into() };
        for (error, is_timeout, was_started, retry_after) in [
            (open, false, false, Some(pause)),
            (saturated, false, false, Some(Duration::ZERO)),
            (queue, true, false, Some(Duration::ZERO)),
            (CallError::Stopped, false, false, None),
            (empty, false, false, None),
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
