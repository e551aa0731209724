//! How many calls ended lately, and how many of them failed, counted without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// A bucket is one word: 20 bits for the number of its turn, 22 for calls and 22 for failures.
const COUNT_BITS: u32 = 22;
const TURN_BITS: u32 = 20;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const TURN_MASK: u64 = (1 << TURN_BITS) - 1;
const FAILURE: u64 = 1;
const CALL: u64 = 1 << COUNT_BITS;
/// The count at which a bucket stops counting, well before one field overflows into the next. The ratio is kept.
const FULL: u64 = COUNT_MASK - (1 << 16);

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallQuality {
    Good,
    Bad,
}

/// The number of calls that ended lately, and how many of them failed.
#[derive(Debug)]
pub(crate) struct FailureWindow {
    began: Instant,
    /// The length of a turn of a bucket, in nanoseconds.
    turn: AtomicU64,
    buckets: [AtomicU64; 2],
}

impl FailureWindow {
    pub(crate) fn new(length: Duration, now: Instant) -> Self {
        Self { began: now, turn: AtomicU64::new(turn_of(length)), buckets: Default::default() }
    }

    /// Changes the length, and discards the counts, which belong to turns of the old length. A count that is added at
    /// the same moment may be lost, too.
    pub(crate) fn set_length(&self, length: Duration) {
        let turn = turn_of(length);
        if self.turn.swap(turn, Ordering::Relaxed) != turn {
            self.clear();
        }
    }

    fn turn(&self, now: Instant) -> u64 {
        let time = now.saturating_duration_since(self.began);
        u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) / self.turn.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self, how: CallQuality, now: Instant) {
        let what = match how {
            CallQuality::Good => CALL,
            CallQuality::Bad => CALL | FAILURE,
        };
        let turn = self.turn(now);
        let bucket = &self.buckets[(turn & 1) as usize];
        let tag = turn & TURN_MASK;
        let seen = bucket.load(Ordering::Relaxed);
        let seen_tag = seen >> (2 * COUNT_BITS);
        if seen_tag != tag {
            if seen_tag == (tag + 2) & TURN_MASK {
                // The call is late: the next turn of its bucket has already begun.
                return;
            }
            let fresh = tag << (2 * COUNT_BITS) | what;
            if bucket.compare_exchange(seen, fresh, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return;
            }
            // Another thread began the turn first.
        }
        if (seen >> COUNT_BITS) & COUNT_MASK < FULL || seen_tag != tag {
            bucket.fetch_add(what, Ordering::Relaxed);
        }
    }

    /// Returns the number of calls and of failures.
    pub(crate) fn sum(&self, now: Instant) -> (u32, u32) {
        let turn = self.turn(now);
        let valid = [turn & TURN_MASK, turn.wrapping_sub(1) & TURN_MASK];
        let words = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        let counted = words.filter(|word| valid.contains(&(word >> (2 * COUNT_BITS))));
        counted.fold((0, 0), |(calls, failures), word| {
            (calls + ((word >> COUNT_BITS) & COUNT_MASK) as u32, failures + (word & COUNT_MASK) as u32)
        })
    }

    pub(crate) fn clear(&self) {
        self.buckets.iter().for_each(|bucket| bucket.store(0, Ordering::Relaxed));
    }
}

/// Returns the length of a turn. Two turns make up the window.
fn turn_of(length: Duration) -> u64 {
    u64::try_from(length.as_nanos() / 2).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_bucket_does_not_overflow_into_its_neighbouring_count() {
        let now = Instant::now();
        let window = FailureWindow::new(Duration::from_secs(10), now);
        window.buckets[0].store((FULL - 1) << COUNT_BITS | 7, Ordering::Relaxed);
        (0..10).for_each(|_| window.count(CallQuality::Bad, now));
        assert_eq!(window.sum(now), (FULL as u32, 8));
    }

    #[test]
    fn a_late_result_does_not_move_the_window_back() {
        let now = Instant::now();
        let window = FailureWindow::new(Duration::from_secs(10), now);
        window.count(CallQuality::Good, now + Duration::from_secs(10));
        window.count(CallQuality::Bad, now);
        assert_eq!(window.sum(now + Duration::from_secs(10)), (1, 0));
        // After any idle time the window counts again, even if the turn numbers have wrapped around.
        let later = now + Duration::from_secs(5) * (1 << TURN_BITS) + Duration::from_secs(10) * 3;
        window.count(CallQuality::Good, later);
        assert_eq!(window.sum(later), (1, 0));
    }
}
