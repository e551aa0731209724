//! Two experiments on the same samples.
#![expect(clippy::cast_precision_loss, reason = "counts of samples are small")]

use serde::Serialize;

use crate::SampleRecord;
use crate::stats::{Interval, mcnemar, mean, mean_interval, permutation};

/// Two experiments on the same samples, as far as both have a record of them.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct ExperimentComparison {
    /// The first experiment.
    pub baseline: String,
    /// The other one.
    pub other: String,
    /// How many samples both have.
    pub pairs: usize,
    /// Passed only in the first.
    pub only_baseline: usize,
    /// Passed only in the other.
    pub only_other: usize,
    /// The other's pass rate less the first's, on these samples.
    pub pass_difference: Option<f64>,
    /// How likely such a difference is by chance alone.
    pub pass_p: f64,
    /// The same, adjusted for the number of comparisons.
    pub pass_p_adjusted: f64,
    /// The other's mean score less the first's, on these samples.
    pub score_difference: Option<f64>,
    /// How sure that is.
    pub score_interval: Option<Interval>,
    /// How likely such a difference is by chance alone.
    pub score_p: f64,
    /// The same, adjusted for the number of comparisons.
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

/// The adjustment of Holm: the smallest of n p-values is multiplied by n, the next one by n - 1, and none is below the one before it.
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
