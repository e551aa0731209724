//! Which message is next: visible messages by priority, then in the order of their sends.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Below this many, stale entries are not worth a clean-up.
const FEW: usize = 64;

/// A visible message: its position in the order of sends, and its slot.
type QueuePosition = (u64, u32);

/// One level per priority that was ever used, the highest first.
#[derive(Default)]
pub(crate) struct PriorityQueue {
    levels: Vec<PriorityLevel>,
}

struct PriorityLevel {
    priority: i8,
    /// Never received and never delayed, so they arrive in order.
    fresh: VecDeque<QueuePosition>,
    /// Messages that came back or were delayed: their positions are among older ones.
    late: BinaryHeap<Reverse<QueuePosition>>,
    /// How many entries belong to messages that are no longer visible.
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

    /// Adds a message that was just sent, behind all others of its priority.
    pub(crate) fn append(&mut self, priority: i8, sequence: u64, slot: u32) {
        self.level(priority).fresh.push_back((sequence, slot));
    }

    /// Adds a message that came back, or whose delay is over, in its old position.
    pub(crate) fn restore(&mut self, priority: i8, sequence: u64, slot: u32) {
        self.level(priority).late.push(Reverse((sequence, slot)));
    }

    /// Takes the next message that still `is_visible`.
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

    /// A visible message was removed without being taken; its entry stays for now.
    pub(crate) fn note_gone(&mut self, priority: i8, is_visible: impl Fn(QueuePosition) -> bool) {
        let level = self.level(priority);
        level.stale += 1;
        // So that the entries of messages that nobody receives do not pile up.
        if level.stale > FEW && level.stale * 2 > level.fresh.len() + level.late.len() {
            level.fresh.retain(|entry| is_visible(*entry));
            level.late.retain(|Reverse(entry)| is_visible(*entry));
            level.stale = 0;
        }
    }

    /// The next `most` visible messages, in order.
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

    /// How many entries are kept, stale ones included.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.levels.iter().map(|level| level.fresh.len() + level.late.len()).sum()
    }

    pub(crate) fn clear(&mut self) {
        self.levels.clear();
    }
}
