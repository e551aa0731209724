//! A loop that is told to end when its scope is left.

use std::sync::Arc;
use std::time::Duration;

use super::{LoopError, RunOptions, Runnable, SHUTDOWN_TIMEOUT};

/// A loop that runs in a task of its own. Dropped, it tells the loop to finish and does not wait, since nothing can wait in a
/// drop; [`Scope::end`] waits.
#[derive(Debug)]
#[must_use = "the loop is told to end when this is dropped"]
pub struct Scope<L: Runnable + ?Sized + 'static> {
    runnable: Arc<L>,
    task: tokio::task::JoinHandle<Result<(), LoopError>>,
}

impl<L: Runnable + ?Sized + 'static> Scope<L> {
    /// Starts it.
    pub fn start(runnable: Arc<L>, options: RunOptions) -> Self {
        let runs = Arc::clone(&runnable);
        Self { runnable, task: tokio::spawn(async move { runs.run(options).await }) }
    }

    /// The loop.
    pub fn runnable(&self) -> &Arc<L> {
        &self.runnable
    }

    /// Shuts it down, and says whether it has ended in time.
    pub async fn end(self, timeout: Duration) -> bool {
        self.runnable.shutdown(timeout).await
    }

    /// Until it has ended by itself, or because somebody else has told it to.
    pub async fn ended(&mut self) -> Result<(), LoopError> {
        match (&mut self.task).await {
            Ok(ended) => ended,
            Err(error) => {
                Err(LoopError::Panicked { name: self.runnable.name().to_owned(), reason: error.to_string() })
            }
        }
    }
}

impl<L: Runnable + ?Sized + 'static> Drop for Scope<L> {
    fn drop(&mut self) {
        // The wish is set by the call; the future only waits.
        drop(self.runnable.shutdown(SHUTDOWN_TIMEOUT));
    }
}
