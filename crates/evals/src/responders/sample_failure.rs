//! The reasons why a sample has no score.

use std::time::Duration;

use super::pool_caller::WORKER_TIMEOUT;
use crate::error_text::with_causes;
use crate::{CallError, RemoteErrorKind, SampleOutcome, SampleStage};

/// The most bytes that are kept of an error's text. Tracebacks can be long, and there may be many.
const MAX_MESSAGE: usize = 4_000;

/// The reason why a sample has no score.
pub(crate) enum SampleFailure {
    /// A failure of this sample, which is recorded.
    Recorded(SampleOutcome),
    /// A failure that every sample would have. The evaluation ends, and can be resumed.
    Fatal(Box<CallError>),
}

impl SampleFailure {
    pub(crate) fn error(stage: SampleStage, message: impl Into<String>) -> Self {
        Self::Recorded(SampleOutcome::Error { stage, message: bounded(message.into()) })
    }

    pub(crate) fn timed_out(stage: SampleStage, message: String) -> Self {
        Self::Recorded(SampleOutcome::TimedOut { stage, message })
    }

    /// Converts the error of a call to the failure of its sample. The text must be the same in every run, so it
    /// contains no pids, stacks or last lines. The log contains them.
    pub(super) fn of_call(stage: SampleStage, error: CallError, timeout: Option<Duration>) -> Self {
        match error {
            error if is_fatal(&error) => Self::Fatal(Box::new(error)),
            CallError::Timeout { command, after, .. } => {
                let after = timeout.unwrap_or(after);
                Self::timed_out(stage, format!("{command} did not answer within {after:?}"))
            }
            CallError::WorkerDied { command, autopsy, .. } => {
                Self::error(stage, format!("the worker of {command} {}", autopsy.own_ending()))
            }
            // The sample is quarantined because its workers died in other experiments.
            CallError::Quarantined { command, autopsies, .. } if !autopsies.is_empty() => {
                let last = autopsies.last().map(|autopsy| autopsy.own_ending()).unwrap_or_default();
                Self::error(stage, format!("the worker of {command} {last}"))
            }
            CallError::QueueTimeout { command, .. } => {
                Self::timed_out(stage, format!("no worker was free for {command} within {WORKER_TIMEOUT:?}"))
            }
            error => Self::error(stage, with_causes(&error)),
        }
    }
}

/// Reports whether the error says nothing about the sample.
fn is_fatal(error: &CallError) -> bool {
    match error {
        CallError::NoSuchPool { .. } | CallError::Cancelled => true,
        CallError::Remote(error) => error.kind == RemoteErrorKind::UnknownCommand,
        // A sample that waits too long for a worker has timed out.
        _ => error.was_not_served() && !error.is_timeout(),
    }
}

/// Truncates a text that is too long for a record.
pub(crate) fn bounded(mut message: String) -> String {
    if message.len() > MAX_MESSAGE {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        message.push('…');
    }
    message
}
