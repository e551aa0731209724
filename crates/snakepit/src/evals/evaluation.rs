//! An evaluation that asks directly, without mailboxes between.

use std::sync::Arc;

use futures_util::StreamExt as _;

use super::asking::Asker;
use super::{EvalError, Journal, Outcome, Plan, Record, Report, Responder};
use crate::Snakepit;
use crate::loops::failpoint::{Step, reach};

/// How far an evaluation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Progress {
    /// Results so far.
    pub done: usize,
    /// Results in the end.
    pub all: usize,
    /// Passed.
    pub passed: usize,
    /// Not answered, or not judged.
    pub errors: usize,
    /// Not answered in time.
    pub timeouts: usize,
}

impl Progress {
    /// Of what a journal holds.
    pub fn of(plan: &Plan, journal: &Journal) -> Self {
        let mut progress = Self { all: plan.size(), ..Self::default() };
        journal.records().iter().for_each(|record| progress.count(record));
        progress
    }

    pub(super) fn count(&mut self, record: &Record) {
        self.done += 1;
        match record.outcome {
            Outcome::Scored { passed, .. } => self.passed += usize::from(passed),
            Outcome::Error { .. } => self.errors += 1,
            Outcome::TimedOut { .. } => self.timeouts += 1,
        }
    }
}

/// An evaluation that asks directly, without mailboxes between.
#[derive(Debug)]
pub struct Evaluation {
    plan: Arc<Plan>,
    concurrency: usize,
}

impl Evaluation {
    /// One sample at a time.
    pub fn new(plan: Plan) -> Self {
        Self { plan: Arc::new(plan), concurrency: 1 }
    }

    /// So many samples at a time. More than the pool can serve at once wait for a worker, and that is a part of their latency.
    pub fn concurrency(mut self, samples: usize) -> Self {
        self.concurrency = samples.max(1);
        self
    }

    /// The plan.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Asks whatever the journal has no record of, and reports. Dropped, it cancels what is under way; what is in the journal
    /// stays, and whoever runs it again with the same journal goes on.
    pub async fn run(
        &self,
        pit: &Snakepit,
        journal: &mut Journal,
        on_progress: impl FnMut(&Progress),
    ) -> Result<Report, EvalError> {
        let asker = Asker::of_pool(pit, Arc::clone(&self.plan.evaluator), self.plan.timeout);
        self.ask_all(&asker, journal, on_progress).await
    }

    /// As [`Evaluation::run`], where somebody else than a pool may answer.
    pub async fn run_over(
        &self,
        responder: &Responder,
        journal: &mut Journal,
        on_progress: impl FnMut(&Progress),
    ) -> Result<Report, EvalError> {
        let asker = Asker::new(responder, Arc::clone(&self.plan.evaluator), self.plan.timeout)?;
        self.ask_all(&asker, journal, on_progress).await
    }

    async fn ask_all(
        &self,
        asker: &Asker,
        journal: &mut Journal,
        mut on_progress: impl FnMut(&Progress),
    ) -> Result<Report, EvalError> {
        let mut progress = Progress::of(&self.plan, journal);
        on_progress(&progress);
        let left = self.plan.left(journal);
        let asked = left.into_iter().map(|(sample, experiment)| asker.ask(experiment, sample));
        let mut asked = futures_util::stream::iter(asked).buffer_unordered(self.concurrency);
        while let Some(record) = asked.next().await {
            let record = record?;
            progress.count(&record);
            journal.add(record)?;
            on_progress(&progress);
        }
        reach(Step::Report);
        Ok(Report::of(&self.plan, journal))
    }
}
