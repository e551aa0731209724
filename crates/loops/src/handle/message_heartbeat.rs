//! How a handler reports that its message makes progress. The loop's own sign of life is [`Heartbeat`](crate::Heartbeat).

use crate::Control;

tokio::task_local! {
    /// Of the message that the task handles.
    static CURRENT: Beats;
}

/// Reports that a message makes progress, from wherever its work is done: another task, a thread, a callback. In the handler's own task,
/// [`beat`] does the same.
///
/// ```no_run
/// # use snakepit::loops::{Beats, HandlerFailure};
/// # fn long_computation(step: impl Fn()) {}
/// # async fn handler() -> Result<(), HandlerFailure> {
/// let heartbeat = Beats::current();
/// let work = move || long_computation(|| if let Some(heartbeat) = &heartbeat { heartbeat.beat() });
/// tokio::task::spawn_blocking(work).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Beats {
    control: Control,
    number: u64,
}

impl Beats {
    pub(crate) fn new(control: Control, number: u64) -> Self {
        Self { control, number }
    }

    /// The heartbeat of the message that this task handles; none outside a handler.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// Reports progress. A watchdog counts the message's time from here, and the loop has shown that it is alive.
    pub fn beat(&self) {
        self.control.note_progress(self.number);
    }

    /// Runs a handler with this as its current heartbeat.
    pub(super) async fn within<F: Future>(self, handler: F) -> F::Output {
        CURRENT.scope(self, handler).await
    }
}

/// Reports that the message of this task makes progress, as [`Beats::beat`] does. Outside a handler it does nothing.
///
/// ```no_run
/// # use snakepit::loops::{HandlerFailure, beat};
/// # async fn step(_: u32) {}
/// # async fn handler() -> Result<(), HandlerFailure> {
/// for number in 0..1_000 {
///     step(number).await;
///     beat();
/// }
/// # Ok(()) }
/// ```
pub fn beat() {
    let _ = CURRENT.try_with(Beats::beat);
}
