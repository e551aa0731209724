//! The report of an evaluation.

use serde::Serialize;
use serde_json::Value as Json;

use super::comparison::adjust;
use super::{ExperimentComparison, ExperimentSummary};
use crate::{EvalJournal, EvalPlan, SampleRecord};

/// What the records of an evaluation mean.
///
/// ```no_run
/// # fn example(report: snakepit::evals::EvalReport) {
/// assert!(report.complete, "some samples have no record");
/// for summary in &report.experiments {
///     println!("{}: {:?} passed, {:?}", summary.experiment.name, summary.pass_rate, summary.pass_interval);
/// }
/// # }
/// ```
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct EvalReport {
    /// Whether every sample of every experiment has a record.
    pub complete: bool,
    /// The number of samples.
    pub samples: usize,
    /// The fingerprint of the data set.
    pub dataset: String,
    /// The evaluator.
    pub evaluator: Json,
    /// The results of each experiment.
    pub experiments: Vec<ExperimentSummary>,
    /// The comparisons of the first experiment with each of the others.
    pub comparisons: Vec<ExperimentComparison>,
    /// The methods by which the numbers of a report are computed.
    pub methods: Methods,
}

/// The methods by which the numbers of a report are computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Methods {
    /// The method for the intervals of pass rates.
    pub pass_interval: &'static str,
    /// The method for the intervals of means.
    pub score_interval: &'static str,
    /// The test for pass rates.
    pub pass_test: &'static str,
    /// The test for scores.
    pub score_test: &'static str,
    /// The adjustment for several comparisons.
    pub adjusted: &'static str,
}

const METHODS: Methods = Methods {
    pass_interval: "Wilson, 95 %",
    score_interval: "percentile bootstrap of the mean, 95 %, fixed seed",
    pass_test: "exact McNemar, two-sided",
    score_test: "paired permutation of signs, two-sided, exact up to 16 differences, else 20000 draws with a fixed seed",
    adjusted: "Holm, over the comparisons of one test",
};

impl EvalReport {
    /// Returns the report of a journal.
    pub fn of(plan: &EvalPlan, journal: &EvalJournal) -> Self {
        let rows: Vec<Vec<Option<&SampleRecord>>> = plan
            .experiments()
            .iter()
            .map(|experiment| {
                let samples = plan.dataset().samples().iter();
                samples.map(|sample| journal.get(&experiment.name, &sample.id)).collect()
            })
            .collect();
        let experiments: Vec<ExperimentSummary> = plan
            .experiments()
            .iter()
            .zip(&rows)
            .map(|(experiment, row)| ExperimentSummary::of(plan, experiment, row))
            .collect();
        let name = |at: usize| plan.experiments()[at].name.as_str();
        let mut comparisons: Vec<ExperimentComparison> = (1..rows.len())
            .map(|other| ExperimentComparison::of([name(0), name(other)], &rows[0], &rows[other]))
            .collect();
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
