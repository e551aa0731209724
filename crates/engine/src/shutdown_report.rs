//! What the stop of an engine did.

use std::time::Duration;

use crate::custody::Survivor;

/// What the stop of an engine did, for all pools together.
///
/// ```no_run
/// # async fn example(pit: snakepit::Snakepit) {
/// let report = pit.stop().await;
/// println!("{} calls finished, {} were never begun", report.completed, report.given_back);
/// if !report.is_clean() {
///     eprintln!("{} calls were cut short; these processes are left: {:?}", report.cut_short, report.survivors);
/// }
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// The number of calls under way that finished within the grace period.
    pub completed: usize,
    /// The number of calls that were still queued. They failed with [`CallError::Stopped`](crate::CallError::Stopped),
    /// and no worker has begun them.
    pub given_back: usize,
    /// The number of calls that were still under way when the grace period ended, and that ended with their workers.
    pub cut_short: usize,
    /// The processes that KILL did not end.
    pub survivors: Vec<Survivor>,
    /// The time that the stop took, or has taken so far.
    pub took: Duration,
}

impl ShutdownReport {
    /// Reports whether every call under way finished and no process is left.
    pub fn is_clean(&self) -> bool {
        self.cut_short == 0 && self.survivors.is_empty()
    }
}
