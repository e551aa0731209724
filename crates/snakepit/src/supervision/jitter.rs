//! Chance, so that those who failed together do not come back together.
//!
//! Nothing here has to be unpredictable, only different from worker to worker and from host to host: the keys of std's hash
//! maps are enough, and no library is needed.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// A number from 0 up to, but not including, 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Chance(f64);

impl Chance {
    pub(crate) fn draw() -> Self {
        // Every state has keys of its own.
        let bits = (RandomState::new().hash_one(()) >> 32) as u32;
        Self(f64::from(bits) / 2f64.powi(32))
    }

    pub(crate) fn number(self) -> f64 {
        self.0
    }

    #[cfg(test)]
    pub(crate) fn of(number: f64) -> Self {
        assert!((0.0..1.0).contains(&number), "{number}");
        Self(number)
    }

    /// A time that differs from this one by at most the given part of it, in either direction.
    pub(crate) fn around(self, time: Duration, part: f64) -> Duration {
        scaled(time, 1.0 - part + 2.0 * part * self.0)
    }

    /// A time between nothing and this one.
    pub(crate) fn below(self, time: Duration) -> Duration {
        scaled(time, self.0)
    }
}

/// A product too large to be told is as late as can be.
fn scaled(time: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(time.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

/// A pause that doubles with every step, from the first to the longest.
pub(crate) fn doubled(first: Duration, longest: Duration, steps: u32) -> Duration {
    first.saturating_mul(1u32.checked_shl(steps).unwrap_or(u32::MAX)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_spread_over_the_whole_range() {
        let mut tenths = [0; 10];
        (0..10_000).for_each(|_| tenths[(Chance::draw().0 * 10.0) as usize] += 1);
        assert!(tenths.iter().all(|&count| (800..1200).contains(&count)), "{tenths:?}");
    }

    #[test]
    fn a_time_is_varied_as_far_as_asked_and_no_further() {
        let second = Duration::from_secs(1);
        assert_eq!(Chance::of(0.0).around(second, 0.25), Duration::from_millis(750));
        assert_eq!(Chance::of(0.5).around(second, 0.25), second);
        assert!(Chance::of(0.999).around(second, 0.25) < Duration::from_millis(1250));
        assert_eq!(Chance::of(0.0).below(second), Duration::ZERO);
        assert_eq!(Chance::of(0.999).around(Duration::MAX, 0.25), Duration::MAX);
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_never_overflow() {
        let (first, longest) = (Duration::from_millis(100), Duration::from_secs(5));
        let pauses: Vec<_> = (0..8).map(|step| doubled(first, longest, step).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(doubled(first, longest, u32::MAX), longest);
        assert_eq!(doubled(Duration::MAX, Duration::MAX, 40), Duration::MAX);
    }
}
