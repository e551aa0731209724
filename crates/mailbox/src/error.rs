//! The errors of a mailbox.

use std::sync::Arc;
use std::time::Duration;

use super::MessageId;

/// Why an operation failed. A failed operation changes nothing, unless the variant says otherwise.
///
/// ```
/// use snakepit::mailbox::{Mailbox, MailboxError, MemoryMailbox, ReceiveOptions, SendOptions};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mailbox = MemoryMailbox::new("orders");
/// # mailbox.send(b"one coffee".to_vec(), SendOptions::new()).await?;
/// let message = &mailbox.receive(ReceiveOptions::new()).await?[0];
/// match message.ack().await {
///     Ok(()) => println!("done"),
///     Err(MailboxError::ReceiptExpired) => println!("it took too long: another receiver gets the message"),
///     Err(error) if error.is_passing() => println!("try the ack again soon: {error}"),
///     Err(error) => return Err(error.into()),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MailboxError {
    /// The lease has ended (it lapsed, or the message was given back or acknowledged) or never existed. Nothing was
    /// changed.
    #[error("receipt expired: the lease ran out, or the message is done; receive again for a new receipt")]
    ReceiptExpired,
    /// The mailbox was closed.
    #[error("the mailbox {0} is closed: open it again")]
    Closed(String),
    /// An option is outside its range.
    #[error("{option} is {value}, and must be {range}")]
    OutOfRange {
        /// The name of the option.
        option: &'static str,
        /// The value it was set to.
        value: String,
        /// The values it can have.
        range: String,
    },
    /// A body cannot be encoded from, or decoded to, the expected type.
    #[error("the body cannot be {verb} as {kind}: {reason}")]
    Body {
        /// `read` or `written`.
        verb: &'static str,
        /// The expected type.
        kind: &'static str,
        /// Why the conversion failed.
        reason: String,
    },
    /// The sender of the message did not ask for a reply.
    #[error("the message names no mailbox to reply to: send it with reply_to or keep_result")]
    NoReplyTo,
    /// A request was not answered in time. The answer may still arrive; read it with the request's id.
    #[error(
        "the request {id} was not answered within {waited:?}: its answer may still come, and can be read with its id"
    )]
    NoReply {
        /// The id of the request.
        id: MessageId,
        /// How long the caller waited for the answer.
        waited: Duration,
    },
    /// A request was answered with an error.
    #[error("the request failed with {name}: {reason}")]
    ErrorReply {
        /// The name of the error.
        name: String,
        /// The body of the answer, as text.
        reason: String,
    },
    /// The mailbox does not exist, and the caller did not allow creating it.
    #[error("there is no mailbox {0}: check its name; the first send to a mailbox creates it")]
    Missing(String),
    /// Another process has held a lock for too long.
    #[error("the mailbox is busy: {0}")]
    Busy(String),
    /// The backend failed. The operation may or may not have taken effect.
    #[error("the mailbox failed: {reason}")]
    Backend {
        /// What kind of failure it is.
        kind: BackendErrorKind,
        /// A description of the failure, for display.
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
    pub(crate) fn backend(kind: BackendErrorKind, reason: impl Into<String>) -> Self {
        Self::Backend { kind, reason: reason.into(), source: None }
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn backend_caused(
        kind: BackendErrorKind,
        reason: impl Into<String>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self::Backend { kind, reason: reason.into(), source: Some(Arc::new(source)) }
    }

    /// Reports whether the same operation may succeed later, perhaps after somebody has mended something.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Busy(_) => true,
            Self::Backend { kind, .. } => *kind != BackendErrorKind::TooBig,
            _ => false,
        }
    }
}

/// The kind of a backend's failure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum BackendErrorKind {
    /// The storage is full.
    Full,
    /// The storage cannot be opened, or must not be written.
    NoAccess,
    /// Reading or writing failed.
    Io,
    /// The storage does not belong to a mailbox, or to one that this version can use.
    Foreign,
    /// The storage is damaged.
    Damaged,
    /// The body is larger than the backend can keep.
    TooBig,
    /// Anything else.
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_body_that_is_too_big_is_hopeless() {
        for (kind, is_passing) in [
            (BackendErrorKind::Full, true),
            (BackendErrorKind::NoAccess, true),
            (BackendErrorKind::Io, true),
            (BackendErrorKind::Foreign, true),
            (BackendErrorKind::Damaged, true),
            (BackendErrorKind::TooBig, false),
            (BackendErrorKind::Other, true),
        ] {
            let error = MailboxError::Backend { kind, reason: String::new(), source: None };
            assert_eq!(error.is_passing(), is_passing, "{kind:?}");
        }
    }
}
