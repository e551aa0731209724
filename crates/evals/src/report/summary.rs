//! The results of one experiment.
#![expect(clippy::cast_precision_loss, reason = "counts of samples are small")]

use serde::Serialize;

use crate::stats::{Interval, Spread, mean, mean_interval, wilson};
use crate::{EvalPlan, Experiment, SampleOutcome, SampleRecord, SampleStage, Tokens};

/// Into how many bins the scores are sorted.
const SCORE_BINS: usize = 10;

/// How many samples ended how. Their sum is the number of samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct OutcomeCounts {
    /// Good enough.
    pub passed: usize,
    /// Judged, and not good enough.
    pub failed: usize,
    /// Not answered, or not judged.
    pub errors: usize,
    /// Not answered, or not judged, in time.
    pub timeouts: usize,
    /// Without any record.
    pub missing: usize,
}

/// A sample that has no score.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Unscored {
    /// Its id.
    pub sample: String,
    /// `error`, `timeout` or `missing`.
    pub kind: &'static str,
    /// Who did not do it.
    pub stage: Option<SampleStage>,
    /// Why.
    pub message: String,
}

/// What came of one experiment.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct ExperimentSummary {
    /// The experiment.
    pub experiment: Experiment,
    /// How its samples ended.
    pub counts: OutcomeCounts,
    /// Passed, as a part of all that have a record.
    pub pass_rate: Option<f64>,
    /// How sure that is.
    pub pass_interval: Option<Interval>,
    /// The mean score of all that have a record.
    pub mean_score: Option<f64>,
    /// How sure that is.
    pub score_interval: Option<Interval>,
    /// How many scores of those that were judged are in each tenth from 0 to 1; the last one holds the 1.
    pub scores: [usize; SCORE_BINS],
    /// Milliseconds per answer, of those that were answered.
    pub latency_ms: Option<Spread>,
    /// All of them, in the order of the samples, for plots.
    #[serde(skip)]
    pub latencies: Vec<f64>,
    /// What all answers cost together.
    pub tokens: Option<Tokens>,
    /// How many answers told what they cost.
    pub tokens_told: usize,
    /// All that have no score, in the order of the samples.
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
                    ("error", Some(*stage), message.clone())
                }
                Some(SampleOutcome::TimedOut { stage, message }) => {
                    counts.timeouts += 1;
                    ("timeout", Some(*stage), message.clone())
                }
                None => ("missing", None, "there is no result".to_owned()),
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
            latency_ms: Spread::of(&latencies),
            latencies,
            tokens,
            tokens_told: told.len(),
            unscored,
        }
    }
}
