//! What the mailbox keeps about itself.

use super::{Held, Place, Ring, Store};
use crate::mailbox::{DeadReason, QueueSettings, SettingsChange};

impl Store {
    pub(in crate::mailbox::memory) fn settings(&self) -> QueueSettings {
        self.settings.clone()
    }

    /// What was due before now happens by the old settings.
    pub(in crate::mailbox::memory) fn configure(
        &mut self,
        change: &SettingsChange,
        now: u64,
    ) -> QueueSettings {
        self.settle(now);
        let after = change.applied_to(&self.settings);
        let before = std::mem::replace(&mut self.settings, after);
        // Whoever waits may be given something now.
        self.ring(Ring::All);
        let limit = self.settings.max_deliveries;
        if limit < before.max_deliveries {
            let exhausted = |held: &Held| held.place != Place::Leased && held.letter.deliveries >= limit;
            let mut slots: Vec<(u64, u32)> = (0..self.slots.len() as u32)
                .filter_map(|slot| {
                    Some((self.slots[slot as usize].as_ref().filter(|it| exhausted(it))?.sequence, slot))
                })
                .collect();
            slots.sort_unstable();
            for (_, slot) in slots {
                self.die(slot, DeadReason::Deliveries);
            }
        }
        self.settings()
    }
}
