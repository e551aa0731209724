//! The options of mailbox operations and their ranges. A value out of range is an error; values are never clamped.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{MailboxError, MessageId};
use snakepit_settings::setters;

/// The maximum number of messages per receive.
pub const MAX_MESSAGES: usize = 10;
/// The longest lease, and the longest delay after a nack: twelve hours.
pub const MAX_VISIBILITY: Duration = Duration::from_hours(12);
/// The longest wait of one receive.
pub const MAX_WAIT: Duration = Duration::from_secs(20);
/// The longest delay of a send, and the longest time that a dedup key is remembered or a result is kept: 366 days.
pub const MAX_DELAY: Duration = Duration::from_hours(366 * 24);
/// How long a dedup key is remembered by default.
pub(crate) const DEDUP_WINDOW: Duration = Duration::from_mins(5);
/// The maximum length of the name of a group or a rate key, in bytes.
pub const MAX_GROUP: usize = 256;

/// The attribute that marks a reply as an error. Its value is the error's name.
pub const ERROR_ATTRIBUTE: &str = "error";

/// The options of a send.
///
/// ```
/// use std::time::Duration;
///
/// use snakepit::mailbox::SendOptions;
///
/// let options = SendOptions::new()
///     .delay(Duration::from_secs(10))
///     .priority(5)
///     .dedup_key("order-7")
///     .group("customer-3");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SendOptions {
    /// The name of the mailbox that waits for a reply.
    pub reply_to: Option<String>,
    /// How long after the send the message cannot be received.
    pub delay: Duration,
    /// The priority. Messages of a higher priority are received first.
    pub priority: i8,
    /// The dedup key. A second message with the same key is not stored within `dedup_for`.
    pub dedup_key: Option<String>,
    /// How long the dedup key is remembered. The default is five minutes.
    pub dedup_for: Option<Duration>,
    /// The group. Messages of one group are delivered one at a time, in the order of their sends.
    pub group: Option<String>,
    /// The key whose rate limit the message counts for. `None`: the group, if the message is in one.
    pub rate_key: Option<String>,
    /// Additional attributes of the message.
    pub attributes: BTreeMap<String, String>,
    /// The time after which the message becomes a dead letter. A leased message can still be acknowledged after this
    /// time; it becomes a dead letter when it is given back.
    pub time_to_live: Option<Duration>,
    /// The W3C trace context (`traceparent`) that the message belongs to.
    pub trace: Option<String>,
    /// How long the reply is kept for [`Mailbox::result`](super::Mailbox::result). `None` does not keep it.
    pub keep_result: Option<Duration>,
    /// The message that this one replies to. [`Mailbox::reply`](super::Mailbox::reply) sets this field.
    pub in_reply_to: Option<MessageId>,
}

impl SendOptions {
    /// Creates options for a message without a delay or other attributes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns how long a backend must remember the dedup key.
    pub fn dedup_window(&self) -> Duration {
        self.dedup_for.unwrap_or(DEDUP_WINDOW)
    }

    fn check_group(&self) -> Result<(), MailboxError> {
        let Some(group) = &self.group else { return Ok(()) };
        check_name("group", group)?;
        if !self.delay.is_zero() {
            let range = "0s for a message of a group: a delay would hold up those behind it";
            return Err(MailboxError::out_of_range("delay", shown(self.delay), range));
        }
        Ok(())
    }

    /// Adds an attribute.
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.attributes.insert(name.into(), value.into());
        self
    }

    /// Turns the options into those of a reply: adds the request's id, and the trace and attributes of the request
    /// where the options do not set them. Every backend builds replies with this method.
    pub fn answering(
        mut self,
        request: MessageId,
        attributes: &BTreeMap<String, String>,
        trace: Option<&str>,
    ) -> Self {
        self.in_reply_to = Some(request);
        self.trace = self.trace.or_else(|| trace.map(str::to_owned));
        // An error reported by the request says nothing about its reply.
        for (name, value) in attributes.iter().filter(|(name, _)| *name != ERROR_ATTRIBUTE) {
            self.attributes.entry(name.clone()).or_insert_with(|| value.clone());
        }
        self
    }

    /// Checks the ranges. Every backend calls this first.
    pub fn check(&self) -> Result<(), MailboxError> {
        within("delay", self.delay, MAX_DELAY)?;
        self.check_group()?;
        if let Some(key) = &self.rate_key {
            check_name("rate_key", key)?;
        }
        if let Some(time) = self.dedup_for {
            positive("dedup_for", time, MAX_DELAY)?;
        }
        if let Some(time) = self.keep_result {
            positive("keep_result", time, MAX_DELAY)?;
        }
        match self.time_to_live {
            Some(Duration::ZERO) => Err(MailboxError::out_of_range("time_to_live", "0s", "more than 0s")),
            _ => Ok(()),
        }
    }
}

setters! {
    impl SendOptions;

    /// Names the mailbox that waits for a reply.
    reply_to(name: impl Into<String>) = Some(name.into());

    /// Makes the message receivable only after this delay.
    delay(delay: Duration) = delay;

    /// Sets the priority. Messages of a higher priority are received first. The default is 0.
    priority(priority: i8) = priority;

    /// Sets the dedup key. A second message with the same key is not stored for five minutes, or for
    /// [`SendOptions::dedup_for`].
    dedup_key(key: impl Into<String>) = Some(key.into());

    /// Sets how long the dedup key is remembered: more than zero, up to 366 days.
    dedup_for(time: Duration) = Some(time);

    /// Puts the message into a group. The messages of a group are delivered one at a time, in the order of their sends.
    /// The next message is delivered when the previous one is acknowledged or dead, and not while it is leased, given
    /// back or delayed by a nack. Other groups are not affected. A message of a group cannot be sent with a delay.
    group(name: impl Into<String>) = Some(name.into());

    /// Makes the message count for the rate limit of this key ([`SettingsChange::group_rate_limit`]), instead of that
    /// of its group. Unlike the messages of a group, messages with the same rate key are delivered side by side.
    ///
    /// [`SettingsChange::group_rate_limit`]: super::SettingsChange::group_rate_limit
    rate_key(key: impl Into<String>) = Some(key.into());

    /// Makes the message a dead letter after this time, except while it is leased.
    time_to_live(time: Duration) = Some(time);

    /// Keeps the reply for this time, to be read by the message's id: more than zero, up to 366 days.
    keep_result(time: Duration) = Some(time);

    /// Sets the W3C trace context that the message belongs to.
    trace(traceparent: impl Into<String>) = Some(traceparent.into());
}

/// The options of a receive.
///
/// ```
/// use std::time::Duration;
///
/// use snakepit::mailbox::ReceiveOptions;
///
/// let options = ReceiveOptions::new()
///     .max_messages(10)
///     .visibility_timeout(Duration::from_mins(1))
///     .wait(Duration::from_secs(20));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ReceiveOptions {
    /// The maximum number of messages: 1 to 10.
    pub max_messages: usize,
    /// How long the messages are leased: 0 s to 12 h.
    pub visibility_timeout: Duration,
    /// How long to wait for the first message: 0 s to 20 s.
    pub wait: Duration,
}

impl Default for ReceiveOptions {
    fn default() -> Self {
        Self { max_messages: 1, visibility_timeout: Duration::from_mins(5), wait: Duration::ZERO }
    }
}

impl ReceiveOptions {
    /// Creates options for one message, leased for five minutes, without a wait.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks the ranges. Every backend calls this first.
    pub fn check(&self) -> Result<(), MailboxError> {
        if !(1..=MAX_MESSAGES).contains(&self.max_messages) {
            let range = format!("1 to {MAX_MESSAGES}");
            return Err(MailboxError::out_of_range("max_messages", self.max_messages.to_string(), range));
        }
        check_visibility(self.visibility_timeout)?;
        check_wait(self.wait)
    }
}

setters! {
    impl ReceiveOptions;

    /// Receives up to this many messages, 1 to 10.
    max_messages(messages: usize) = messages;

    /// Leases the messages for this long, 0 s to 12 h.
    visibility_timeout(timeout: Duration) = timeout;

    /// Waits this long for the first message, 0 s to 20 s.
    wait(wait: Duration) = wait;
}

/// The options of a nack.
///
/// ```
/// use std::time::Duration;
///
/// use snakepit::mailbox::{Mailbox, MemoryMailbox, NackOptions, ReceiveOptions, SendOptions};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mailbox = MemoryMailbox::new("orders");
/// # mailbox.send(b"one coffee".to_vec(), SendOptions::new()).await?;
/// let message = &mailbox.receive(ReceiveOptions::new()).await?[0];
/// let retry = NackOptions::new().visibility(Duration::from_mins(1)).error("the printer is offline");
/// message.nack(retry).await?;
/// let found = mailbox.find(message.id).await?.expect("it was given back");
/// assert_eq!(found.message.last_error(), Some("the printer is offline"));
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct NackOptions {
    /// The delay before the message can be received again: 0 s to 12 h.
    pub visibility: Duration,
    /// The error. Its first 2 KiB are kept with the message.
    pub error: Option<String>,
}

impl NackOptions {
    /// Creates options without a delay and without an error.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks the ranges. Every backend calls this first.
    pub fn check(&self) -> Result<(), MailboxError> {
        check_visibility(self.visibility)
    }
}

setters! {
    impl NackOptions;

    /// Makes the message receivable again only after this delay, 0 s to 12 h.
    visibility(visibility: Duration) = visibility;

    /// Sets the error.
    error(error: impl Into<String>) = Some(error.into());
}

impl From<Duration> for NackOptions {
    fn from(visibility: Duration) -> Self {
        Self::new().visibility(visibility)
    }
}

/// How an extension may change the end of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LeaseExtension {
    /// The lease may only get longer.
    #[default]
    AtLeast,
    /// The lease may also get shorter.
    Exactly,
}

/// Checks the length of a lease. Every operation that sets a lease calls this.
pub fn check_visibility(visibility: Duration) -> Result<(), MailboxError> {
    within("visibility_timeout", visibility, MAX_VISIBILITY)
}

/// Checks that a value is more than zero and at most `most`.
pub(super) fn positive(option: &'static str, value: Duration, most: Duration) -> Result<(), MailboxError> {
    if !value.is_zero() && value <= most {
        return Ok(());
    }
    Err(MailboxError::out_of_range(option, shown(value), format!("more than 0s, up to {}", shown(most))))
}

fn check_name(option: &'static str, name: &str) -> Result<(), MailboxError> {
    if (1..=MAX_GROUP).contains(&name.len()) {
        return Ok(());
    }
    let range = format!("1 to {MAX_GROUP} bytes long");
    Err(MailboxError::out_of_range(option, format!("{} bytes long", name.len()), range))
}

/// Checks the length of a wait. Every operation that waits calls this.
pub fn check_wait(wait: Duration) -> Result<(), MailboxError> {
    within("wait", wait, MAX_WAIT)
}

fn within(option: &'static str, value: Duration, most: Duration) -> Result<(), MailboxError> {
    if value <= most {
        return Ok(());
    }
    Err(MailboxError::out_of_range(option, shown(value), format!("0s to {}", shown(most))))
}

/// Returns a time as a person writes it.
fn shown(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 86_400, seconds / 3600) {
        (0, 0) if time.is_zero() => "0s".into(),
        (days, _) if days > 1 && time == Duration::from_hours(24 * days) => format!("{days} days"),
        (_, hours) if hours > 0 && time == Duration::from_hours(hours) => format!("{hours} h"),
        _ => format!("{time:?}"),
    }
}
