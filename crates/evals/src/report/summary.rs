//! The results of one experiment.
#![expect(clippy::cast_precision_loss, reason = "counts of samples are small")]

use std::fmt;

use serde::Serialize;

use crate::stats::{Distribution, Interval, mean, mean_interval, wilson};
use crate::{EvalPlan, Experiment, SampleOutcome, SampleRecord, SampleStage, Tokens};

/// The number of bins for scores.
const SCORE_BINS: usize = 10;

/// The number of samples for each way to end. They add up to the number of samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct OutcomeCounts {
    /// Judged and good enough.
    pub passed: usize,
    /// Judged and not good enough.
    pub failed: usize,
    /// Not answered or not judged.
    pub errors: usize,
    /// Not answered or not judged in time.
    pub timeouts: usize,
    /// Without a record.
    pub missing: usize,
}

/// Why a sample has no score.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum UnscoredKind {
    /// The sample was not answered or not judged.
    Error,
    /// The sample was not answered or not judged in time.
    Timeout,
    /// The sample has no record.
    Missing,
}

impl fmt::Display for UnscoredKind {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Missing => "missing",
        })
    }
}

/// A sample that has no score.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Unscored {
    /// The id of the sample.
    pub sample: String,
    /// Why it has none.
    pub kind: UnscoredKind,
    /// The step that failed.
    pub stage: Option<SampleStage>,
    /// The reason.
    pub message: String,
}

/// The results of one experiment.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct ExperimentSummary {
    /// The experiment.
    pub experiment: Experiment,
    /// How the samples ended.
    pub counts: OutcomeCounts,
    /// The share of passed samples among all that have a record.
    pub pass_rate: Option<f64>,
    /// The 95 % interval of the pass rate.
    pub pass_interval: Option<Interval>,
    /// The mean score of all samples that have a record.
    pub mean_score: Option<f64>,
    /// The 95 % interval of the mean score.
    pub score_interval: Option<Interval>,
    /// The number of scores in each tenth from 0 to 1, among the judged samples. The last bin includes 1.
    pub scores: [usize; SCORE_BINS],
    /// The milliseconds per answer, among the answered samples.
    pub latency_ms: Option<Distribution>,
    /// The latencies of all answers in milliseconds, in the order of the samples, for plots.
    #[serde(skip)]
    pub latencies: Vec<f64>,
    /// The tokens that all answers cost together.
    pub tokens: Option<Tokens>,
    /// The number of answers that reported their tokens.
    pub tokens_told: usize,
    /// The samples without a score, in the order of the samples.
    pub unscored: Vec<Unscored>,
}

impl ExperimentSummary {
    pub(super) fn of(plan: &EvalPlan, experiment: &Experiment, row: &[Option<&SampleRecord>]) -> Self {
        let records: Vec<&SampleRecord> = row.iter().flatten().copied().collect();
        let mut counts = OutcomeCounts { missing: row.len() - records.len(), ..OutcomeCounts::default() };
        let mut scores = [0; SCORE_BINS];
        let mut unscored = Vec::new();
        for (sample, record) in plan.dataset().samples().iter().zip(row) {
            let (kind, stage, message) = match record.map(|record| &record.outcome) {
                Some(SampleOutcome::Scored { score, passed, .. }) => {
                    *(if *passed { &mut counts.passed } else { &mut counts.failed }) += 1;
                    scores[((score * SCORE_BINS as f64) as usize).min(SCORE_BINS - 1)] += 1;
                    continue;
                }
                Some(SampleOutcome::Error { stage, message }) => {
                    counts.errors += 1;
                    (UnscoredKind::Error, Some(*stage), message.clone())
                }
                Some(SampleOutcome::TimedOut { stage, message }) => {
                    counts.timeouts += 1;
                    (UnscoredKind::Timeout, Some(*stage), message.clone())
                }
                None => (UnscoredKind::Missing, None, "there is no result".to_owned()),
            };
            unscored.push(Unscored { sample: sample.id.clone(), kind, stage, message });
        }
        let numbers: Vec<f64> = records.iter().map(|record| record.score()).collect();
        let answered = records.iter().filter(|record| record.output.is_some());
        let latencies: Vec<f64> = answered.map(|record| record.latency_ms).collect();
        let told: Vec<Tokens> = records.iter().filter_map(|record| record.tokens).collect();
        let tokens = (!told.is_empty()).then(|| Tokens {
            input: told.iter().map(|tokens| tokens.input).sum(),
            output: told.iter().map(|tokens| tokens.output).sum(),
        });
        let all = records.len();
        Self {
            experiment: experiment.clone(),
            counts,
            pass_rate: (all > 0).then(|| counts.passed as f64 / all as f64),
            pass_interval: wilson(counts.passed, all),
            mean_score: mean(&numbers),
            score_interval: mean_interval(&numbers),
            scores,
            latency_ms: Distribution::of(&latencies),
            latencies,
            tokens,
            tokens_told: told.len(),
            unscored,
        }
    }
}
