//! How messages die, and what becomes of dead letters.

use std::time::{Duration, SystemTime};

use super::{Dead, Store};
use crate::mailbox::telling::hears_of_single_messages;
use crate::mailbox::{AttemptEnd, DeadReason, MailboxError, MessageId, Receipt};

impl Store {
    pub(super) fn die(&mut self, slot: u32, reason: DeadReason) {
        if let Some(letter) = self.remove(slot) {
            if hears_of_single_messages() {
                self.news.dead.push((letter.id, reason.clone(), letter.deliveries));
            }
            self.dead.push_back(Dead { letter, reason, died: SystemTime::now() });
            self.count.dead += 1;
        }
    }

    pub(in crate::mailbox::memory) fn bury(
        &mut self,
        receipt: &Receipt,
        reason: DeadReason,
        now: u64,
    ) -> Result<(), MailboxError> {
        let slot = self.leased(receipt, now)?;
        self.note_attempt(slot, AttemptEnd::Bury, reason.error(), now);
        self.die(slot, reason);
        Ok(())
    }

    pub(in crate::mailbox::memory) fn redrive(&mut self, ids: Option<&[MessageId]>, now: u64) -> u64 {
        let chosen: Option<std::collections::HashSet<&MessageId>> = ids.map(|ids| ids.iter().collect());
        let before = self.dead.len();
        for mut dead in std::mem::take(&mut self.dead) {
            if chosen.as_ref().is_none_or(|chosen| chosen.contains(&dead.letter.id)) {
                dead.letter.deliveries = 0;
                self.put(dead.letter, Duration::ZERO, now);
            } else {
                self.dead.push_back(dead);
            }
        }
        self.count.dead = self.dead.len() as u64;
        (before - self.dead.len()) as u64
    }

    pub(in crate::mailbox::memory) fn purge_dead_letters(&mut self) -> u64 {
        self.dead.clear();
        std::mem::take(&mut self.count.dead)
    }
}
