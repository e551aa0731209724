//! Moves messages to the dead letters and back.

use std::collections::HashSet;
use std::time::Duration;

use super::{DeadMessage, Store};
use crate::telemetry::{self, MessageEvent};
use crate::{DeadReason, MessageId};

impl Store {
    pub(super) fn die(&mut self, slot: u32, reason: DeadReason) {
        if let Some(message) = self.remove(slot) {
            telemetry::note(&mut self.effects.events, || {
                MessageEvent::DeadLettered(message.id, reason.clone(), message.deliveries)
            });
            self.dead.push_back(DeadMessage { message, reason, died: self.clock.wall() });
            self.count.dead += 1;
        }
    }

    pub(crate) fn redrive(&mut self, ids: Option<&[MessageId]>, now: u64) -> u64 {
        let chosen: Option<HashSet<&MessageId>> = ids.map(|ids| ids.iter().collect());
        let before = self.dead.len();
        for mut dead in std::mem::take(&mut self.dead) {
            if chosen.as_ref().is_none_or(|chosen| chosen.contains(&dead.message.id)) {
                dead.message.deliveries = 0;
                self.put(dead.message, Duration::ZERO, now);
            } else {
                self.dead.push_back(dead);
            }
        }
        self.count.dead = self.dead.len() as u64;
        (before - self.dead.len()) as u64
    }

    pub(crate) fn purge_dead_letters(&mut self) -> u64 {
        self.dead.clear();
        std::mem::take(&mut self.count.dead)
    }
}
