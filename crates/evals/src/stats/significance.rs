//! Whether two experiments on the same samples differ by more than chance. Both tests are two-sided.

use super::split_mix::SplitMix64;

const SEED: u64 = 0x5eed_0002;

/// The number of differences up to which all 2^16 ways to flip their signs are tried.
const EXACT: usize = 16;

/// The number of random draws for more differences.
const ROUNDS: u32 = 20_000;

/// Returns the p-value of the exact McNemar test: the probability of a split at least this uneven, if each sample on
/// which two experiments differ falls to either with a probability of one half.
pub fn mcnemar(only_first: usize, only_second: usize) -> f64 {
    let all = only_first + only_second;
    let fewer = only_first.min(only_second);
    // The sum of the binomial distribution up to the smaller side. Computed with logarithms, because 2^-all soon
    // underflows.
    let mut choose = 0.0_f64;
    let mut terms = Vec::with_capacity(fewer + 1);
    let half = -(all as f64) * std::f64::consts::LN_2;
    for taken in 0..=fewer {
        terms.push(choose + half);
        choose += ((all - taken) as f64).ln() - ((taken + 1) as f64).ln();
    }
    // The small terms come first, so that they are not lost beside the large ones.
    let side: f64 = terms.iter().map(|term| term.exp()).sum();
    (2.0 * side).min(1.0)
}

/// Returns the p-value of the paired permutation test: the probability of a mean difference of at least this size, if
/// the sign of each difference is random. Exact for up to 16 differences that are not zero. Otherwise estimated by
/// 20,000 draws with a fixed seed.
pub fn permutation(differences: &[f64]) -> f64 {
    // Zeros do not change any sum.
    let differences: Vec<f64> = differences.iter().copied().filter(|it| *it != 0.0).collect();
    let observed = differences.iter().sum::<f64>().abs();
    let size: f64 = differences.iter().map(|it| it.abs()).sum();
    // Mathematically equal sums may differ in their last digits.
    let is_as_far = |sum: f64| sum.abs() >= observed - size * 1e-12;
    if differences.len() <= EXACT {
        let ways = 1_u32 << differences.len();
        let as_far =
            (0..ways).filter(|signs| is_as_far(flipped(&differences, |at| signs >> at & 1 == 1))).count();
        return as_far as f64 / f64::from(ways);
    }
    let mut generator = SplitMix64::new(SEED);
    let as_far = (0..ROUNDS).filter(|_| {
        let mut bits = 0;
        is_as_far(flipped(&differences, |at| {
            if at % 64 == 0 {
                bits = generator.next();
            }
            bits >> (at % 64) & 1 == 1
        }))
    });
    // The observed signs are one of the possible ways, so the result is never zero.
    (as_far.count() as f64 + 1.0) / (f64::from(ROUNDS) + 1.0)
}

fn flipped(differences: &[f64], mut flip: impl FnMut(usize) -> bool) -> f64 {
    differences.iter().enumerate().map(|(at, it)| if flip(at) { -it } else { *it }).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_close(found: f64, expected: f64) {
        assert!((found - expected).abs() <= expected * 1e-9, "{found} instead of {expected}");
    }

    /// Twice the lower tail of the binomial distribution, as fractions: 2 * (1 + 5) / 32, 2 * (1 + 10 + 45) / 1024, …
    #[test]
    fn mcnemar_gives_the_fractions_of_the_textbook() {
        assert_close(mcnemar(1, 4), 12.0 / 32.0);
        assert_close(mcnemar(8, 2), 112.0 / 1024.0);
        assert_close(mcnemar(0, 10), 2.0 / 1024.0);
        assert_close(mcnemar(3, 3), 1.0);
        assert_close(mcnemar(0, 0), 1.0);
        // Agresti, Categorical Data Analysis: 86 against 150 (ratings of a prime minister, surveyed twice).
        assert!((mcnemar(150, 86) - 3.716e-5).abs() < 1e-8, "{}", mcnemar(150, 86));
    }

    #[test]
    fn mcnemar_handles_counts_whose_powers_of_two_underflow() {
        let even = mcnemar(2_000, 2_000);
        assert_close(even, 1.0);
        let uneven = mcnemar(1_900, 2_100);
        assert!((0.0014..0.0019).contains(&uneven), "{uneven}");
    }

    /// Darwin's maize in Fisher's "The Design of Experiments" (1935), section 21. Of the 32,768 ways, 835 and 28 are at
    /// least as extreme on one side, so 1,726 in all.
    #[test]
    fn the_permutation_test_reproduces_fishers_example() {
        let maize = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48].map(f64::from);
        assert_close(permutation(&maize), 1_726.0 / 32_768.0);
    }

    #[test]
    fn for_many_differences_sampling_approximates_the_exact_test() {
        // With equal differences the test becomes McNemar's: 15 against 5 is 2 * 21700 / 2^20.
        let differences: Vec<f64> = (0..20).map(|at| if at < 15 { 0.5 } else { -0.5 }).collect();
        let drawn = permutation(&differences);
        assert!((drawn - mcnemar(15, 5)).abs() < 0.004, "{drawn}");
        assert_close(drawn, permutation(&differences));
        let one_sided = permutation(&[1.0; 200]);
        assert!(one_sided > 0.0 && one_sided < 1e-4, "{one_sided}");
    }

    #[test]
    fn without_a_difference_the_p_value_is_one() {
        assert_close(permutation(&[]), 1.0);
        assert_close(permutation(&[0.0, 0.0]), 1.0);
        assert_close(permutation(&[0.3, -0.3]), 1.0);
    }
}
