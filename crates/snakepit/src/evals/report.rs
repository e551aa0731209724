//! What came of an evaluation. A pure function of the plan and the records, in whichever order they came.
//!
//! An error and a timeout are results: they have not passed, and their score is 0. A sample without a record is missing: it is in
//! no rate, since nobody knows, but it is counted, and a report with missing ones says that it is not complete.
#![expect(clippy::cast_precision_loss, reason = "counts of samples are small")]

use serde::Serialize;
use serde_json::Value as Json;

use super::stats::{Interval, Spread, mcnemar, mean, mean_interval, permutation, wilson};
use super::{Experiment, Journal, Outcome, Plan, Record, Stage, Tokens};

/// Of how many parts the distribution of scores is.
const PARTS: usize = 10;

/// What came of an evaluation.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Whether every sample of every experiment has a record.
    pub complete: bool,
    /// How many samples there are.
    pub samples: usize,
    /// By which the data set can be known again.
    pub dataset: String,
    /// How answers were judged.
    pub evaluator: Json,
    /// What came of each experiment.
    pub experiments: Vec<Summary>,
    /// The first experiment beside each of the others.
    pub comparisons: Vec<Comparison>,
    /// How the numbers were made.
    pub methods: Methods,
}

/// How the numbers of a report were made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Methods {
    /// The intervals of pass rates.
    pub pass_interval: &'static str,
    /// The intervals of means.
    pub score_interval: &'static str,
    /// The test of what passed.
    pub pass_test: &'static str,
    /// The test of scores.
    pub score_test: &'static str,
    /// What is done about several comparisons.
    pub adjusted: &'static str,
}

const METHODS: Methods = Methods {
    pass_interval: "Wilson, 95 %",
    score_interval: "percentile bootstrap of the mean, 95 %, fixed seed",
    pass_test: "exact McNemar, two-sided",
    score_test: "paired permutation of signs, two-sided, exact up to 16 differences, else 20000 draws with a fixed seed",
    adjusted: "Holm, over the comparisons of one test",
};

/// How many samples ended how. Their sum is the number of samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Counts {
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
    pub stage: Option<Stage>,
    /// Why.
    pub message: String,
}

/// What came of one experiment.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// The experiment.
    pub experiment: Experiment,
    /// How its samples ended.
    pub counts: Counts,
    /// Passed, as a part of all that have a record.
    pub pass_rate: Option<f64>,
    /// How sure that is.
    pub pass_interval: Option<Interval>,
    /// The mean score of all that have a record.
    pub mean_score: Option<f64>,
    /// How sure that is.
    pub score_interval: Option<Interval>,
    /// How many scores of those that were judged are in each tenth from 0 to 1; the last one holds the 1.
    pub scores: [usize; PARTS],
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

/// Two experiments on the same samples, as far as both have a record of them.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Comparison {
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

impl Report {
    /// Of what a journal holds.
    pub fn of(plan: &Plan, journal: &Journal) -> Self {
        let rows: Vec<Vec<Option<&Record>>> = plan
            .experiments()
            .iter()
            .map(|experiment| {
                let samples = plan.dataset().samples().iter();
                samples.map(|sample| journal.get(&experiment.name, &sample.id)).collect()
            })
            .collect();
        let experiments: Vec<Summary> = plan
            .experiments()
            .iter()
            .zip(&rows)
            .map(|(experiment, row)| Summary::of(plan, experiment, row))
            .collect();
        let mut comparisons: Vec<Comparison> =
            (1..rows.len()).map(|other| Comparison::of(plan, (0, &rows[0]), (other, &rows[other]))).collect();
        adjust(&mut comparisons, |it| it.pass_p, |it, adjusted| it.pass_p_adjusted = adjusted);
        adjust(&mut comparisons, |it| it.score_p, |it, adjusted| it.score_p_adjusted = adjusted);
        Self {
            complete: experiments.iter().all(|summary| summary.counts.missing == 0),
            samples: plan.dataset().samples().len(),
            dataset: plan.dataset().fingerprint().to_owned(),
            evaluator: plan.evaluator.to_json(),
            experiments,
            comparisons,
            methods: METHODS,
        }
    }
}

impl Summary {
    fn of(plan: &Plan, experiment: &Experiment, row: &[Option<&Record>]) -> Self {
        let records: Vec<&Record> = row.iter().flatten().copied().collect();
        let mut counts = Counts { missing: row.len() - records.len(), ..Counts::default() };
        let mut scores = [0; PARTS];
        let mut unscored = Vec::new();
        for (sample, record) in plan.dataset().samples().iter().zip(row) {
            let (kind, stage, message) = match record.map(|record| &record.outcome) {
                Some(Outcome::Scored { score, passed, .. }) => {
                    *(if *passed { &mut counts.passed } else { &mut counts.failed }) += 1;
                    scores[((score * PARTS as f64) as usize).min(PARTS - 1)] += 1;
                    continue;
                }
                Some(Outcome::Error { stage, message }) => {
                    counts.errors += 1;
                    ("error", Some(*stage), message.clone())
                }
                Some(Outcome::TimedOut { stage, message }) => {
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

type Row<'a> = (usize, &'a [Option<&'a Record>]);

impl Comparison {
    fn of(plan: &Plan, (first, baseline): Row<'_>, (second, other): Row<'_>) -> Self {
        let pairs: Vec<(&Record, &Record)> =
            baseline.iter().zip(other).filter_map(|(one, other)| Some(((*one)?, (*other)?))).collect();
        let only = |want: (bool, bool)| {
            pairs.iter().filter(|(one, other)| (one.passed(), other.passed()) == want).count()
        };
        let (only_baseline, only_other) = (only((true, false)), only((false, true)));
        let differences: Vec<f64> = pairs.iter().map(|(one, other)| other.score() - one.score()).collect();
        let (pass_p, score_p) = (mcnemar(only_baseline, only_other), permutation(&differences));
        let name = |at: usize| plan.experiments()[at].name.clone();
        Self {
            baseline: name(first),
            other: name(second),
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

/// Holm: the smallest of n chances is multiplied by n, the next one by n - 1, and none is below the one before it.
fn adjust(
    comparisons: &mut [Comparison],
    chance: impl Fn(&Comparison) -> f64,
    set: impl Fn(&mut Comparison, f64),
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
