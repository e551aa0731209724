//! A message as its receiver holds it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Attempt, Extension, Mailbox, MailboxError, Nack, Send};

/// The name of a message, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct MessageId(pub(crate) uuid::Uuid);

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for MessageId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        text.parse().map(Self)
    }
}

/// The right to one lease of one message, never given out twice. As a text it can be carried to another process.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Receipt(pub(crate) Right);

/// What a receipt is to its backend.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Right {
    /// Of a backend that numbers messages and leases; both numbers only rise.
    Numbers { message: u64, lease: u64 },
    /// Whatever another backend gives out.
    Text(Arc<str>),
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Right::Numbers { message, lease } => write!(f, "{message}.{lease}"),
            Right::Text(text) => f.write_str(text),
        }
    }
}

impl From<&str> for Receipt {
    /// Any text is a receipt; whether it is good for anything, the mailbox says.
    fn from(text: &str) -> Self {
        let numbers = text.split_once('.').and_then(|(message, lease)| {
            Some(Right::Numbers { message: message.parse().ok()?, lease: lease.parse().ok()? })
        });
        Self(numbers.unwrap_or_else(|| Right::Text(text.into())))
    }
}

/// A message that was received, or looked at.
#[derive(Clone)]
#[non_exhaustive]
pub struct Message {
    /// Its name.
    pub id: MessageId,
    /// What was sent, byte for byte. Copies of the message share it.
    pub body: Bytes,
    /// The right to it; none if it was only looked at.
    pub receipt: Option<Receipt>,
    /// How often it was delivered, this time included.
    pub delivery_count: u32,
    /// When it was sent, by the wall clock, for people.
    pub enqueued_at: SystemTime,
    /// Its priority.
    pub priority: i8,
    /// The mailbox that waits for a reply.
    pub reply_to: Option<String>,
    /// Whatever else belongs to it.
    pub attributes: BTreeMap<String, String>,
    /// The W3C trace context that it belongs to.
    pub trace: Option<String>,
    /// The message that this is the reply to.
    pub in_reply_to: Option<MessageId>,
    /// The group that it was sent in, if any.
    pub group: Option<String>,
    /// For how long its reply is kept.
    pub keep_result: Option<Duration>,
    /// After how many deliveries it is given up, as its mailbox says.
    pub max_deliveries: u32,
    /// Its earlier deliveries, the oldest first: the last 16, and the last one that had an error.
    pub attempts: Vec<Attempt>,
    /// Where it came from.
    pub mailbox: Arc<dyn Mailbox>,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("id", &self.id)
            .field("receipt", &self.receipt)
            .field("delivery_count", &self.delivery_count)
            .field("bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

impl Message {
    /// Its body as a value; JSON, as [`body`] writes it.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, MailboxError> {
        serde_json::from_slice(&self.body).map_err(|error| MailboxError::Body {
            verb: "read",
            kind: std::any::type_name::<T>(),
            reason: error.to_string(),
        })
    }

    fn right(&self) -> Result<&Receipt, MailboxError> {
        self.receipt.as_ref().ok_or(MailboxError::ReceiptExpired)
    }

    /// It is done.
    pub async fn ack(&self) -> Result<(), MailboxError> {
        self.mailbox.ack(self.right()?).await
    }

    /// Gives it back, to be received again: after a time, and with an error if there was one ([`Nack`]).
    pub async fn nack(&self, options: impl Into<Nack>) -> Result<(), MailboxError> {
        self.mailbox.nack(self.right()?, options.into()).await
    }

    /// Gives it back as if it had not been delivered: nobody has begun it.
    pub async fn release(&self) -> Result<(), MailboxError> {
        match self.mailbox.release(std::slice::from_ref(self.right()?)).await? {
            0 => Err(MailboxError::ReceiptExpired),
            _ => Ok(()),
        }
    }

    /// Lets its lease last for at least `visibility` from now.
    pub async fn extend(&self, visibility: Duration) -> Result<(), MailboxError> {
        self.mailbox.extend(self.right()?, visibility, Extension::AtLeast).await
    }

    /// Gives it up.
    pub async fn bury(&self, reason: DeadReason) -> Result<(), MailboxError> {
        self.mailbox.bury(self.right()?, reason).await
    }

    /// What went wrong last, if whoever had it has said so.
    pub fn last_error(&self) -> Option<&str> {
        self.attempts.iter().rev().find_map(|attempt| attempt.error.as_deref())
    }

    /// Whether somebody wants its reply: in a mailbox, or by its id.
    pub fn wants_reply(&self) -> bool {
        self.reply_to.is_some() || self.keep_result.is_some()
    }

    /// Answers it, and with that it is done.
    pub async fn reply<T: Serialize + ?Sized>(&self, value: &T) -> Result<MessageId, MailboxError> {
        self.mailbox.reply(self.right()?, body(value)?, Send::new()).await
    }
}

/// A value as the body of a message.
pub fn body<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, MailboxError> {
    serde_json::to_vec(value).map_err(|error| MailboxError::Body {
        verb: "written",
        kind: std::any::type_name::<T>(),
        reason: error.to_string(),
    })
}

/// Why a message was given up.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum DeadReason {
    /// It was delivered as often as is allowed, and never acknowledged.
    Deliveries,
    /// Its time to live was over.
    Expired,
    /// Its body is not what it should be.
    Undecodable {
        /// Why not.
        error: String,
    },
    /// Whoever handled it gave it up.
    Failed {
        /// Why.
        error: String,
    },
}

impl DeadReason {
    /// What went wrong, if it says so.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Deliveries | Self::Expired => None,
            Self::Undecodable { error } | Self::Failed { error } => Some(error),
        }
    }

    /// In one word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Deliveries => "deliveries",
            Self::Expired => "expired",
            Self::Undecodable { .. } => "undecodable",
            Self::Failed { .. } => "failed",
        }
    }
}

/// A message that was given up.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeadLetter {
    /// As it was, without a receipt.
    pub message: Message,
    /// Why.
    pub reason: DeadReason,
    /// When, by the wall clock, for people.
    pub died_at: SystemTime,
}

/// Where in its life a message is.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "place")]
pub enum Place {
    /// It can be received.
    Visible,
    /// It cannot be received yet.
    Delayed,
    /// Somebody has it.
    InFlight {
        /// Who, as `HOST/PROCESS`.
        holder: String,
    },
    /// It was given up.
    Dead {
        /// Why.
        reason: DeadReason,
    },
}

/// A message that was looked for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Found {
    /// As it is, without a receipt.
    pub message: Message,
    /// Where it is.
    pub place: Place,
}
