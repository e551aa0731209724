//! Timers: the ends of leases, delays and times to live.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The number of stale timers below which a clean-up is not worthwhile.
const FEW: usize = 64;

/// The end of a lease, delay or time to live, in nanoseconds of the mailbox's clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timer {
    pub(crate) at: u64,
    /// The number of the lease, delay or message that ends. Numbers are not reused.
    pub(crate) number: u64,
    pub(crate) slot: u32,
}

/// All timers, earliest first. A stale timer stays until it is due, or until most timers are stale.
#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<Timer>>,
    stale: usize,
}

impl Timers {
    /// Adds a timer. Returns whether it is the earliest.
    pub(crate) fn add(&mut self, timer: Timer) -> bool {
        let is_first = self.next().is_none_or(|next| timer.at < next);
        self.heap.push(Reverse(timer));
        is_first
    }

    /// Returns when the earliest timer is due.
    pub(crate) fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(timer)| timer.at)
    }

    /// Removes and returns the earliest timer if it is due.
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<Timer> {
        self.next().filter(|next| *next <= now)?;
        self.heap.pop().map(|Reverse(timer)| timer)
    }

    /// Notes that this many more timers are stale. `is_pending` tells stale timers from pending ones.
    pub(crate) fn note_stale(&mut self, timers: usize, is_pending: impl Fn(&Timer) -> bool) {
        self.stale += timers;
        if self.stale > FEW && self.stale * 2 > self.heap.len() {
            self.heap.retain(|Reverse(timer)| is_pending(timer));
            self.stale = 0;
        }
    }

    /// Notes that a stale timer was removed by [`Timers::pop_due`].
    pub(crate) fn drop_stale(&mut self) {
        self.stale = self.stale.saturating_sub(1);
    }

    /// Returns the number of timers, including stale ones.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(crate) fn clear(&mut self) {
        self.heap.clear();
        self.stale = 0;
    }
}
