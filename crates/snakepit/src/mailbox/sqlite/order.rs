//! What can be asked of the writer, and what it answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Row;

use super::clock::{Micros, time, wall_time};
use super::desk::LARGE;
use super::inbox::{Inbox, Order};
use super::upkeep::FileSize;
use crate::mailbox::message::Right;
use crate::mailbox::{
    Attempt, Count, DeadLetter, DeadReason, Extension, Found, Mailbox, MailboxError, Message, MessageId,
    Nack, Place, QueueSettings, Receipt, Receive, Reply, Send, SettingsChange,
};

/// A receipt as the file knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    pub(super) message: i64,
    pub(super) lease: i64,
}

impl Lease {
    /// None: nothing that was ever given out here.
    pub(super) fn of(receipt: &Receipt) -> Option<Self> {
        let Right::Numbers { message, lease } = receipt.0 else { return None };
        Some(Self { message: message.try_into().ok()?, lease: lease.try_into().ok()? })
    }

    /// Those that may be good for something.
    pub(super) fn all(receipts: &[Receipt]) -> Vec<Self> {
        receipts.iter().filter_map(Self::of).collect()
    }
}

#[derive(Debug)]
pub(super) enum Ask {
    Send(Vec<u8>, Send),
    SendAll(Vec<(Vec<u8>, Send)>),
    Receive(Receive),
    Ack(Lease),
    AckAll(Vec<Lease>),
    Nack(Lease, Nack),
    NackAll(Vec<Lease>, Nack),
    Extend(Lease, Duration, Extension),
    Bury(Lease, DeadReason),
    Reply(Lease, Vec<u8>, Send),
    /// The reply to a message, if need be after a wait.
    Result(MessageId, Duration),
    Settings,
    Configure(SettingsChange),
    Find(MessageId),
    Peek(usize),
    Count,
    Purge,
    DeadLetters(usize),
    Redrive(Option<Vec<MessageId>>),
    PurgeDeadLetters,
    /// Nobody has begun these: their delivery was none.
    Release(Vec<Lease>),
    /// How much room the file takes.
    Size,
    /// Nothing but a transaction.
    Health,
}

impl Ask {
    /// Whether it only looks, and so needs neither a lock nor a queue that is not there.
    pub(super) fn is_read(&self) -> bool {
        matches!(
            self,
            Self::Result(..)
                | Self::Size
                | Self::Settings
                | Self::Find(_)
                | Self::Peek(_)
                | Self::Count
                | Self::DeadLetters(_)
        )
    }

    /// Whether it is more than one change, so that it could be half-done.
    pub(super) fn has_steps(&self) -> bool {
        match self {
            Self::Send(body, options) => {
                options.dedup_key.is_some() || options.group.is_some() || body.len() > LARGE
            }
            Self::Extend(..)
            | Self::Result(..)
            | Self::Size
            | Self::Settings
            | Self::Find(_)
            | Self::Peek(_)
            | Self::Count
            | Self::DeadLetters(_)
            | Self::Health => false,
            Self::SendAll(_)
            | Self::Receive(_)
            | Self::Ack(_)
            | Self::AckAll(_)
            | Self::Nack(..)
            | Self::NackAll(..)
            | Self::Bury(..)
            | Self::Reply(..)
            | Self::Configure(_)
            | Self::Purge
            | Self::Redrive(_)
            | Self::PurgeDeadLetters
            | Self::Release(_) => true,
        }
    }
}

#[derive(Debug)]
pub(super) enum Answer {
    Done,
    Id(MessageId),
    Ids(Vec<MessageId>),
    Received(Received),
    Messages(Vec<Stored>),
    Number(u64),
    Reply(Option<Reply>),
    Settings(QueueSettings),
    Found(Option<(Stored, Place)>),
    Count(Count),
    Letters(Vec<Grave>),
    Size(FileSize),
}

/// A message as the file has it.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) number: i64,
    pub(super) lease: i64,
    pub(super) deliveries: u32,
    id: MessageId,
    priority: i8,
    sent: Micros,
    reply_to: Option<String>,
    trace: Option<String>,
    attributes: Option<String>,
    pub(super) large: Option<i64>,
    pub(super) body: Vec<u8>,
    in_reply_to: Option<MessageId>,
    keep_result: Option<Micros>,
    pub(super) group: Option<String>,
    /// Filled in by whoever reads it.
    pub(super) limit: u32,
    pub(super) attempts: Vec<Attempt>,
}

impl Stored {
    /// What [`Stored::read`] takes, in this order.
    pub(super) const COLUMNS: &str = "number, lease, deliveries, id, priority, sent, reply_to, trace, attributes, large, body, \
                                      in_reply_to, keep_result, group_key";
    /// How many that are.
    pub(super) const WIDTH: usize = 14;

    /// Of [`Stored::COLUMNS`].
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            number: row.get(0)?,
            lease: row.get(1)?,
            deliveries: row.get(2)?,
            id: MessageId(uuid::Uuid::from_bytes(row.get(3)?)),
            priority: row.get(4)?,
            sent: row.get(5)?,
            reply_to: row.get(6)?,
            trace: row.get(7)?,
            attributes: row.get(8)?,
            large: row.get(9)?,
            body: row.get::<_, Option<Vec<u8>>>(10)?.unwrap_or_default(),
            in_reply_to: row.get::<_, Option<[u8; 16]>>(11)?.map(|id| MessageId(uuid::Uuid::from_bytes(id))),
            keep_result: row.get(12)?,
            group: row.get(13)?,
            limit: 0,
            attempts: Vec::new(),
        })
    }

    fn receipt(&self) -> Receipt {
        Receipt(Right::Numbers { message: self.number as u64, lease: self.lease as u64 })
    }

    fn message(self, receipt: Option<Receipt>, mailbox: &Arc<dyn Mailbox>) -> Message {
        Message {
            id: self.id,
            body: self.body.into(),
            receipt,
            delivery_count: self.deliveries,
            enqueued_at: wall_time(self.sent),
            priority: self.priority,
            reply_to: self.reply_to,
            attributes: read_attributes(self.attributes.as_deref()),
            trace: self.trace,
            in_reply_to: self.in_reply_to,
            keep_result: self.keep_result.map(time),
            group: self.group,
            max_deliveries: self.limit,
            attempts: self.attempts,
            mailbox: Arc::clone(mailbox),
        }
    }

    /// As one that was looked at.
    pub(super) fn seen(self, mailbox: &Arc<dyn Mailbox>) -> Message {
        self.message(None, mailbox)
    }
}

/// As a send has written them.
pub(super) fn read_attributes(text: Option<&str>) -> BTreeMap<String, String> {
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// A message that was looked for, and where it is.
pub(super) fn found((stored, place): (Stored, Place), mailbox: &Arc<dyn Mailbox>) -> Found {
    Found { message: stored.seen(mailbox), place }
}

/// A dead letter as the file has it.
#[derive(Debug)]
pub(super) struct Grave {
    pub(super) stored: Stored,
    pub(super) reason: DeadReason,
    pub(super) died: Micros,
}

impl Grave {
    pub(super) fn letter(self, mailbox: &Arc<dyn Mailbox>) -> DeadLetter {
        DeadLetter { message: self.stored.seen(mailbox), reason: self.reason, died_at: wall_time(self.died) }
    }
}

/// Messages that were leased to somebody who may be gone by now: those that nobody takes go back.
pub(super) struct Received {
    pub(super) messages: Vec<Stored>,
    /// When the next message can be received, if there is none now.
    pub(super) next: Option<Micros>,
    way_back: Option<(Arc<Inbox>, Arc<str>)>,
}

impl Received {
    pub(super) fn new(messages: Vec<Stored>, next: Option<Micros>) -> Self {
        Self { messages, next, way_back: None }
    }

    /// From here on they are leased: the commit has returned.
    pub(super) fn is_committed(&mut self, inbox: &Arc<Inbox>, order: &Order) {
        self.way_back = Some((Arc::clone(inbox), Arc::clone(&order.queue)));
    }

    pub(super) fn take(mut self, mailbox: &Arc<dyn Mailbox>) -> Vec<Message> {
        let messages = std::mem::take(&mut self.messages);
        messages
            .into_iter()
            .map(|stored| {
                let receipt = stored.receipt();
                stored.message(Some(receipt), mailbox)
            })
            .collect()
    }
}

impl std::fmt::Debug for Received {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Received").field("messages", &self.messages).finish_non_exhaustive()
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        let Some((inbox, queue)) = self.way_back.take().filter(|_| !self.messages.is_empty()) else {
            return;
        };
        let leases = self
            .messages
            .iter()
            .map(|stored| Lease { message: stored.number, lease: stored.lease })
            .collect();
        inbox.place_now(Order { queue, ask: Ask::Release(leases), answer: None });
    }
}

/// What an operation with a receipt that is good for nothing answers.
pub(super) fn expired<T>() -> Result<T, MailboxError> {
    Err(MailboxError::ReceiptExpired)
}
