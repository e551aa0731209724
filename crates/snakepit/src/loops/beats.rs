//! How a handler tells that its message makes progress.

use super::Control;

tokio::task_local! {
    /// Of the message that the task handles.
    static CURRENT: Beats;
}

/// Tells that a message makes progress, from wherever its work is done: another task, a thread, a callback. Inside the handler's
/// own task, [`beat`] does the same.
///
/// ```no_run
/// # use snakepit::loops::{Beats, Failure};
/// # fn long_computation(step: impl Fn()) {}
/// # async fn handler() -> Result<(), Failure> {
/// let beats = Beats::current();
/// let work = move || long_computation(|| if let Some(beats) = &beats { beats.beat() });
/// tokio::task::spawn_blocking(work).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Beats {
    control: Control,
    number: u64,
}

impl Beats {
    pub(super) fn new(control: Control, number: u64) -> Self {
        Self { control, number }
    }

    /// Those of the message that this task handles; none outside a handler.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// The message makes progress. A watchdog counts its time from here, and the loop has shown that it lives.
    pub fn beat(&self) {
        self.control.note_progress(self.number);
    }

    /// Runs a handler so that it finds them.
    pub(super) async fn within<F: Future>(self, handler: F) -> F::Output {
        CURRENT.scope(self, handler).await
    }
}

/// Tells that the message that this task handles makes progress, as [`Beats::beat`] does; outside a handler it does nothing.
///
/// ```no_run
/// # use snakepit::loops::{Failure, beat};
/// # async fn step(_: u32) {}
/// # async fn handler() -> Result<(), Failure> {
/// for number in 0..1_000 {
///     step(number).await;
///     beat();
/// }
/// # Ok(()) }
/// ```
pub fn beat() {
    let _ = CURRENT.try_with(Beats::beat);
}
