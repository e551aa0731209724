//! Random pauses: workers and calls that failed together must not come back together.
//!
//! A policy draws nothing itself. Its caller draws a [`Chance`] and passes it in, so that tests can choose it.

use std::time::Duration;

/// A number from 0 up to, but not including, 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Chance(f64);

impl Chance {
    /// A number that nobody can foresee.
    pub fn draw() -> Self {
        Self(fastrand::f64())
    }

    /// The number itself.
    pub fn number(self) -> f64 {
        self.0
    }

    #[cfg(test)]
    /// A number from zero to one.
    pub fn of(number: f64) -> Self {
        assert!((0.0..1.0).contains(&number), "{number}");
        Self(number)
    }

    /// A time that differs from `time` by at most the share `part` of it, in either direction.
    pub fn around(self, time: Duration, part: f64) -> Duration {
        scaled(time, 1.0 - part + 2.0 * part * self.0)
    }

    /// A time between zero and `time`.
    pub fn below(self, time: Duration) -> Duration {
        scaled(time, self.0)
    }
}

/// Saturates where the product is too large for a `Duration`.
fn scaled(time: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(time.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

/// A pause that doubles with every step, from the first to the longest.
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
