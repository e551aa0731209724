//! Reads the content of a mailbox without changing it. The caller has processed the timers that are due.

use std::sync::Arc;

use super::{LiveState, Store, is_visible};
use crate::backend::this_process;
use crate::memory::queued_message::QueuedMessage;
use crate::{DeadLetter, FoundMessage, Mailbox, Message, MessageCounts, MessageId, MessageState};

impl Store {
    fn show_message(&self, message: &QueuedMessage, mailbox: &Arc<dyn Mailbox>) -> Message {
        message.message(None, self.settings.max_deliveries, mailbox)
    }

    pub(crate) fn peek(&self, most: usize, mailbox: &Arc<dyn Mailbox>) -> Vec<Message> {
        let slots = &self.slots;
        let next = self.visible.next(most, |entry| is_visible(slots, entry)).into_iter();
        next.filter_map(|slot| Some(self.show_message(&slots[slot as usize].as_ref()?.message, mailbox)))
            .collect()
    }

    /// Finds a message by a scan over all messages.
    pub(crate) fn find(&self, id: MessageId, mailbox: &Arc<dyn Mailbox>) -> Option<FoundMessage> {
        if let Some(live) = self.slots.iter().flatten().find(|live| live.message.id == id) {
            let state = match live.state {
                LiveState::Behind | LiveState::Delayed => MessageState::Delayed,
                LiveState::Visible => MessageState::Visible,
                LiveState::Leased => MessageState::InFlight { holder: this_process() },
            };
            return Some(FoundMessage { message: self.show_message(&live.message, mailbox), state });
        }
        let dead = self.dead.iter().find(|dead| dead.message.id == id)?;
        let state = MessageState::Dead { reason: dead.reason.clone() };
        Some(FoundMessage { message: self.show_message(&dead.message, mailbox), state })
    }

    pub(crate) fn count(&self) -> MessageCounts {
        self.count
    }

    pub(crate) fn dead_letters(&self, most: usize, mailbox: &Arc<dyn Mailbox>) -> Vec<DeadLetter> {
        let dead = self.dead.iter().take(most);
        dead.map(|dead| DeadLetter {
            message: self.show_message(&dead.message, mailbox),
            reason: dead.reason.clone(),
            died_at: dead.died,
        })
        .collect()
    }
}
