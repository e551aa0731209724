//! A loop in its own task, which ends when its scope is left.

use std::sync::Arc;
use std::time::Duration;

use crate::{LoopError, RunOptions, Runnable, SHUTDOWN_TIMEOUT};

/// A loop that runs in its own task.
///
/// A drop tells the loop to finish, but cannot wait for it. [`LoopScope::end`] waits.
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

    /// Returns the loop.
    pub fn runnable(&self) -> &Arc<L> {
        &self.runnable
    }

    /// Shuts the loop down. Returns whether it ended in time.
    pub async fn end(self, timeout: Duration) -> bool {
        self.runnable.shutdown(timeout).await
    }

    /// Waits until the loop has ended, for any reason.
    pub async fn ended(&mut self) -> Result<(), LoopError> {
        (&mut self.task).await.unwrap_or_else(|error| {
            Err(LoopError::Panicked { name: self.runnable.name().to_owned(), reason: error.to_string() })
        })
    }
}

impl<L: Runnable + ?Sized + 'static> Drop for LoopScope<L> {
    fn drop(&mut self) {
        // The call itself tells the loop to finish; the future would only wait.
        drop(self.runnable.shutdown(SHUTDOWN_TIMEOUT));
    }
}
