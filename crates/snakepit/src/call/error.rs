//! Why a call failed, in words that name the thing, the place and the way out.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::CallId;
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
    #[error("call {call} of {command}: {autopsy}")]
    WorkerDied {
        /// The call.
        call: CallId,
        /// Its command.
        command: String,
        /// What is known about the death.
        autopsy: Box<Autopsy>,
    },
    /// The caller's time ran out while a worker had the call.
    #[error("{command} did not answer within {after:?}{}", shown_stack(.stack.as_deref()))]
    Timeout {
        /// The command.
        command: String,
        /// The time that it had.
        after: Duration,
        /// Where the worker's threads were, if it could tell.
        stack: Option<String>,
        /// What the worker printed last.
        output: Vec<String>,
    },
    /// No worker was free in time.
    #[error(
        "pool {pool}: no worker was free for {command} within {after:?}, {depth} other calls wait: add workers, or raise queue_timeout"
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
    },
    /// Too many calls wait already.
    #[error(
        "pool {pool} is saturated: {depth} calls wait, and no more are taken: call less, add workers, or raise queue_limit"
    )]
    Saturated {
        /// The pool.
        pool: String,
        /// How many wait.
        depth: usize,
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
    #[error("pool {pool} has no worker: {reason}")]
    NoWorkers {
        /// The pool.
        pool: String,
        /// Why the last one could not be started.
        reason: String,
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

fn shown_stack(stack: Option<&str>) -> String {
    stack.map_or_else(String::new, |stack| format!("; it was here:\n{}", stack.trim_end()))
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

    /// The error and its causes, the outermost first.
    pub fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |error| error.cause.as_deref())
    }
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.type_name, self.message.is_empty()) {
            (Some(name), false) => write!(f, "{name}: {}", self.message),
            (Some(name), true) => f.write_str(name),
            (None, _) => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for RemoteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| cause.as_ref() as _)
    }
}
