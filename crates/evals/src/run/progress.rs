//! How far an evaluation is.

use crate::{EvalJournal, EvalPlan, SampleOutcome, SampleRecord};

/// How far an evaluation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct EvalProgress {
    /// Results so far.
    pub done: usize,
    /// Results in the end.
    pub all: usize,
    /// Samples that passed.
    pub passed: usize,
    /// Samples that were not answered, or not judged.
    pub errors: usize,
    /// Samples that were not answered, or not judged, in time.
    pub timeouts: usize,
}

impl EvalProgress {
    /// The progress that a journal shows.
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
