//! What can be asked of a mailbox, and in which ranges. Out of range is an error, and never clamped.

use std::collections::BTreeMap;
use std::time::Duration;

use super::error::MailboxError;

/// The most messages of one receive.
pub const MAX_MESSAGES: usize = 10;
/// The longest lease, delay or time to live: twelve hours.
pub const MAX_VISIBILITY: Duration = Duration::from_hours(12);
/// The longest wait of one receive.
pub const MAX_WAIT: Duration = Duration::from_secs(20);
/// For how long a dedup key is remembered.
pub(crate) const DEDUP_WINDOW: Duration = Duration::from_mins(5);

/// What comes with a message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Send {
    /// The name of the mailbox that waits for a reply.
    pub reply_to: Option<String>,
    /// It cannot be received before this has passed.
    pub delay: Duration,
    /// Higher ones are received first.
    pub priority: i8,
    /// A second message with the same key is not put in for five minutes.
    pub dedup_key: Option<String>,
    /// Whatever else belongs to it.
    pub attributes: BTreeMap<String, String>,
    /// It is a dead letter once this has passed, but not while somebody holds it: then it can still be acknowledged, and is a
    /// dead letter when it comes back.
    pub time_to_live: Option<Duration>,
    /// The W3C trace context (`traceparent`) that it belongs to.
    pub trace: Option<String>,
}

impl Send {
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

    /// A second message with the same key is not put in for five minutes.
    pub fn dedup_key(mut self, key: impl Into<String>) -> Self {
        self.dedup_key = Some(key.into());
        self
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

    /// The W3C trace context that it belongs to.
    pub fn trace(mut self, traceparent: impl Into<String>) -> Self {
        self.trace = Some(traceparent.into());
        self
    }

    /// Every backend asks this first.
    pub fn check(&self) -> Result<(), MailboxError> {
        within("delay", self.delay, MAX_VISIBILITY)?;
        match self.time_to_live {
            Some(Duration::ZERO) => Err(MailboxError::OutOfRange {
                option: "time_to_live",
                value: "0s".into(),
                range: "more than nothing".into(),
            }),
            _ => Ok(()),
        }
    }
}

/// How messages are received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Receive {
    /// 1 to 10.
    pub max_messages: usize,
    /// How long they are leased: 0 s to 12 h.
    pub visibility_timeout: Duration,
    /// How long to wait for the first one: 0 s to 20 s.
    pub wait: Duration,
}

impl Default for Receive {
    fn default() -> Self {
        Self { max_messages: 1, visibility_timeout: Duration::from_mins(5), wait: Duration::ZERO }
    }
}

impl Receive {
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
            return Err(MailboxError::OutOfRange {
                option: "max_messages",
                value: self.max_messages.to_string(),
                range: format!("1 to {MAX_MESSAGES}"),
            });
        }
        check_visibility(self.visibility_timeout)?;
        within("wait", self.wait, MAX_WAIT)
    }
}

/// What an extension may do to a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Extension {
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

fn within(option: &'static str, value: Duration, most: Duration) -> Result<(), MailboxError> {
    if value <= most {
        return Ok(());
    }
    Err(MailboxError::OutOfRange { option, value: format!("{value:?}"), range: format!("0s to {most:?}") })
}
