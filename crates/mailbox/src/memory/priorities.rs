//! The order of delivery: visible messages by priority, then in the order of their sends.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The number of stale entries below which a clean-up is not worthwhile.
const FEW: usize = 64;

/// The position of a visible message in the order of sends, and its slot.
type QueuePosition = (u64, u32);

/// The visible messages, with one level per priority ever used, highest first.
#[derive(Default)]
pub(crate) struct PriorityQueue {
    levels: Vec<PriorityLevel>,
}

struct PriorityLevel {
    priority: i8,
    /// Messages that were never received or delayed, and so arrive in order.
    fresh: VecDeque<QueuePosition>,
    /// Messages that were given back or delayed, so that their positions are among older ones.
    late: BinaryHeap<Reverse<QueuePosition>>,
    /// The number of entries whose messages are no longer visible.
    stale: usize,
}

impl PriorityLevel {
    fn new(priority: i8) -> Self {
        Self { priority, fresh: VecDeque::new(), late: BinaryHeap::new(), stale: 0 }
    }

    fn pop(&mut self) -> Option<QueuePosition> {
        match (self.fresh.front(), self.late.peek()) {
            (Some(fresh), Some(Reverse(late))) if late < fresh => self.late.pop().map(|Reverse(entry)| entry),
            (None, _) => self.late.pop().map(|Reverse(entry)| entry),
            (Some(_), _) => self.fresh.pop_front(),
        }
    }
}

impl PriorityQueue {
    fn level(&mut self, priority: i8) -> &mut PriorityLevel {
        let found = self.levels.binary_search_by(|level| priority.cmp(&level.priority));
        let index = found.unwrap_or_else(|index| {
            self.levels.insert(index, PriorityLevel::new(priority));
            index
        });
        &mut self.levels[index]
    }

    /// Adds a message that was just sent, behind all other messages of its priority.
    pub(crate) fn append(&mut self, priority: i8, sequence: u64, slot: u32) {
        self.level(priority).fresh.push_back((sequence, slot));
    }

    /// Adds a message that was given back, or whose delay is over, in its old position.
    pub(crate) fn restore(&mut self, priority: i8, sequence: u64, slot: u32) {
        self.level(priority).late.push(Reverse((sequence, slot)));
    }

    /// Removes and returns the next message for which `is_visible` holds.
    pub(crate) fn pop(&mut self, is_visible: impl Fn(QueuePosition) -> bool) -> Option<QueuePosition> {
        for level in &mut self.levels {
            while let Some(entry) = level.pop() {
                if is_visible(entry) {
                    return Some(entry);
                }
                level.stale = level.stale.saturating_sub(1);
            }
        }
        None
    }

    /// Notes that a visible message was removed by other means than [`PriorityQueue::pop`]. Its entry stays for now.
    pub(crate) fn note_gone(&mut self, priority: i8, is_visible: impl Fn(QueuePosition) -> bool) {
        let level = self.level(priority);
        level.stale += 1;
        // Stale entries must not accumulate in a mailbox that nobody receives from.
        if level.stale > FEW && level.stale * 2 > level.fresh.len() + level.late.len() {
            level.fresh.retain(|entry| is_visible(*entry));
            level.late.retain(|Reverse(entry)| is_visible(*entry));
            level.stale = 0;
        }
    }

    /// Returns the next `most` visible messages, in order.
    pub(crate) fn next(&self, most: usize, is_visible: impl Fn(QueuePosition) -> bool) -> Vec<u32> {
        let mut found = Vec::new();
        for level in &self.levels {
            let missing = most - found.len();
            let visible = |entry: &QueuePosition| is_visible(*entry);
            let mut entries: Vec<QueuePosition> =
                level.late.iter().map(|Reverse(entry)| *entry).filter(visible).collect();
            entries.extend(level.fresh.iter().copied().filter(visible).take(missing));
            entries.sort_unstable();
            found.extend(entries.into_iter().take(missing).map(|(_, slot)| slot));
        }
        found
    }

    /// Returns the number of entries, including stale ones.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.levels.iter().map(|level| level.fresh.len() + level.late.len()).sum()
    }

    pub(crate) fn clear(&mut self) {
        self.levels.clear();
    }
}
