//! A message as its receiver sees it.
pub(crate) mod attempt;
pub(crate) mod ids;
pub(crate) mod reply;
pub(crate) mod typed;

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

/// The id of a message. Ids are never reused.
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

/// The proof of one lease of one message. Receipts are never reused. The text form can be passed to another process.
///
/// ```
/// use snakepit::mailbox::{Mailbox, MemoryMailbox, Receipt, ReceiveOptions, SendOptions};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mailbox = MemoryMailbox::new("orders");
/// # mailbox.send(b"one coffee".to_vec(), SendOptions::new()).await?;
/// let message = &mailbox.receive(ReceiveOptions::new()).await?[0];
/// let text = message.receipt.as_ref().expect("the message is leased").to_string();
/// // Later, in the request that reports the end of the work:
/// mailbox.ack(&Receipt::from(text.as_str())).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Receipt(pub(crate) ReceiptKey);

/// How a backend identifies a lease.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ReceiptKey {
    /// The key of a backend that numbers messages and leases. Both numbers only increase.
    Numbers { message: u64, lease: u64 },
    /// The key of any other backend, as text.
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
    /// Accepts any text; the mailbox decides whether the receipt is valid.
    fn from(text: &str) -> Self {
        let numbers = text.split_once('.').and_then(|(message, lease)| {
            Some(ReceiptKey::Numbers { message: message.parse().ok()?, lease: lease.parse().ok()? })
        });
        Self(numbers.unwrap_or_else(|| ReceiptKey::Text(text.into())))
    }
}

/// A message that was received or inspected.
///
/// ```
/// use std::time::Duration;
///
/// use snakepit::mailbox::{Mailbox, MemoryMailbox, ReceiveOptions, SendOptions};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mailbox = MemoryMailbox::new("numbers");
/// # mailbox.send(b"7".to_vec(), SendOptions::new()).await?;
/// for message in mailbox.receive(ReceiveOptions::new()).await? {
///     match message.read::<i64>() {
///         Ok(number) if number >= 0 => message.ack().await?,
///         _ => message.nack(Duration::from_secs(10)).await?,
///     }
/// }
/// # assert_eq!(mailbox.count().await?.delayed, 0); Ok(()) }
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Message {
    /// The message's id.
    pub id: MessageId,
    /// The bytes that were sent, unchanged. Clones of the message share them.
    pub body: Bytes,
    /// The proof of the lease, or `None` if the message was only inspected.
    pub receipt: Option<Receipt>,
    /// How often the message was delivered, including this delivery.
    pub delivery_count: u32,
    /// The time of the send by the wall clock, for display only.
    pub enqueued_at: SystemTime,
    /// The message's priority.
    pub priority: i8,
    /// The name of the mailbox that waits for a reply.
    pub reply_to: Option<String>,
    /// Attributes that the sender set.
    pub attributes: BTreeMap<String, String>,
    /// The W3C trace context that the message belongs to.
    pub trace: Option<String>,
    /// The id of the message that this message replies to.
    pub in_reply_to: Option<MessageId>,
    /// The group that the message was sent in.
    pub group: Option<String>,
    /// The key whose rate limit it counts for, if it was sent with one.
    pub rate_key: Option<String>,
    /// How long the reply to this message is kept.
    pub keep_result: Option<Duration>,
    /// The delivery limit of the mailbox: the message is given up after this many deliveries.
    pub max_deliveries: u32,
    /// The earlier deliveries, oldest first: the last 16, plus the last one with an error.
    pub attempts: Vec<Attempt>,
    /// The mailbox that the message came from.
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
    /// Creates a message without a receipt and without deliveries. The backend then sets the other fields.
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
            rate_key: None,
            keep_result: None,
            max_deliveries: DEFAULT_MAX_DELIVERIES,
            attempts: Vec::new(),
            mailbox,
        }
    }

    /// Decodes the body from JSON, the format that [`body`] writes.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, MailboxError> {
        read_body(&self.body)
    }

    fn held_receipt(&self) -> Result<&Receipt, MailboxError> {
        self.receipt.as_ref().ok_or(MailboxError::ReceiptExpired)
    }

    /// Acknowledges the message: it is finished.
    pub async fn ack(&self) -> Result<(), MailboxError> {
        self.mailbox.ack(self.held_receipt()?).await
    }

    /// Gives the message back, to be received again. [`NackOptions`] set a delay and an error.
    pub async fn nack(&self, options: impl Into<NackOptions>) -> Result<(), MailboxError> {
        self.mailbox.nack(self.held_receipt()?, options.into()).await
    }

    /// Gives the message back as if it had not been delivered. Use this if nobody has started to handle it.
    pub async fn release(&self) -> Result<(), MailboxError> {
        one(self.mailbox.release(std::slice::from_ref(self.held_receipt()?)).await?)
    }

    /// Extends the lease to last at least `visibility` from now.
    pub async fn extend(&self, visibility: Duration) -> Result<(), MailboxError> {
        self.mailbox.extend(self.held_receipt()?, visibility, LeaseExtension::AtLeast).await
    }

    /// Moves the message to the dead letters.
    pub async fn bury(&self, reason: DeadReason) -> Result<(), MailboxError> {
        self.mailbox.bury(self.held_receipt()?, reason).await
    }

    /// Returns the last error that a holder reported.
    pub fn last_error(&self) -> Option<&str> {
        self.attempts.iter().rev().find_map(|attempt| attempt.error.as_deref())
    }

    /// Reports whether the sender wants a reply, either in a mailbox or by the message's id.
    pub fn wants_reply(&self) -> bool {
        self.reply_to.is_some() || self.keep_result.is_some()
    }

    /// Replies to the message and acknowledges it.
    pub async fn reply<T: Serialize + ?Sized>(&self, value: &T) -> Result<MessageId, MailboxError> {
        self.mailbox.reply(self.held_receipt()?, body(value)?, SendOptions::new()).await
    }
}

/// Encodes a value as the body of a message.
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
    /// The message reached the delivery limit without an ack.
    Deliveries,
    /// The time to live passed.
    Expired,
    /// The body could not be decoded.
    Undecodable {
        /// Why decoding failed.
        error: String,
    },
    /// The handler gave the message up.
    Failed {
        /// Why the handler gave it up.
        error: String,
    },
}

impl DeadReason {
    /// Returns the error, if the reason has one.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Deliveries | Self::Expired => None,
            Self::Undecodable { error } | Self::Failed { error } => Some(error),
        }
    }

    /// Returns the name of the variant in one word.
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
///
/// ```
/// use snakepit::mailbox::{DeadReason, Mailbox, MemoryMailbox};
/// # use snakepit::mailbox::{ReceiveOptions, SendOptions};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mailbox = MemoryMailbox::new("orders");
/// # mailbox.send(b"one coffee".to_vec(), SendOptions::new()).await?;
/// # let reason = DeadReason::Failed { error: "no beans".into() };
/// # mailbox.receive(ReceiveOptions::new()).await?[0].bury(reason).await?;
/// let letters = mailbox.dead_letters(100).await?;
/// let failed = letters.iter().filter(|it| matches!(it.reason, DeadReason::Failed { .. }));
/// let ids: Vec<_> = failed.map(|letter| letter.message.id).collect();
/// // The cause is repaired, so these messages get another chance.
/// assert_eq!(mailbox.redrive(Some(&ids)).await?, 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The message without a receipt.
    pub message: Message,
    /// Why the message was given up.
    pub reason: DeadReason,
    /// The time at which it was given up by the wall clock, for display only.
    pub died_at: SystemTime,
}

impl DeadLetter {
    /// Creates the dead letter of a message that a backend has given up.
    pub fn new(message: Message, reason: DeadReason, died_at: SystemTime) -> Self {
        Self { message, reason, died_at }
    }
}

/// The state of a message.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "place")]
pub enum MessageState {
    /// The message can be received.
    Visible,
    /// The message cannot be received yet.
    Delayed,
    /// The message is leased.
    InFlight {
        /// The process that holds the lease, as `HOST/PROCESS`.
        holder: String,
    },
    /// The message was given up.
    Dead {
        /// Why it was given up.
        reason: DeadReason,
    },
}

/// The result of a search for a message.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FoundMessage {
    /// The message in its current state, without a receipt.
    pub message: Message,
    /// The state of the message.
    pub state: MessageState,
}

impl FoundMessage {
    /// Creates the result of a backend's search.
    pub fn new(message: Message, state: MessageState) -> Self {
        Self { message, state }
    }
}
