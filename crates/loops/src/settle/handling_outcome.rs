//! What handling a message came to.

use std::time::Duration;

use crate::HandlerFailure;
use crate::mailbox::MailboxError;

/// The name of the failure of a reply that cannot be written, or that its mailbox refuses.
pub(super) const REPLY_FAILED: &str = "ReplyFailed";

/// The name of the failure of a body that the handler cannot read.
const UNDECODABLE: &str = "Undecodable";

/// What handling a message came to.
#[derive(Debug)]
pub(crate) enum HandlingOutcome {
    /// The message is handled, with this reply, if one is wanted.
    Done(Option<Vec<u8>>),
    /// The handler failed.
    Failed(HandlerFailure),
    /// The message is handled, but its reply cannot be written. Another try would end the same way.
    Unanswerable(HandlerFailure),
    /// The handler cannot read the body.
    Undecodable(HandlerFailure),
    /// No worker has begun the message, and that is not the message's fault.
    NotBegun {
        /// Why not.
        failure: HandlerFailure,
        /// A retry before this time has passed would fail.
        again_in: Duration,
    },
}

impl HandlingOutcome {
    /// The message is handled; `reply` is `None` if the message wants no reply.
    pub(crate) fn answered(reply: Option<Result<Vec<u8>, MailboxError>>) -> Self {
        reply.transpose().map_or_else(
            |error| Self::Unanswerable(HandlerFailure::new(REPLY_FAILED, error.to_string())),
            Self::Done,
        )
    }

    /// The handler cannot read the body.
    pub(crate) fn undecodable(error: &MailboxError) -> Self {
        Self::Undecodable(HandlerFailure::new(UNDECODABLE, error.to_string()))
    }

    /// Why the attempt failed. A message that no worker has begun was not attempted.
    pub(crate) fn failure(&self) -> Option<&HandlerFailure> {
        match self {
            Self::Failed(failure) | Self::Unanswerable(failure) | Self::Undecodable(failure) => Some(failure),
            Self::Done(_) | Self::NotBegun { .. } => None,
        }
    }
}
