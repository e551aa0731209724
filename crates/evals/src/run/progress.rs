//! The progress of an evaluation.

use crate::{EvalJournal, EvalPlan, SampleOutcome, SampleRecord};

/// The progress of an evaluation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct EvalProgress {
    /// The number of results so far.
    pub done: usize,
    /// The number of results at the end.
    pub all: usize,
    /// The number of samples that passed.
    pub passed: usize,
    /// The number of samples that were not answered or not judged.
    pub errors: usize,
    /// The number of samples that were not answered or not judged in time.
    pub timeouts: usize,
}

impl EvalProgress {
    /// Returns the progress that a journal shows.
    pub fn of(plan: &EvalPlan, journal: &EvalJournal) -> Self {
        let mut progress = Self { all: plan.size(), ..Self::default() };
        journal.records().iter().for_each(|record| progress.count(record));
        progress
    }

    pub(super) fn count(&mut self, record: &SampleRecord) {
        self.done += 1;
        match record.outcome {
            SampleOutcome::Scored { passed, .. } => self.passed += usize::from(passed),
            SampleOutcome::Error { .. } => self.errors += 1,
            SampleOutcome::TimedOut { .. } => self.timeouts += 1,
        }
    }
}
