//! A loop in its own task, which ends when its scope is left.

use std::sync::Arc;
use std::time::Duration;

use crate::{LoopError, RunOptions, Runnable, SHUTDOWN_TIMEOUT};

/// A loop that runs in its own task.
///
/// A drop tells the loop to finish, but cannot wait for it. [`LoopScope::end`] waits.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use snakepit::loops::{HandlerFailure, LoopScope, MainLoop, RunOptions};
/// use snakepit::mailbox::{Mailbox, MemoryMailbox, RequestOptions, TypedMessage, body};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mailbox = Arc::new(MemoryMailbox::new("numbers"));
/// let squares = MainLoop::new("squares", mailbox.clone(), |request: TypedMessage<i64>| async move {
///     Ok::<_, HandlerFailure>(request.value * request.value)
/// });
/// let scope = LoopScope::start(Arc::new(squares), RunOptions::new());
/// let reply = mailbox.request(body(&7)?, RequestOptions::new()).await?;
/// assert_eq!(reply.read::<i64>()?, 49);
/// assert!(scope.end(Duration::from_secs(10)).await);
/// # Ok(()) }
/// ```
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
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use snakepit::loops::{LoopError, LoopScope, MainLoop, RunOptions};
    /// # async fn doc(main: Arc<MainLoop>) -> Result<(), LoopError> {
    /// let mut scope = LoopScope::start(main, RunOptions::new().max_iterations(100));
    /// scope.ended().await?;
    /// # Ok(()) }
    /// ```
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
