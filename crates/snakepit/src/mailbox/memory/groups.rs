//! Groups of messages, of which one at a time can be received, and how much of a rate limit is used.

use std::collections::{BTreeSet, HashMap};

use super::store::after;
use crate::mailbox::RateLimit;

/// Those behind the first of their group, in the order of their sends: their sequence, and their slot.
#[derive(Default)]
pub(super) struct Groups {
    behind: HashMap<String, BTreeSet<(u64, u32)>>,
}

impl Groups {
    /// A message of the group has come: whether it is the first.
    pub(super) fn join(&mut self, group: &str, sequence: u64, slot: u32) -> bool {
        if let Some(behind) = self.behind.get_mut(group) {
            behind.insert((sequence, slot));
            return false;
        }
        self.behind.insert(group.to_owned(), BTreeSet::new());
        true
    }

    /// The first of the group is gone: the slot of the next.
    pub(super) fn next(&mut self, group: &str) -> Option<u32> {
        let next = self.behind.get_mut(group)?.pop_first();
        if next.is_none() {
            self.behind.remove(group);
        }
        next.map(|(_, slot)| slot)
    }

    /// One that was behind is gone.
    pub(super) fn leave(&mut self, group: &str, sequence: u64, slot: u32) {
        if let Some(behind) = self.behind.get_mut(group) {
            behind.remove(&(sequence, slot));
        }
    }

    pub(super) fn clear(&mut self) {
        self.behind.clear();
    }
}

/// Below this many, periods that are over are not worth a clean-up.
const FEW: usize = 64;

/// The periods of the whole mailbox and of its groups: when each began, and how much of it is used.
#[derive(Default)]
pub(super) struct Rates {
    whole: Option<(u64, u32)>,
    groups: HashMap<String, (u64, u32)>,
    /// How many groups there were after the last clean-up.
    kept: usize,
}

fn length(rate: &RateLimit) -> u64 {
    after(0, rate.per)
}

impl Rates {
    /// How many more may be given out now, and when the period ends.
    pub(super) fn whole(&self, rate: &RateLimit, now: u64) -> (u32, u64) {
        rate.allowance(self.whole, now, length(rate))
    }

    pub(super) fn of_group(&self, group: &str, rate: &RateLimit, now: u64) -> (u32, u64) {
        rate.allowance(self.groups.get(group).copied(), now, length(rate))
    }

    pub(super) fn spend_whole(&mut self, rate: &RateLimit, now: u64, messages: u32) {
        self.whole = Some(RateLimit::spent(self.whole, now, length(rate), messages));
    }

    pub(super) fn spend_of_group(&mut self, group: &str, rate: &RateLimit, now: u64) {
        let per = length(rate);
        let period = RateLimit::spent(self.groups.get(group).copied(), now, per, 1);
        self.groups.insert(group.to_owned(), period);
        if self.groups.len() > FEW.max(2 * self.kept) {
            self.groups.retain(|_, (began, _)| now < began.saturating_add(per));
            self.kept = self.groups.len();
        }
    }
}
