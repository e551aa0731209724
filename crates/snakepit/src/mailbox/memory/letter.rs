//! A message as the memory keeps it, and the names that messages get.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::mailbox::{Attempt, Mailbox, Message, MessageId, Receipt, Send};

/// What was sent, and what became of it so far.
pub(super) struct Letter {
    pub(super) id: MessageId,
    pub(super) body: Bytes,
    pub(super) deliveries: u32,
    pub(super) priority: i8,
    sent: SystemTime,
    pub(super) time_to_live: Option<Duration>,
    pub(super) attempts: Vec<Attempt>,
    /// Most messages have none of it, and are smaller for that.
    rest: Option<Box<Rest>>,
}

struct Rest {
    reply_to: Option<String>,
    attributes: BTreeMap<String, String>,
    trace: Option<String>,
    in_reply_to: Option<MessageId>,
    keep_result: Option<Duration>,
    group: Option<String>,
}

impl Rest {
    /// None if there is nothing of it, which is found out before anything is moved.
    fn of(options: &mut Send) -> Option<Box<Self>> {
        let is_plain = options.reply_to.is_none()
            && options.attributes.is_empty()
            && options.trace.is_none()
            && options.in_reply_to.is_none()
            && options.keep_result.is_none()
            && options.group.is_none();
        if is_plain {
            return None;
        }
        let Send { reply_to, attributes, trace, in_reply_to, keep_result, group, .. } =
            std::mem::take(options);
        Some(Box::new(Self { reply_to, attributes, trace, in_reply_to, keep_result, group }))
    }
}

impl Letter {
    pub(super) fn new(id: MessageId, body: Vec<u8>, options: &mut Send, sent: SystemTime) -> Self {
        let Send { priority, time_to_live, .. } = *options;
        let (body, attempts, rest) = (body.into(), Vec::new(), Rest::of(options));
        Self { id, body, deliveries: 0, priority, sent, time_to_live, attempts, rest }
    }

    pub(super) fn group(&self) -> Option<&str> {
        self.rest.as_ref()?.group.as_deref()
    }

    pub(super) fn reply_to(&self) -> Option<&str> {
        self.rest.as_ref()?.reply_to.as_deref()
    }

    pub(super) fn keep_result(&self) -> Option<Duration> {
        self.rest.as_ref()?.keep_result
    }

    /// The options of a reply to it.
    pub(super) fn answering(&self, options: Send) -> Send {
        let rest = self.rest.as_deref();
        let none = BTreeMap::new();
        options.answering(
            self.id,
            rest.map_or(&none, |rest| &rest.attributes),
            rest.and_then(|rest| rest.trace.as_deref()),
        )
    }

    /// As it is given out by a mailbox that gives messages up after `limit` deliveries.
    pub(super) fn message(
        &self,
        receipt: Option<Receipt>,
        limit: u32,
        mailbox: &Arc<dyn Mailbox>,
    ) -> Message {
        let rest = self.rest.as_deref();
        Message {
            id: self.id,
            body: self.body.clone(),
            receipt,
            delivery_count: self.deliveries,
            enqueued_at: self.sent,
            priority: self.priority,
            reply_to: rest.and_then(|rest| rest.reply_to.clone()),
            attributes: rest.map(|rest| rest.attributes.clone()).unwrap_or_default(),
            trace: rest.and_then(|rest| rest.trace.clone()),
            in_reply_to: rest.and_then(|rest| rest.in_reply_to),
            keep_result: rest.and_then(|rest| rest.keep_result),
            group: rest.and_then(|rest| rest.group.clone()),
            max_deliveries: limit,
            attempts: self.attempts.clone(),
            mailbox: Arc::clone(mailbox),
        }
    }
}

/// Gives out ids: UUIDs of version 7, of the time, a counter, and the mailbox's own random bits. One that asks the system for
/// random bits each time would take longer than all else that happens to a message.
pub(crate) struct Ids {
    random: u128,
    counter: u32,
}

const RANDOM_BITS: u32 = 46;

impl Ids {
    pub(crate) fn new() -> Self {
        Self { random: random() & ((1 << RANDOM_BITS) - 1), counter: 0 }
    }

    pub(crate) fn next(&mut self, now: SystemTime) -> MessageId {
        self.counter = self.counter.wrapping_add(1);
        let millis = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let counter = u128::from(self.counter);
        let high = (millis << 80) | (7 << 76) | ((counter >> 16 & 0xfff) << 64);
        let low = (0b10 << 62) | ((counter & 0xffff) << RANDOM_BITS) | self.random;
        MessageId(uuid::Uuid::from_u128(high | low))
    }
}

/// Its lower 62 bits are random.
pub(super) fn random() -> u128 {
    // The upper ones of version 7 are the time; two of them give enough of the rest.
    let number = || uuid::Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, 0, 0)).as_u128();
    let (one, other) = (number(), number());
    (one & 0xffff_ffff) << 30 | (other & 0x3fff_ffff)
}
