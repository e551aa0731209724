//! What can be asked of a mailbox, and in which ranges. Out of range is an error, and never clamped.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{MailboxError, MessageId};

/// The most messages of one receive.
pub const MAX_MESSAGES: usize = 10;
/// The longest lease, and the longest pause after a nack: twelve hours.
pub const MAX_VISIBILITY: Duration = Duration::from_hours(12);
/// The longest wait of one receive.
pub const MAX_WAIT: Duration = Duration::from_secs(20);
/// The longest delay of a send, and the longest time for which a dedup key is remembered: 366 days.
pub const MAX_DELAY: Duration = Duration::from_hours(366 * 24);
/// For how long a dedup key is remembered, unless the sender says otherwise.
pub(crate) const DEDUP_WINDOW: Duration = Duration::from_mins(5);
/// The longest name of a group, in bytes.
pub const MAX_GROUP: usize = 256;

/// The attribute of a reply that tells of an error; its value is the error's name.
pub const ERROR_ATTRIBUTE: &str = "error";

/// What comes with a message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SendOptions {
    /// The name of the mailbox that waits for a reply.
    pub reply_to: Option<String>,
    /// It cannot be received before this has passed.
    pub delay: Duration,
    /// Higher ones are received first.
    pub priority: i8,
    /// A second message with the same key is not put in for `dedup_for`.
    pub dedup_key: Option<String>,
    /// For how long the key is remembered: five minutes unless it is set.
    pub dedup_for: Option<Duration>,
    /// Messages of one group come one at a time, in the order of their sends.
    pub group: Option<String>,
    /// Whatever else belongs to it.
    pub attributes: BTreeMap<String, String>,
    /// It is a dead letter once this has passed, but not while somebody holds it: then it can still be acknowledged, and is a
    /// dead letter when it comes back.
    pub time_to_live: Option<Duration>,
    /// The W3C trace context (`traceparent`) that it belongs to.
    pub trace: Option<String>,
    /// For how long its reply is kept, to be read by its id ([`Mailbox::result`](super::Mailbox::result)); none: it is not.
    pub keep_result: Option<Duration>,
    /// The message that this is the reply to; [`Mailbox::reply`](super::Mailbox::reply) says it by itself.
    pub in_reply_to: Option<MessageId>,
}

impl SendOptions {
    /// A message as it is, at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the mailbox that waits for a reply.
    pub fn reply_to(mut self, name: impl Into<String>) -> Self {
        self.reply_to = Some(name.into());
        self
    }

    /// Cannot be received before this has passed.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Higher ones are received first; 0 unless it is set.
    pub fn priority(mut self, priority: i8) -> Self {
        self.priority = priority;
        self
    }

    /// A second message with the same key is not put in for five minutes, or for as long as [`SendOptions::dedup_for`] says.
    pub fn dedup_key(mut self, key: impl Into<String>) -> Self {
        self.dedup_key = Some(key.into());
        self
    }

    /// Remembers the dedup key for so long: more than nothing, up to 366 days.
    pub fn dedup_for(mut self, time: Duration) -> Self {
        self.dedup_for = Some(time);
        self
    }

    /// Puts it into a group: its messages are received one at a time, in the order of their sends. The next one comes when the
    /// one before it is acknowledged or dead, and not while that one is held, given back or delayed by a nack. Other groups go
    /// on. A message of a group cannot be sent with a delay.
    pub fn group(mut self, name: impl Into<String>) -> Self {
        self.group = Some(name.into());
        self
    }

    /// How long a backend remembers the dedup key.
    pub fn dedup_window(&self) -> Duration {
        self.dedup_for.unwrap_or(DEDUP_WINDOW)
    }

    fn check_group(&self) -> Result<(), MailboxError> {
        let Some(group) = &self.group else { return Ok(()) };
        if group.is_empty() || group.len() > MAX_GROUP {
            let (value, range) =
                (format!("{} bytes long", group.len()), format!("1 to {MAX_GROUP} bytes long"));
            return Err(MailboxError::out_of_range("group", value, range));
        }
        if !self.delay.is_zero() {
            let range = "0s for a message of a group: a delay would hold up those behind it";
            return Err(MailboxError::out_of_range("delay", format!("{:?}", self.delay), range));
        }
        Ok(())
    }

    /// Adds an attribute.
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.attributes.insert(name.into(), value.into());
        self
    }

    /// A dead letter once this has passed, but not while somebody holds it.
    pub fn time_to_live(mut self, time: Duration) -> Self {
        self.time_to_live = Some(time);
        self
    }

    /// Its reply is kept for so long, to be read by its id: more than nothing and up to 12 h.
    pub fn keep_result(mut self, time: Duration) -> Self {
        self.keep_result = Some(time);
        self
    }

    /// The W3C trace context that it belongs to.
    pub fn trace(mut self, traceparent: impl Into<String>) -> Self {
        self.trace = Some(traceparent.into());
        self
    }

    /// The options of a reply, with all that it has of its request: the id, the trace, and the attributes that it does not set
    /// itself. Every backend replies with these.
    pub fn answering(
        mut self,
        request: MessageId,
        attributes: &BTreeMap<String, String>,
        trace: Option<&str>,
    ) -> Self {
        self.in_reply_to = Some(request);
        self.trace = self.trace.or_else(|| trace.map(str::to_owned));
        // That the request told of an error says nothing about its reply.
        for (name, value) in attributes.iter().filter(|(name, _)| *name != ERROR_ATTRIBUTE) {
            self.attributes.entry(name.clone()).or_insert_with(|| value.clone());
        }
        self
    }

    /// Every backend asks this first.
    pub fn check(&self) -> Result<(), MailboxError> {
        within("delay", self.delay, MAX_DELAY)?;
        self.check_group()?;
        if let Some(time) = self.dedup_for {
            positive("dedup_for", time, MAX_DELAY)?;
        }
        if let Some(time) = self.keep_result {
            positive("keep_result", time, MAX_VISIBILITY)?;
        }
        match self.time_to_live {
            Some(Duration::ZERO) => {
                Err(MailboxError::out_of_range("time_to_live", "0s", "more than nothing"))
            }
            _ => Ok(()),
        }
    }
}

/// How messages are received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ReceiveOptions {
    /// 1 to 10.
    pub max_messages: usize,
    /// How long they are leased: 0 s to 12 h.
    pub visibility_timeout: Duration,
    /// How long to wait for the first one: 0 s to 20 s.
    pub wait: Duration,
}

impl Default for ReceiveOptions {
    fn default() -> Self {
        Self { max_messages: 1, visibility_timeout: Duration::from_mins(5), wait: Duration::ZERO }
    }
}

impl ReceiveOptions {
    /// One message, if there is one, for five minutes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Up to so many, 1 to 10.
    pub fn max_messages(mut self, messages: usize) -> Self {
        self.max_messages = messages;
        self
    }

    /// Leased for so long, 0 s to 12 h.
    pub fn visibility_timeout(mut self, timeout: Duration) -> Self {
        self.visibility_timeout = timeout;
        self
    }

    /// Waits so long for the first one, 0 s to 20 s.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Every backend asks this first.
    pub fn check(&self) -> Result<(), MailboxError> {
        if !(1..=MAX_MESSAGES).contains(&self.max_messages) {
            let range = format!("1 to {MAX_MESSAGES}");
            return Err(MailboxError::out_of_range("max_messages", self.max_messages.to_string(), range));
        }
        check_visibility(self.visibility_timeout)?;
        check_wait(self.wait)
    }
}

/// How a message is given back.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct NackOptions {
    /// It cannot be received again before this has passed: 0 s to 12 h.
    pub visibility: Duration,
    /// What went wrong: kept with the message, the first 2 KiB of it.
    pub error: Option<String>,
}

impl NackOptions {
    /// Back at once, without an error.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cannot be received again before this has passed, 0 s to 12 h.
    pub fn visibility(mut self, visibility: Duration) -> Self {
        self.visibility = visibility;
        self
    }

    /// Says what went wrong.
    pub fn error(mut self, error: impl Into<String>) -> Self {
        self.error = Some(error.into());
        self
    }

    /// Every backend asks this first.
    pub fn check(&self) -> Result<(), MailboxError> {
        check_visibility(self.visibility)
    }
}

impl From<Duration> for NackOptions {
    fn from(visibility: Duration) -> Self {
        Self::new().visibility(visibility)
    }
}

/// What an extension may do to a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LeaseExtension {
    /// It may only get longer.
    #[default]
    AtLeast,
    /// It may get shorter, too.
    Exactly,
}

/// For every operation that sets a lease.
pub fn check_visibility(visibility: Duration) -> Result<(), MailboxError> {
    within("visibility_timeout", visibility, MAX_VISIBILITY)
}

/// More than nothing, up to this.
pub(super) fn positive(option: &'static str, value: Duration, most: Duration) -> Result<(), MailboxError> {
    if !value.is_zero() && value <= most {
        return Ok(());
    }
    Err(MailboxError::out_of_range(
        option,
        format!("{value:?}"),
        format!("more than nothing, up to {most:?}"),
    ))
}

/// For every operation that waits.
pub fn check_wait(wait: Duration) -> Result<(), MailboxError> {
    within("wait", wait, MAX_WAIT)
}

fn within(option: &'static str, value: Duration, most: Duration) -> Result<(), MailboxError> {
    if value <= most {
        return Ok(());
    }
    Err(MailboxError::out_of_range(option, format!("{value:?}"), format!("0s to {most:?}")))
}
