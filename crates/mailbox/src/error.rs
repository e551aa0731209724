//! What can go wrong with a mailbox.

use std::sync::Arc;
use std::time::Duration;

use super::MessageId;

/// Why an operation failed. It changed nothing, unless the variant says otherwise.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MailboxError {
    /// The lease is over: it lapsed, was given back, acknowledged, or there was none. Nothing was changed.
    #[error("receipt expired")]
    ReceiptExpired,
    /// The mailbox was closed.
    #[error("the mailbox {0} is closed")]
    Closed(String),
    /// An option is out of its range.
    #[error("{option} is {value}, and must be {range}")]
    OutOfRange {
        /// Which.
        option: &'static str,
        /// What it was set to.
        value: String,
        /// What it can be.
        range: String,
    },
    /// A body cannot be written, or read, as what it should be.
    #[error("the body cannot be {verb} as {kind}: {reason}")]
    Body {
        /// `read` or `written`.
        verb: &'static str,
        /// The type.
        kind: &'static str,
        /// Why not.
        reason: String,
    },
    /// Nobody wants a reply to the message.
    #[error("the message names no mailbox to reply to: send it with reply_to or keep_result")]
    NoReplyTo,
    /// A request was not answered in time. It may still be answered: its result can be asked for by its id.
    #[error("the request {id} was not answered within {waited:?}")]
    NoReply {
        /// The request.
        id: MessageId,
        /// How long it was waited for.
        waited: Duration,
    },
    /// A request was answered with an error.
    #[error("the request failed with {name}: {reason}")]
    ErrorReply {
        /// The error's name.
        name: String,
        /// What was answered.
        reason: String,
    },
    /// There is no such mailbox, and it was not to be made.
    #[error("there is no mailbox {0}: look at its name; the first send to it makes it")]
    Missing(String),
    /// Another process holds a lock for too long.
    #[error("the mailbox is busy: {0}")]
    Busy(String),
    /// The backend failed. Whether the operation was done is unknown.
    #[error("the mailbox failed: {reason}")]
    Backend {
        /// What happened, for a person.
        reason: String,
        /// The backend's own error.
        #[source]
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },
}

impl MailboxError {
    pub(crate) fn out_of_range(
        option: &'static str,
        value: impl Into<String>,
        range: impl Into<String>,
    ) -> Self {
        Self::OutOfRange { option, value: value.into(), range: range.into() }
    }

    pub(crate) fn body<T: ?Sized>(verb: &'static str, error: &serde_json::Error) -> Self {
        Self::Body { verb, kind: std::any::type_name::<T>(), reason: error.to_string() }
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn backend(reason: impl Into<String>) -> Self {
        Self::Backend { reason: reason.into(), source: None }
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn backend_caused(
        reason: impl Into<String>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self::Backend { reason: reason.into(), source: Some(Arc::new(source)) }
    }

    /// Whether the same operation may succeed a little later.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Busy(_) | Self::Backend { .. })
    }
}
