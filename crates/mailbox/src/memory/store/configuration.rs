//! The settings of the mailbox.

use super::{LiveMessage, LiveState, Store, Wake};
use crate::{DeadReason, QueueSettings, SettingsChange};

impl Store {
    pub(crate) fn settings(&self) -> QueueSettings {
        self.settings.clone()
    }

    /// Changes the settings. Timers that are due by now are processed under the old settings first.
    pub(crate) fn configure(&mut self, change: &SettingsChange, now: u64) -> QueueSettings {
        self.settle(now);
        let after = change.applied_to(&self.settings);
        let before = std::mem::replace(&mut self.settings, after);
        // The new settings may allow a delivery to a waiting receiver.
        self.wake(Wake::All);
        if self.settings.group_rate_limit != before.group_rate_limit {
            self.show_what_waits_for_rate();
        }
        let limit = self.settings.max_deliveries;
        if limit < before.max_deliveries {
            let is_exhausted =
                |live: &LiveMessage| live.state != LiveState::Leased && live.message.deliveries >= limit;
            let slots = self.slots.iter().zip(0..);
            let mut exhausted: Vec<(u64, u32)> = slots
                .filter_map(|(live, slot)| {
                    Some((live.as_ref().filter(|live| is_exhausted(live))?.sequence, slot))
                })
                .collect();
            exhausted.sort_unstable();
            for (_, slot) in exhausted {
                self.die(slot, DeadReason::Deliveries);
            }
        }
        self.settings()
    }

    /// Makes messages visible that wait for a later period of a rate that no longer holds.
    fn show_what_waits_for_rate(&mut self) {
        self.rates.forget_reservations();
        let waits = |live: &LiveMessage| live.waits_for_rate && live.state == LiveState::Delayed;
        let slots = self.slots.iter().zip(0..);
        let waiting: Vec<u32> =
            slots.filter(|(live, _)| live.as_ref().is_some_and(waits)).map(|(_, slot)| slot).collect();
        for slot in waiting {
            self.show(slot);
            self.drop_timers(1);
            if let Some(live) = self.live(slot) {
                live.waits_for_rate = false;
            }
        }
    }
}
