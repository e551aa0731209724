//! How a handler reports progress of its message. The sign of life of the loop itself is
//! [`Heartbeat`](crate::Heartbeat).

use crate::Control;

tokio::task_local! {
    /// The heartbeat of the message that this task handles.
    static CURRENT: Beats;
}

/// A handle that reports progress of a message from wherever its work is done: another task, a thread, a callback. In
/// the handler's own task, [`beat`] does the same.
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

    /// Returns the heartbeat of the message that this task handles, or `None` outside a handler.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// Reports progress. A watchdog measures the message's time from here, and the loop has shown that it is alive.
    pub fn beat(&self) {
        self.control.note_progress(self.number);
    }

    /// Runs a handler with this as its current heartbeat.
    pub(super) async fn within<F: Future>(self, handler: F) -> F::Output {
        CURRENT.scope(self, handler).await
    }
}

/// Reports progress of the message that this task handles, as [`Beats::beat`] does. Outside a handler it does nothing.
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
