//! A comparison of two experiments on the same samples.
#![expect(clippy::cast_precision_loss, reason = "counts of samples are small")]

use serde::Serialize;

use crate::SampleRecord;
use crate::stats::{Interval, mcnemar, mean, mean_interval, permutation};

/// A comparison of two experiments on the samples that both have a record of.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct ExperimentComparison {
    /// The first experiment.
    pub baseline: String,
    /// The other experiment.
    pub other: String,
    /// The number of samples that both have a record of.
    pub pairs: usize,
    /// The number of samples that passed only in the first experiment.
    pub only_baseline: usize,
    /// The number of samples that passed only in the other experiment.
    pub only_other: usize,
    /// The other experiment's pass rate minus the first's, on these samples.
    pub pass_difference: Option<f64>,
    /// The probability of such a difference by chance alone.
    pub pass_p: f64,
    /// The same probability, adjusted for the number of comparisons.
    pub pass_p_adjusted: f64,
    /// The other experiment's mean score minus the first's, on these samples.
    pub score_difference: Option<f64>,
    /// The 95 % interval of the difference.
    pub score_interval: Option<Interval>,
    /// The probability of such a difference by chance alone.
    pub score_p: f64,
    /// The same probability, adjusted for the number of comparisons.
    pub score_p_adjusted: f64,
}

impl ExperimentComparison {
    pub(super) fn of(
        names: [&str; 2],
        baseline: &[Option<&SampleRecord>],
        other: &[Option<&SampleRecord>],
    ) -> Self {
        let pairs: Vec<(&SampleRecord, &SampleRecord)> =
            baseline.iter().zip(other).filter_map(|(one, other)| Some(((*one)?, (*other)?))).collect();
        let only = |want: (bool, bool)| {
            pairs.iter().filter(|(one, other)| (one.passed(), other.passed()) == want).count()
        };
        let (only_baseline, only_other) = (only((true, false)), only((false, true)));
        let differences: Vec<f64> = pairs.iter().map(|(one, other)| other.score() - one.score()).collect();
        let (pass_p, score_p) = (mcnemar(only_baseline, only_other), permutation(&differences));
        Self {
            baseline: names[0].to_owned(),
            other: names[1].to_owned(),
            pairs: pairs.len(),
            only_baseline,
            only_other,
            pass_difference: (!pairs.is_empty())
                .then(|| (only_other as f64 - only_baseline as f64) / pairs.len() as f64),
            pass_p,
            pass_p_adjusted: pass_p,
            score_difference: mean(&differences),
            score_interval: mean_interval(&differences),
            score_p,
            score_p_adjusted: score_p,
        }
    }
}

/// Adjusts p-values by Holm's method: the smallest of n p-values is multiplied by n, the next by n - 1, and so on, and
/// none is below the one before it.
pub(super) fn adjust(
    comparisons: &mut [ExperimentComparison],
    chance: impl Fn(&ExperimentComparison) -> f64,
    set: impl Fn(&mut ExperimentComparison, f64),
) {
    let mut order: Vec<usize> = (0..comparisons.len()).collect();
    order.sort_by(|one, other| chance(&comparisons[*one]).total_cmp(&chance(&comparisons[*other])));
    let mut highest = 0.0_f64;
    for (rank, at) in order.into_iter().enumerate() {
        let times = (comparisons.len() - rank) as f64;
        highest = highest.max((chance(&comparisons[at]) * times).min(1.0));
        set(&mut comparisons[at], highest);
    }
}
