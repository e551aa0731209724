//! The events of mailboxes. An event without a listener costs almost nothing.

use super::{DeadReason, MessageId};
use snakepit_telemetry::{Event, Level, emit_with, is_heard};

/// An event of one message.
#[derive(Debug)]
pub(crate) enum MessageEvent {
    LeaseLapsed(MessageId, u32),
    DeadLettered(MessageId, DeadReason, u32),
}

/// Adds the event of one message to `events`, to be reported later. Does nothing if nobody listens.
pub(crate) fn note<T>(events: &mut Vec<T>, event: impl FnOnce() -> T) {
    if is_heard(Level::Warn) {
        events.push(event());
    }
}

impl MessageEvent {
    pub(crate) fn report(&self, mailbox: &str) {
        let (Self::LeaseLapsed(id, _) | Self::DeadLettered(id, ..)) = self;
        let level = if matches!(self, Self::LeaseLapsed(..)) { Level::Debug } else { Level::Warn };
        emit_with(level, || {
            let (mailbox, message_id) = (mailbox.into(), id.to_string().into());
            match self {
                Self::LeaseLapsed(_, delivery) => {
                    Event::MailboxLeaseLapsed { mailbox, message_id, delivery: *delivery }
                }
                Self::DeadLettered(_, reason, deliveries) => {
                    let (reason, deliveries) = (reason.kind(), *deliveries);
                    Event::MailboxDeadLettered { mailbox, message_id, reason, deliveries }
                }
            }
        });
    }
}

fn emit_count(messages: usize, event: impl FnOnce() -> Event) {
    if messages > 0 {
        emit_with(Level::Debug, event);
    }
}

pub(crate) fn sent(mailbox: &str, messages: usize) {
    emit_count(messages, || Event::MailboxSent { mailbox: mailbox.into(), messages });
}

pub(crate) fn received(mailbox: &str, messages: usize) {
    emit_count(messages, || Event::MailboxReceived { mailbox: mailbox.into(), messages });
}

pub(crate) fn acked(mailbox: &str, messages: usize) {
    emit_count(messages, || Event::MailboxAcked { mailbox: mailbox.into(), messages });
}

pub(crate) fn nacked(mailbox: &str, messages: usize) {
    emit_count(messages, || Event::MailboxNacked { mailbox: mailbox.into(), messages });
}
