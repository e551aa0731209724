//! Messages as the file has them, and how they become messages of a mailbox.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rusqlite::Row;

use super::operation::{LeaseKey, Operation, QueuedOperation};
use super::stored_time::{Micros, time, wall_time};
use super::writer::operation_queue::OperationQueue;
use crate::LeaseChange;
use crate::message::ReceiptKey;
use crate::{Attempt, DeadLetter, DeadReason, Mailbox, Message, MessageId, Receipt};

#[derive(Debug)]
pub(crate) struct StoredMessage {
    pub(crate) number: i64,
    pub(crate) lease: i64,
    pub(crate) deliveries: u32,
    id: MessageId,
    priority: i8,
    sent: Micros,
    reply_to: Option<String>,
    trace: Option<String>,
    attributes: Option<String>,
    pub(crate) large: Option<i64>,
    pub(crate) body: Vec<u8>,
    in_reply_to: Option<MessageId>,
    keep_result: Option<Micros>,
    pub(crate) group: Option<String>,
    pub(crate) rate_key: Option<String>,
    /// Whether its key had used up its rate when a receiver came, since the last lease.
    pub(crate) waits_for_rate: bool,
    /// Not a column: the reader fills it in, and the attempts.
    pub(crate) limit: u32,
    pub(crate) attempts: Vec<Attempt>,
}

impl StoredMessage {
    /// What [`StoredMessage::read`] takes, in this order.
    pub(crate) const COLUMNS: &str = "number, lease, deliveries, id, priority, sent, reply_to, trace, attributes, large, body, \
                                      in_reply_to, keep_result, group_key, rate_key, waits_for_rate";
    /// The number of [`StoredMessage::COLUMNS`].
    pub(crate) const WIDTH: usize = 16;

    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            number: row.get(0)?,
            lease: row.get(1)?,
            deliveries: row.get(2)?,
            id: id(row.get(3)?),
            priority: row.get(4)?,
            sent: row.get(5)?,
            reply_to: row.get(6)?,
            trace: row.get(7)?,
            attributes: row.get(8)?,
            large: row.get(9)?,
            body: row.get::<_, Option<Vec<u8>>>(10)?.unwrap_or_default(),
            in_reply_to: row.get::<_, Option<[u8; 16]>>(11)?.map(id),
            keep_result: row.get(12)?,
            group: row.get(13)?,
            rate_key: row.get(14)?,
            waits_for_rate: row.get::<_, Option<bool>>(15)?.unwrap_or_default(),
            limit: 0,
            attempts: Vec::new(),
        })
    }

    fn with_receipt(self, receipt: Option<Receipt>, mailbox: &Arc<dyn Mailbox>) -> Message {
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
            rate_key: self.rate_key,
            max_deliveries: self.limit,
            attempts: self.attempts,
            mailbox: Arc::clone(mailbox),
        }
    }

    /// The message for a caller that only looks.
    pub(crate) fn without_receipt(self, mailbox: &Arc<dyn Mailbox>) -> Message {
        self.with_receipt(None, mailbox)
    }
}

pub(crate) fn id(bytes: [u8; 16]) -> MessageId {
    MessageId(uuid::Uuid::from_bytes(bytes))
}

pub(crate) fn read_attributes(text: Option<&str>) -> BTreeMap<String, String> {
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// None if there are none.
pub(crate) fn write_attributes(attributes: &BTreeMap<String, String>) -> Option<String> {
    (!attributes.is_empty()).then(|| serde_json::to_string(attributes).unwrap_or_default())
}

#[derive(Debug)]
pub(crate) struct StoredDeadLetter {
    pub(crate) stored: StoredMessage,
    pub(crate) reason: DeadReason,
    pub(crate) died: Micros,
}

impl StoredDeadLetter {
    pub(crate) fn dead_letter(self, mailbox: &Arc<dyn Mailbox>) -> DeadLetter {
        let message = self.stored.without_receipt(mailbox);
        DeadLetter { message, reason: self.reason, died_at: wall_time(self.died) }
    }
}

/// Leased messages on their way to a receiver. Messages that nobody takes are released.
pub(crate) struct ReceivedBatch {
    pub(crate) messages: Vec<StoredMessage>,
    /// When a message can be received, if there is none now.
    pub(crate) next: Option<Micros>,
    release_to: Option<(Arc<OperationQueue>, Arc<str>)>,
}

impl ReceivedBatch {
    pub(crate) fn new(messages: Vec<StoredMessage>, next: Option<Micros>) -> Self {
        Self { messages, next, release_to: None }
    }

    /// The commit has returned: from here on the messages are leased.
    pub(crate) fn commit(&mut self, operations: &Arc<OperationQueue>, queue: &Arc<str>) {
        self.release_to = Some((Arc::clone(operations), Arc::clone(queue)));
    }

    pub(crate) fn take(mut self, mailbox: &Arc<dyn Mailbox>) -> Vec<Message> {
        let messages = std::mem::take(&mut self.messages).into_iter();
        messages
            .map(|stored| {
                let key = ReceiptKey::Numbers { message: stored.number as u64, lease: stored.lease as u64 };
                stored.with_receipt(Some(Receipt(key)), mailbox)
            })
            .collect()
    }
}

impl fmt::Debug for ReceivedBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceivedBatch").field("messages", &self.messages).finish_non_exhaustive()
    }
}

impl Drop for ReceivedBatch {
    fn drop(&mut self) {
        let Some((operations, queue)) = self.release_to.take().filter(|_| !self.messages.is_empty()) else {
            return;
        };
        let leases = self.messages.iter();
        let leases = leases.map(|stored| LeaseKey { message: stored.number, lease: stored.lease }).collect();
        let operation = Operation::ChangeLeases(leases, LeaseChange::Release);
        operations.put_now(QueuedOperation { queue, operation, reply: None });
    }
}
