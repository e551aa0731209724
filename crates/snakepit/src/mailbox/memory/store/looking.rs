//! What is there, for those who only look. What was due has happened before.

use std::sync::Arc;

use super::super::letter::Letter;
use super::{Dead, Place, Store, is_visible};
use crate::mailbox::attempt::this_process;
use crate::mailbox::{Count, DeadLetter, Found, Mailbox, Message, MessageId, Place as Location};

impl Store {
    pub(in crate::mailbox::memory) fn peek(&self, most: usize, mailbox: &Arc<dyn Mailbox>) -> Vec<Message> {
        let slots = &self.slots;
        let next = self.lanes.next(most, |entry| is_visible(slots, entry)).into_iter();
        let seen = |letter: &Letter| letter.message(None, self.settings.max_deliveries, mailbox);
        next.filter_map(|slot| Some(seen(&slots[slot as usize].as_ref()?.letter))).collect()
    }

    /// Looks at all messages.
    pub(in crate::mailbox::memory) fn find(
        &self,
        id: MessageId,
        mailbox: &Arc<dyn Mailbox>,
    ) -> Option<Found> {
        let seen = |letter: &Letter| letter.message(None, self.settings.max_deliveries, mailbox);
        if let Some(held) = self.slots.iter().flatten().find(|held| held.letter.id == id) {
            let place = match held.place {
                Place::Behind | Place::Delayed => Location::Delayed,
                Place::Visible => Location::Visible,
                Place::Leased => Location::InFlight { holder: this_process() },
            };
            return Some(Found { message: seen(&held.letter), place });
        }
        let dead = self.dead.iter().find(|dead| dead.letter.id == id)?;
        let place = Location::Dead { reason: dead.reason.clone() };
        Some(Found { message: seen(&dead.letter), place })
    }

    pub(in crate::mailbox::memory) fn count(&self) -> Count {
        self.count
    }

    pub(in crate::mailbox::memory) fn dead_letters(
        &self,
        most: usize,
        mailbox: &Arc<dyn Mailbox>,
    ) -> Vec<DeadLetter> {
        let letter = |dead: &Dead| DeadLetter {
            message: dead.letter.message(None, self.settings.max_deliveries, mailbox),
            reason: dead.reason.clone(),
            died_at: dead.died,
        };
        self.dead.iter().take(most).map(letter).collect()
    }
}
