//! Random pauses, so that workers and calls that failed together do not retry together.
//!
//! A policy draws no random numbers. Its caller draws a [`Chance`] and passes it in, so that tests can choose it.

use std::time::Duration;

/// A random number from 0 up to, but not including, 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Chance(f64);

impl Chance {
    /// Draws a number.
    pub fn draw() -> Self {
        Self(fastrand::f64())
    }

    /// Returns the number.
    pub fn number(self) -> f64 {
        self.0
    }

    #[cfg(test)]
    /// Returns the chance with this number, for tests.
    pub fn of(number: f64) -> Self {
        assert!((0.0..1.0).contains(&number), "{number}");
        Self(number)
    }

    /// Returns a time that differs from `time` by at most the share `part`, in either direction.
    pub fn around(self, time: Duration, part: f64) -> Duration {
        scaled(time, 1.0 - part + 2.0 * part * self.0)
    }

    /// Returns a time between zero and `time`.
    pub fn below(self, time: Duration) -> Duration {
        scaled(time, self.0)
    }
}

/// Multiplies a time. Saturates if the product does not fit in a `Duration`.
pub(crate) fn scaled(time: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(time.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

/// Returns `first`, doubled `steps` times, but at most `longest`.
pub fn doubled(first: Duration, longest: Duration, steps: u32) -> Duration {
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
    fn jitter_stays_within_the_requested_part_of_the_time() {
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
