//! The confidence interval of a rate.

use super::Interval;

/// The quantile of the normal distribution that leaves 2.5 % on either side.
const Z: f64 = 1.959_963_984_540_054;

/// Returns the 95 % Wilson interval for `passed` of `all`, or `None` if `all` is 0.
pub fn wilson(passed: usize, all: usize) -> Option<Interval> {
    if all == 0 {
        return None;
    }
    let (number, rate) = (all as f64, passed as f64 / all as f64);
    let shrink = 1.0 + Z * Z / number;
    let middle = (rate + Z * Z / (2.0 * number)) / shrink;
    let half = Z / shrink * (rate * (1.0 - rate) / number + Z * Z / (4.0 * number * number)).sqrt();
    // At the ends the formula gives 0 and 1, apart from the last digit.
    let low = if passed == 0 { 0.0 } else { (middle - half).max(0.0) };
    let high = if passed == all { 1.0 } else { (middle + half).min(1.0) };
    Some(Interval { low, high })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Newcombe, "Two-sided confidence intervals for the single proportion" (1998), table I, method 3, which rounds to
    /// four digits.
    #[test]
    fn wilson_intervals_match_the_table_of_newcombe() {
        for (passed, all, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let interval = wilson(passed, all).expect("an interval");
            assert!((interval.low - low).abs() < 5.1e-5, "{passed}/{all}: {interval:?}");
            assert!((interval.high - high).abs() < 5.1e-5, "{passed}/{all}: {interval:?}");
        }
    }

    #[test]
    fn an_interval_stays_between_zero_and_one_and_no_samples_have_none() {
        for all in 1..50 {
            for passed in 0..=all {
                let interval = wilson(passed, all).expect("an interval");
                let rate = passed as f64 / all as f64;
                assert!(0.0 <= interval.low && interval.low <= rate, "{passed}/{all}: {interval:?}");
                assert!(rate <= interval.high && interval.high <= 1.0, "{passed}/{all}: {interval:?}");
            }
        }
        assert_eq!(wilson(0, 0), None);
    }
}
