//! What a backend tells of its messages, in the words of the catalog. Costs next to nothing while nobody listens.

use super::{DeadReason, MessageId};
use crate::telemetry::{Event, Level, emit_with, is_heard};

/// Whether it is worth noting what happens to single messages.
pub(crate) fn hears_of_single_messages() -> bool {
    is_heard(Level::Warn)
}

pub(crate) fn sent(mailbox: &str, messages: usize) {
    if messages > 0 {
        emit_with(Level::Debug, || Event::MailboxSent { mailbox: mailbox.into(), messages });
    }
}

pub(crate) fn received(mailbox: &str, messages: usize) {
    if messages > 0 {
        emit_with(Level::Debug, || Event::MailboxReceived { mailbox: mailbox.into(), messages });
    }
}

pub(crate) fn acked(mailbox: &str, messages: usize) {
    if messages > 0 {
        emit_with(Level::Debug, || Event::MailboxAcked { mailbox: mailbox.into(), messages });
    }
}

pub(crate) fn nacked(mailbox: &str, messages: usize) {
    if messages > 0 {
        emit_with(Level::Debug, || Event::MailboxNacked { mailbox: mailbox.into(), messages });
    }
}

pub(crate) fn lease_lapsed(mailbox: &str, id: MessageId, delivery: u32) {
    emit_with(Level::Debug, || Event::MailboxLeaseLapsed {
        mailbox: mailbox.into(),
        message_id: id.to_string().into(),
        delivery,
    });
}

pub(crate) fn dead_lettered(mailbox: &str, id: MessageId, reason: &DeadReason, deliveries: u32) {
    emit_with(Level::Warn, || Event::MailboxDeadLettered {
        mailbox: mailbox.into(),
        message_id: id.to_string().into(),
        reason: reason.kind(),
        deliveries,
    });
}
