//! Groups of messages. Only one message of a group can be received at a time.

use std::collections::{BTreeSet, HashMap};

/// The messages behind the first one of their group, in the order of their sends, as pairs of sequence number and slot.
#[derive(Default)]
pub(crate) struct MessageGroups {
    behind: HashMap<String, BTreeSet<(u64, u32)>>,
}

impl MessageGroups {
    /// Adds a message to its group. Returns whether it is the first one.
    pub(crate) fn join(&mut self, group: &str, sequence: u64, slot: u32) -> bool {
        if let Some(behind) = self.behind.get_mut(group) {
            behind.insert((sequence, slot));
            return false;
        }
        self.behind.insert(group.to_owned(), BTreeSet::new());
        true
    }

    /// Removes the first message of the group. Returns the slot of the next one.
    pub(crate) fn next(&mut self, group: &str) -> Option<u32> {
        let next = self.behind.get_mut(group)?.pop_first();
        if next.is_none() {
            self.behind.remove(group);
        }
        next.map(|(_, slot)| slot)
    }

    /// Removes a message that is not the first of its group.
    pub(crate) fn leave(&mut self, group: &str, sequence: u64, slot: u32) {
        if let Some(behind) = self.behind.get_mut(group) {
            behind.remove(&(sequence, slot));
        }
    }

    pub(crate) fn clear(&mut self) {
        self.behind.clear();
    }
}
