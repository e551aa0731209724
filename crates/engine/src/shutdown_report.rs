//! What the stop of an engine did.

use std::time::Duration;

use crate::custody::Survivor;

/// What the stop of an engine did, for all pools together.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// How many calls under way finished within the grace period.
    pub completed: usize,
    /// How many calls were still in a queue: they failed with [`CallError::Stopped`](crate::CallError::Stopped), and no worker has begun
    /// them.
    pub given_back: usize,
    /// How many calls were under way when the grace period was over, and ended with their workers.
    pub cut_short: usize,
    /// The processes that KILL did not end.
    pub survivors: Vec<Survivor>,
    /// How long the stop took, or has taken so far.
    pub took: Duration,
}

impl ShutdownReport {
    /// Whether every call under way finished and no process is left.
    pub fn is_clean(&self) -> bool {
        self.cut_short == 0 && self.survivors.is_empty()
    }
}
