//! What happens when: the ends of leases, delays and times to live.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Below this many, timers that mean nothing any more are not worth a clean-up.
const FEW: usize = 64;

/// Something is due at a time, in nanoseconds of the mailbox's clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timer {
    pub(super) at: u64,
    /// Which lease, delay or message it is about; a number that is not used again.
    pub(super) about: u64,
    pub(super) slot: u32,
}

/// All timers, the earliest on top. One whose matter is settled stays until it is due, or until such are the most.
#[derive(Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<Timer>>,
    stale: usize,
}

impl Timers {
    /// Whether it is now the earliest of all.
    pub(super) fn add(&mut self, timer: Timer) -> bool {
        let is_first = self.next().is_none_or(|next| timer.at < next);
        self.heap.push(Reverse(timer));
        is_first
    }

    /// When the earliest is due.
    pub(super) fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(timer)| timer.at)
    }

    /// Takes the earliest, if it is due.
    pub(super) fn pop_due(&mut self, now: u64) -> Option<Timer> {
        self.next().filter(|next| *next <= now)?;
        self.heap.pop().map(|Reverse(timer)| timer)
    }

    /// So many timers mean nothing any more; `matters` says of each whether it does.
    pub(super) fn note_stale(&mut self, timers: usize, matters: impl Fn(&Timer) -> bool) {
        self.stale += timers;
        if self.stale > FEW && self.stale * 2 > self.heap.len() {
            self.heap.retain(|Reverse(timer)| matters(timer));
            self.stale = 0;
        }
    }

    /// One that means nothing was taken.
    pub(super) fn drop_stale(&mut self) {
        self.stale = self.stale.saturating_sub(1);
    }

    /// How many are kept, those that mean nothing included.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(super) fn clear(&mut self) {
        self.heap.clear();
        self.stale = 0;
    }
}
