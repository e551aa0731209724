//! The ratio of two costs that were measured in pairs, its interval, and whether it is worse.
//!
//! The interval depends only on the order of the ratios: it is an inverted sign test. It assumes no distribution of the
//! noise and needs no random numbers. With too few pairs there is none.

use crate::SampleSet;

/// A row is worse if its median ratio exceeds this and its interval excludes 1.
const TOLERATED: f64 = 1.05;

/// The maximum probability outside the interval.
const OUTSIDE: f64 = 0.05;

/// New cost divided by old cost: above 1, the new build is slower or larger.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostRatio {
    /// The number of pairs.
    pub pairs: usize,
    /// The median of the pairs' ratios.
    pub median: f64,
    /// Where the true median lies with a confidence of at least 95 %. `None` if there are too few pairs.
    pub interval: Option<(f64, f64)>,
}

/// What a ratio says about the new build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowVerdict {
    /// The median exceeds 1.05 and the interval excludes 1.
    Worse,
    /// The interval lies below 1.
    Better,
    /// The difference is within 5 %, or within the noise.
    Same,
    /// There are too few pairs for an interval.
    Undecided,
}

impl CostRatio {
    /// Computes the ratio. Returns `None` if there are no pairs.
    pub fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        if pairs.is_empty() {
            return None;
        }
        let mut ratios: Vec<f64> = pairs.iter().map(|(old, new)| new / old).collect();
        ratios.sort_by(f64::total_cmp);
        let interval = outermost(ratios.len()).map(|rank| (ratios[rank], ratios[ratios.len() - 1 - rank]));
        let median = ratios.iter().copied().collect::<SampleSet>().median();
        Some(Self { pairs: ratios.len(), median, interval })
    }

    /// Judges the new build by the documented definition of "worse".
    pub fn judge(&self) -> RowVerdict {
        match self.interval {
            None => RowVerdict::Undecided,
            Some((low, _)) if low > 1.0 && self.median > TOLERATED => RowVerdict::Worse,
            Some((_, high)) if high < 1.0 => RowVerdict::Better,
            Some(_) => RowVerdict::Same,
        }
    }
}

/// Returns the largest rank, counted from 0, such that the values from this rank to the same rank from above contain
/// the median with the wanted confidence.
///
/// The median lies below the value of rank `r` only if at most `r` of all values lie below it, and each value does so
/// with probability 1/2. The same holds above.
fn outermost(count: usize) -> Option<usize> {
    let mut term = 0.5_f64.powi(i32::try_from(count).ok()?);
    let (mut tail, mut rank) = (0.0, None);
    for below in 0..count.div_ceil(2) {
        tail += term;
        if 2.0 * tail > OUTSIDE {
            break;
        }
        rank = Some(below);
        term *= (count - below) as f64 / (below + 1) as f64;
    }
    rank
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(ratios: &[f64]) -> CostRatio {
        CostRatio::of(&ratios.iter().map(|ratio| (2.0, 2.0 * ratio)).collect::<Vec<_>>()).expect("pairs")
    }

    #[test]
    fn the_ranks_are_those_of_the_sign_tests_tables() {
        // Published as the critical values of the two-sided sign test at 5 %.
        let table =
            [(6, 0), (8, 0), (9, 1), (12, 2), (15, 3), (20, 5), (25, 7), (30, 9), (50, 17), (100, 39)];
        for (count, rank) in table {
            assert_eq!(outermost(count), Some(rank), "{count} pairs");
        }
        for count in 0..6 {
            assert_eq!(outermost(count), None, "{count} pairs");
        }
    }

    #[test]
    fn the_interval_holds_the_median_as_often_as_it_says() {
        // A linear congruential generator is random enough, and the same in every run.
        let mut state = 42_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let trials = 4_000;
        let held = (0..trials)
            .filter(|_| {
                // Skewed noise with median 1.
                let ratios: Vec<f64> = (0..12).map(|_| (random() - 0.5).exp()).collect();
                let (low, high) = ratio(&ratios).interval.expect("12 pairs");
                low <= 1.0 && 1.0 <= high
            })
            .count();
        let share = held as f64 / f64::from(trials);
        assert!((0.95..0.985).contains(&share), "{share}; 12 pairs promise 0.961");
    }

    #[test]
    fn a_row_is_worse_only_if_it_is_far_enough_and_sure_enough() {
        let cases: [(&[f64], RowVerdict); 6] = [
            (&[1.10, 1.11, 1.12, 1.08, 1.09, 1.10], RowVerdict::Worse),
            (&[1.03, 1.04, 1.02, 1.03, 1.04, 1.03], RowVerdict::Same),
            (&[1.30, 0.99, 1.20, 1.40, 1.10, 1.30], RowVerdict::Same),
            (&[0.90, 0.91, 0.92, 0.99, 0.80, 0.90], RowVerdict::Better),
            (&[2.0, 2.0, 2.0, 2.0, 2.0], RowVerdict::Undecided),
            (&[1.0, 1.0, 1.0, 1.0, 1.0, 1.0], RowVerdict::Same),
        ];
        for (ratios, judgement) in cases {
            assert_eq!(ratio(ratios).judge(), judgement, "{ratios:?}");
        }
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert!((ratio(&[1.0, 2.0, 4.0, 3.0]).median - 2.5).abs() < 1e-12);
    }
}
