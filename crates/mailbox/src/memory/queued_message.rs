//! A message as the memory backend stores it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::{Attempt, Mailbox, Message, MessageId, Receipt, SendOptions};

/// A message that was sent, with its deliveries so far.
pub(crate) struct QueuedMessage {
    pub(crate) id: MessageId,
    pub(crate) body: Bytes,
    pub(crate) deliveries: u32,
    pub(crate) priority: i8,
    sent: SystemTime,
    pub(crate) time_to_live: Option<Duration>,
    pub(crate) attempts: Vec<Attempt>,
    /// The options that most messages do not set, boxed to keep most messages small.
    rare: Option<Box<SendOptions>>,
}

/// Takes the options if they contain a value that most messages do not set. Moves nothing otherwise.
fn rare_options(options: &mut SendOptions) -> Option<Box<SendOptions>> {
    let is_plain = options.reply_to.is_none()
        && options.attributes.is_empty()
        && options.trace.is_none()
        && options.in_reply_to.is_none()
        && options.keep_result.is_none()
        && options.group.is_none()
        && options.rate_key.is_none();
    (!is_plain).then(|| Box::new(std::mem::take(options)))
}

impl QueuedMessage {
    pub(crate) fn new(id: MessageId, body: Vec<u8>, options: &mut SendOptions, sent: SystemTime) -> Self {
        let SendOptions { priority, time_to_live, .. } = *options;
        let (body, attempts, rare) = (body.into(), Vec::new(), rare_options(options));
        Self { id, body, deliveries: 0, priority, sent, time_to_live, attempts, rare }
    }

    pub(crate) fn group(&self) -> Option<&str> {
        self.rare.as_ref()?.group.as_deref()
    }

    /// Returns the key whose rate limit the message counts for.
    pub(crate) fn rate_key(&self) -> Option<&str> {
        let rare = self.rare.as_ref()?;
        rare.rate_key.as_deref().or(rare.group.as_deref())
    }

    pub(crate) fn reply_to(&self) -> Option<&str> {
        self.rare.as_ref()?.reply_to.as_deref()
    }

    pub(crate) fn keep_result(&self) -> Option<Duration> {
        self.rare.as_ref()?.keep_result
    }

    /// Completes the options of a reply to this message.
    pub(crate) fn answering(&self, options: SendOptions) -> SendOptions {
        let rare = self.rare.as_deref();
        let none = BTreeMap::new();
        options.answering(
            self.id,
            rare.map_or(&none, |rare| &rare.attributes),
            rare.and_then(|rare| rare.trace.as_deref()),
        )
    }

    /// Builds the message for a receiver. `limit` is the mailbox's delivery limit.
    pub(crate) fn message(
        &self,
        receipt: Option<Receipt>,
        limit: u32,
        mailbox: &Arc<dyn Mailbox>,
    ) -> Message {
        let rare = self.rare.as_deref();
        Message {
            id: self.id,
            body: self.body.clone(),
            receipt,
            delivery_count: self.deliveries,
            enqueued_at: self.sent,
            priority: self.priority,
            reply_to: rare.and_then(|rare| rare.reply_to.clone()),
            attributes: rare.map(|rare| rare.attributes.clone()).unwrap_or_default(),
            trace: rare.and_then(|rare| rare.trace.clone()),
            in_reply_to: rare.and_then(|rare| rare.in_reply_to),
            keep_result: rare.and_then(|rare| rare.keep_result),
            group: rare.and_then(|rare| rare.group.clone()),
            rate_key: rare.and_then(|rare| rare.rate_key.clone()),
            max_deliveries: limit,
            attempts: self.attempts.clone(),
            mailbox: Arc::clone(mailbox),
        }
    }
}
