//! A loop in a task of its own, which ends when its scope is left.

use std::sync::Arc;
use std::time::Duration;

use crate::{LoopError, RunOptions, Runnable, SHUTDOWN_TIMEOUT};

/// A loop that runs in a task of its own.
///
/// A drop tells the loop to finish and does not wait, since a drop cannot wait; [`LoopScope::end`] does.
#[derive(Debug)]
#[must_use = "dropping it ends the loop"]
pub struct LoopScope<L: Runnable + ?Sized + 'static> {
    runnable: Arc<L>,
    task: tokio::task::JoinHandle<Result<(), LoopError>>,
}

impl<L: Runnable + ?Sized + 'static> LoopScope<L> {
    /// Starts the loop.
    pub fn start(runnable: Arc<L>, options: RunOptions) -> Self {
        let runs = Arc::clone(&runnable);
        Self { runnable, task: tokio::spawn(async move { runs.run(options).await }) }
    }

    /// The loop.
    pub fn runnable(&self) -> &Arc<L> {
        &self.runnable
    }

    /// Shuts the loop down, and says whether it ended in time.
    pub async fn end(self, timeout: Duration) -> bool {
        self.runnable.shutdown(timeout).await
    }

    /// Waits until the loop has ended, by itself or by another's order.
    pub async fn ended(&mut self) -> Result<(), LoopError> {
        (&mut self.task).await.unwrap_or_else(|error| {
            Err(LoopError::Panicked { name: self.runnable.name().to_owned(), reason: error.to_string() })
        })
    }
}

impl<L: Runnable + ?Sized + 'static> Drop for LoopScope<L> {
    fn drop(&mut self) {
        // The call itself tells the loop; the future would only wait.
        drop(self.runnable.shutdown(SHUTDOWN_TIMEOUT));
    }
}
