//! Why a call failed, in words that name the thing, the place and the way out.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::CallId;
use crate::harmless;
use crate::supervision::{Fingerprint, NoRetry};
use crate::telemetry::TraceError;
use crate::value::ValueError;
use crate::worker::Autopsy;

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
        /// Why the last one could not be started.
        reason: String,
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
        /// By which it is released, with [`PoolRef::release`](crate::PoolRef::release).
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

/// An error as a worker (or a tool) tells it: an exception with its causes, or a call that did not fit.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RemoteError {
    /// `exception`, `unknown_command`, `bad_argument`, …: see `spec/wire.md`.
    pub kind: String,
    /// The exception's type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_name: Option<String>,
    /// Its message.
    pub message: String,
    /// Where it was raised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceback: Option<String>,
    /// What caused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Box<RemoteError>>,
    /// Notes that were added to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Commands with names like the unknown one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nearest: Vec<String>,
    /// Which argument is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameter: Option<String>,
    /// Where inside the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl RemoteError {
    /// An error with nothing but a kind and a message.
    pub fn new(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind: kind.into(), message: message.into(), ..Self::default() }
    }

    /// The error of a call that was made without `stream`, of a command that streams.
    pub(crate) fn streaming(command: &str) -> Self {
        Self::new("streaming", format!("{command} streams its answer; call it as a stream"))
    }

    /// Whether the command's code has run: with other errors, the call did not get so far.
    pub(super) fn has_run(&self) -> bool {
        matches!(self.kind.as_str(), "exception" | "bad_value" | "deadline")
    }

    /// The error and its causes, the outermost first.
    pub fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |error| error.cause.as_deref())
    }
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.type_name, self.message.is_empty()) {
            (Some(name), false) => write!(f, "{}: {}", harmless(name), harmless(&self.message)),
            (Some(name), true) => f.write_str(&harmless(name)),
            (None, _) => f.write_str(&harmless(&self.message)),
        }
    }
}

impl std::error::Error for RemoteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| cause.as_ref() as _)
    }
}
