//! A message as its receiver holds it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::leases::one;
use super::settings::DEFAULT_MAX_DELIVERIES;
use super::{Attempt, LeaseExtension, Mailbox, MailboxError, NackOptions, SendOptions};

/// The id of a message, never used again.
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
pub struct Receipt(pub(crate) ReceiptKey);

/// How a backend knows a receipt.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ReceiptKey {
    /// A backend that numbers messages and leases; both numbers only rise.
    Numbers { message: u64, lease: u64 },
    /// The text of any other backend.
    Text(Arc<str>),
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ReceiptKey::Numbers { message, lease } => write!(f, "{message}.{lease}"),
            ReceiptKey::Text(text) => f.write_str(text),
        }
    }
}

impl From<&str> for Receipt {
    /// Any text is a receipt; the mailbox decides whether it is valid.
    fn from(text: &str) -> Self {
        let numbers = text.split_once('.').and_then(|(message, lease)| {
            Some(ReceiptKey::Numbers { message: message.parse().ok()?, lease: lease.parse().ok()? })
        });
        Self(numbers.unwrap_or_else(|| ReceiptKey::Text(text.into())))
    }
}

/// A message that was received or inspected.
#[derive(Clone)]
#[non_exhaustive]
pub struct Message {
    /// Its name.
    pub id: MessageId,
    /// What was sent, byte for byte. Copies of the message share it.
    pub body: Bytes,
    /// The right to change its lease; none if it was only inspected.
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
    /// A message of a backend, which then sets the other fields: it was not delivered yet, and has no receipt.
    pub fn new(id: MessageId, body: impl Into<Bytes>, mailbox: Arc<dyn Mailbox>) -> Self {
        Self {
            id,
            body: body.into(),
            receipt: None,
            delivery_count: 0,
            enqueued_at: SystemTime::UNIX_EPOCH,
            priority: 0,
            reply_to: None,
            attributes: BTreeMap::new(),
            trace: None,
            in_reply_to: None,
            group: None,
            keep_result: None,
            max_deliveries: DEFAULT_MAX_DELIVERIES,
            attempts: Vec::new(),
            mailbox,
        }
    }

    /// Its body as a value; JSON, as [`body`] writes it.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, MailboxError> {
        read_body(&self.body)
    }

    fn held_receipt(&self) -> Result<&Receipt, MailboxError> {
        self.receipt.as_ref().ok_or(MailboxError::ReceiptExpired)
    }

    /// It is done.
    pub async fn ack(&self) -> Result<(), MailboxError> {
        self.mailbox.ack(self.held_receipt()?).await
    }

    /// Gives it back, to be received again: after a time, and with an error if there was one ([`NackOptions`]).
    pub async fn nack(&self, options: impl Into<NackOptions>) -> Result<(), MailboxError> {
        self.mailbox.nack(self.held_receipt()?, options.into()).await
    }

    /// Gives it back as if it had not been delivered: nobody has begun it.
    pub async fn release(&self) -> Result<(), MailboxError> {
        one(self.mailbox.release(std::slice::from_ref(self.held_receipt()?)).await?)
    }

    /// Lets its lease last for at least `visibility` from now.
    pub async fn extend(&self, visibility: Duration) -> Result<(), MailboxError> {
        self.mailbox.extend(self.held_receipt()?, visibility, LeaseExtension::AtLeast).await
    }

    /// Gives it up.
    pub async fn bury(&self, reason: DeadReason) -> Result<(), MailboxError> {
        self.mailbox.bury(self.held_receipt()?, reason).await
    }

    /// The last error that a holder reported.
    pub fn last_error(&self) -> Option<&str> {
        self.attempts.iter().rev().find_map(|attempt| attempt.error.as_deref())
    }

    /// Whether its sender wants a reply: in a mailbox, or by its id.
    pub fn wants_reply(&self) -> bool {
        self.reply_to.is_some() || self.keep_result.is_some()
    }

    /// Answers it, and with that it is done.
    pub async fn reply<T: Serialize + ?Sized>(&self, value: &T) -> Result<MessageId, MailboxError> {
        self.mailbox.reply(self.held_receipt()?, body(value)?, SendOptions::new()).await
    }
}

/// A value as the body of a message.
pub fn body<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, MailboxError> {
    serde_json::to_vec(value).map_err(|error| MailboxError::body::<T>("written", &error))
}

pub(crate) fn read_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, MailboxError> {
    serde_json::from_slice(body).map_err(|error| MailboxError::body::<T>("read", &error))
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
    /// Its handler gave it up.
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

impl DeadLetter {
    /// A message that a backend has given up.
    pub fn new(message: Message, reason: DeadReason, died_at: SystemTime) -> Self {
        Self { message, reason, died_at }
    }
}

/// The state of a message.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "place")]
pub enum MessageState {
    /// It can be received.
    Visible,
    /// It cannot be received yet.
    Delayed,
    /// It is leased.
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

/// The result of a search for a message.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FoundMessage {
    /// As it is, without a receipt.
    pub message: Message,
    /// Its state.
    pub state: MessageState,
}

impl FoundMessage {
    /// A message that a backend has found.
    pub fn new(message: Message, state: MessageState) -> Self {
        Self { message, state }
    }
}
