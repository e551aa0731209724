//! The confidence interval of a mean, without assumptions about the distribution.

use super::Interval;
use super::distribution::{mean, quantile};
use super::split_mix::SplitMix64;

/// The seed. Any number will do, as long as it never changes.
const SEED: u64 = 0x5eed_0001;

/// The number of resamplings. With this number the ends of the interval vary by about 1 % of its width.
const ROUNDS: usize = 10_000;

/// The limit of draws. Many numbers need fewer rounds, because their means are close together, and the full number of
/// rounds would take minutes.
const DRAWS: usize = 50_000_000;
const FEWEST_ROUNDS: usize = 1_000;

/// Returns the 95 % interval of a mean by the percentile bootstrap with a fixed seed, or `None` for fewer than two
/// numbers.
pub fn mean_interval(numbers: &[f64]) -> Option<Interval> {
    if numbers.len() < 2 {
        return None;
    }
    let rounds = (DRAWS / numbers.len()).clamp(FEWEST_ROUNDS, ROUNDS);
    let mut generator = SplitMix64::new(SEED);
    let mut means: Vec<f64> = (0..rounds)
        .map(|_| {
            let drawn = (0..numbers.len()).map(|_| numbers[generator.below(numbers.len())]);
            drawn.sum::<f64>() / numbers.len() as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    // Equal numbers have one mean, which must not vary by rounding errors of the sum.
    if numbers.iter().all(|number| number.total_cmp(&numbers[0]).is_eq()) {
        let same = mean(numbers)?;
        return Some(Interval { low: same, high: same });
    }
    Some(Interval { low: quantile(&means, 0.025)?, high: quantile(&means, 0.975)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_numbers_give_the_same_interval() {
        let numbers: Vec<f64> = (0..57).map(|number| f64::from(number % 7) / 6.0).collect();
        assert_eq!(mean_interval(&numbers), mean_interval(&numbers));
    }

    /// The mean of many numbers is normally distributed, so the interval must be the textbook interval.
    #[test]
    fn the_bootstrap_interval_of_many_numbers_approaches_the_normal_one() {
        let numbers: Vec<f64> = (0..2_000).map(|number| f64::from(number % 2)).collect();
        let half = 1.96 * (0.25_f64 / 2_000.0).sqrt();
        let interval = mean_interval(&numbers).expect("an interval");
        assert!((interval.low - (0.5 - half)).abs() < 0.002, "{interval:?}");
        assert!((interval.high - (0.5 + half)).abs() < 0.002, "{interval:?}");
    }

    /// Of all draws of two numbers a and b, a quarter is (a, a) and a quarter is (b, b), so both ends are known.
    #[test]
    fn the_bootstrap_interval_of_two_numbers_spans_both() {
        let interval = mean_interval(&[1.0, 5.0]).expect("an interval");
        assert_eq!(interval, Interval { low: 1.0, high: 5.0 });
    }

    #[test]
    fn one_number_has_no_interval_and_equal_numbers_one_of_width_zero() {
        assert_eq!(mean_interval(&[]), None);
        assert_eq!(mean_interval(&[0.3]), None);
        assert_eq!(mean_interval(&[0.1; 9]).map(|it| it.high - it.low), Some(0.0));
    }
}
