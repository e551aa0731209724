//! A loop that the signals of its process end.

use std::sync::Arc;
use std::time::Duration;

use super::Runnable;
use crate::lifecycle::{CallbackId, ShutdownCoordinator};

impl ShutdownCoordinator {
    /// Ends a loop by signals, as a [`LoopGroup`](super::LoopGroup) ends its own: the first lets it finish within `timeout`, the
    /// second stops it now, and the third ends the process. Gives what takes that back, for the first and for the second.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use snakepit::ShutdownCoordinator;
    /// # use snakepit::loops::{MainLoop, RunOptions, Runnable, SHUTDOWN_TIMEOUT};
    /// # async fn doc(main: Arc<MainLoop>) -> Result<(), Box<dyn std::error::Error>> {
    /// ShutdownCoordinator::install()?.register_loop(main.clone(), SHUTDOWN_TIMEOUT);
    /// main.run(RunOptions::new()).await?;
    /// # Ok(()) }
    /// ```
    pub fn register_loop(&self, runnable: Arc<dyn Runnable>, timeout: Duration) -> [CallbackId; 2] {
        let name = runnable.name().to_owned();
        let stopped = Arc::clone(&runnable);
        // The wish is set by the call; nobody waits here.
        let first = self.register(name.clone(), move || drop(runnable.shutdown(timeout)));
        [first, self.register_now(name, move || stopped.stop_now())]
    }
}
