//! The outcome of handling a message.

use std::time::Duration;

use crate::HandlerFailure;
use crate::mailbox::MailboxError;

/// The name of the failure of a reply that cannot be written or that its mailbox rejects.
pub(super) const REPLY_FAILED: &str = "ReplyFailed";

/// The name of the failure of a body that the handler cannot read.
const UNDECODABLE: &str = "Undecodable";

/// The outcome of handling a message.
#[derive(Debug)]
pub(crate) enum HandlingOutcome {
    /// The message is handled. Contains the reply, if one is wanted.
    Done(Option<Vec<u8>>),
    /// The handler failed.
    Failed(HandlerFailure),
    /// The message is handled, but its reply cannot be written. Another attempt would end the same way.
    Unanswerable(HandlerFailure),
    /// The handler cannot read the body.
    Undecodable(HandlerFailure),
    /// No worker has begun the message, which is not the message's fault.
    NotBegun {
        /// The reason.
        failure: HandlerFailure,
        /// The time that must pass before a retry can succeed.
        again_in: Duration,
    },
}

impl HandlingOutcome {
    /// Returns the outcome of a handled message. `reply` is `None` if the message wants no reply.
    pub(crate) fn answered(reply: Option<Result<Vec<u8>, MailboxError>>) -> Self {
        reply.transpose().map_or_else(
            |error| Self::Unanswerable(HandlerFailure::new(REPLY_FAILED, error.to_string())),
            Self::Done,
        )
    }

    /// Returns the outcome of a body that the handler cannot read.
    pub(crate) fn undecodable(error: &MailboxError) -> Self {
        Self::Undecodable(HandlerFailure::new(UNDECODABLE, error.to_string()))
    }

    /// Returns why the attempt failed. A message that no worker has begun was not attempted.
    pub(crate) fn failure(&self) -> Option<&HandlerFailure> {
        match self {
            Self::Failed(failure) | Self::Unanswerable(failure) | Self::Undecodable(failure) => Some(failure),
            Self::Done(_) | Self::NotBegun { .. } => None,
        }
    }
}
