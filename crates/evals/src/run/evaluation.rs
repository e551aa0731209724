//! An evaluation that asks directly, without mailboxes.

use std::sync::Arc;

use futures_util::StreamExt as _;

use super::{EvalProgress, SampleRunner};
use crate::loops::failpoint::{LoopFailpoint, reach};
use crate::{EvalError, EvalJournal, EvalPlan, EvalReport, Responder, Snakepit};

/// An evaluation that asks directly, without mailboxes.
///
/// ```no_run
/// use snakepit::evals::{Dataset, EvalJournal, EvalPlan, Evaluation, Evaluator, Experiment};
///
/// # async fn example(pit: snakepit::Snakepit) -> Result<(), snakepit::evals::EvalError> {
/// let experiments = vec![Experiment::new("small", "answer"), Experiment::new("large", "answer_large")];
/// let plan = EvalPlan::new(Dataset::read("data.jsonl")?, Evaluator::parse("exact")?, experiments)?;
/// let mut journal = EvalJournal::create("data.eval.jsonl", &plan)?;
/// let report = Evaluation::new(plan).concurrency(8).run(&pit, &mut journal, |_| {}).await?;
/// for summary in &report.experiments {
///     println!("{}: {:?} passed", summary.experiment.name, summary.pass_rate);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Evaluation {
    plan: Arc<EvalPlan>,
    concurrency: usize,
}

impl Evaluation {
    /// Returns an evaluation that runs one sample at a time.
    pub fn new(plan: EvalPlan) -> Self {
        Self { plan: Arc::new(plan), concurrency: 1 }
    }

    /// Sets how many samples run at a time. Samples beyond what the pool can serve at once wait for a worker, and their
    /// latency includes the wait.
    pub fn concurrency(mut self, samples: usize) -> Self {
        self.concurrency = samples.max(1);
        self
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Arc<EvalPlan> {
        &self.plan
    }

    /// Runs the samples that the journal has no record of, and returns the report. Dropping the future cancels the
    /// running samples. Another run with the same journal continues from there.
    pub async fn run(
        &self,
        pit: &Snakepit,
        journal: &mut EvalJournal,
        on_progress: impl FnMut(&EvalProgress),
    ) -> Result<EvalReport, EvalError> {
        self.run_over(&Responder::pool(pit), journal, on_progress).await
    }

    /// Like [`Evaluation::run`], with any responder instead of a pool.
    pub async fn run_over(
        &self,
        responder: &Responder,
        journal: &mut EvalJournal,
        mut on_progress: impl FnMut(&EvalProgress),
    ) -> Result<EvalReport, EvalError> {
        SampleRunner::check(responder, &self.plan.evaluator)?;
        let runner = SampleRunner::new(responder, Arc::clone(&self.plan.evaluator), self.plan.timeout);
        let mut progress = EvalProgress::of(&self.plan, journal);
        on_progress(&progress);
        let left = self.plan.left(journal);
        let runs = left.into_iter().map(|(sample, experiment)| runner.run(experiment, sample));
        let mut runs = futures_util::stream::iter(runs).buffer_unordered(self.concurrency);
        while let Some(record) = runs.next().await {
            let record = record?;
            progress.count(&record);
            journal.add(record)?;
            on_progress(&progress);
        }
        reach(LoopFailpoint::Report);
        Ok(EvalReport::of(&self.plan, journal))
    }
}
