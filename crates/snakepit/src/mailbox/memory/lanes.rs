//! Who is next: the visible messages by priority, then by their sends.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Below this many, entries of messages that are gone are not worth a clean-up.
const FEW: usize = 64;

/// A visible message: its place in the order of sends, and its slot.
type Entry = (u64, u32);

/// One lane per priority that was ever used, the highest first.
#[derive(Default)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
}

struct Lane {
    priority: i8,
    /// Never received and never delayed, so in order as they come.
    fresh: VecDeque<Entry>,
    /// Those that came back, or were delayed: their places are among older ones.
    late: BinaryHeap<Reverse<Entry>>,
    /// How many entries are of messages that are not visible any more.
    stale: usize,
}

impl Lane {
    fn new(priority: i8) -> Self {
        Self { priority, fresh: VecDeque::new(), late: BinaryHeap::new(), stale: 0 }
    }

    fn pop(&mut self) -> Option<Entry> {
        match (self.fresh.front(), self.late.peek()) {
            (Some(fresh), Some(Reverse(late))) if late < fresh => self.late.pop().map(|Reverse(entry)| entry),
            (None, _) => self.late.pop().map(|Reverse(entry)| entry),
            (Some(_), _) => self.fresh.pop_front(),
        }
    }
}

impl Lanes {
    fn lane(&mut self, priority: i8) -> &mut Lane {
        let place = self.lanes.binary_search_by(|lane| priority.cmp(&lane.priority));
        let index = place.unwrap_or_else(|index| {
            self.lanes.insert(index, Lane::new(priority));
            index
        });
        &mut self.lanes[index]
    }

    /// Behind all others of its priority: a message that was just sent.
    pub(super) fn append(&mut self, priority: i8, sequence: u64, slot: u32) {
        self.lane(priority).fresh.push_back((sequence, slot));
    }

    /// In its old place: a message that came back, or whose delay is over.
    pub(super) fn restore(&mut self, priority: i8, sequence: u64, slot: u32) {
        self.lane(priority).late.push(Reverse((sequence, slot)));
    }

    /// Takes the next message that still `is_visible`.
    pub(super) fn pop(&mut self, is_visible: impl Fn(Entry) -> bool) -> Option<Entry> {
        for lane in &mut self.lanes {
            while let Some(entry) = lane.pop() {
                if is_visible(entry) {
                    return Some(entry);
                }
                lane.stale = lane.stale.saturating_sub(1);
            }
        }
        None
    }

    /// A visible message has gone without being taken; its entry is left behind for now.
    pub(super) fn note_gone(&mut self, priority: i8, is_visible: impl Fn(Entry) -> bool) {
        let lane = self.lane(priority);
        lane.stale += 1;
        // So that what nobody receives does not pile up.
        if lane.stale > FEW && lane.stale * 2 > lane.fresh.len() + lane.late.len() {
            lane.fresh.retain(|entry| is_visible(*entry));
            lane.late.retain(|Reverse(entry)| is_visible(*entry));
            lane.stale = 0;
        }
    }

    /// The next `most` that are visible, in order.
    pub(super) fn next(&self, most: usize, is_visible: impl Fn(Entry) -> bool) -> Vec<u32> {
        let mut found = Vec::new();
        for lane in &self.lanes {
            let missing = most - found.len();
            let visible = |entry: &Entry| is_visible(*entry);
            let mut entries: Vec<Entry> =
                lane.late.iter().map(|Reverse(entry)| *entry).filter(visible).collect();
            entries.extend(lane.fresh.iter().copied().filter(visible).take(missing));
            entries.sort_unstable();
            found.extend(entries.into_iter().take(missing).map(|(_, slot)| slot));
        }
        found
    }

    /// How many are kept, those that are gone included.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lanes.iter().map(|lane| lane.fresh.len() + lane.late.len()).sum()
    }

    pub(super) fn clear(&mut self) {
        self.lanes.clear();
    }
}
