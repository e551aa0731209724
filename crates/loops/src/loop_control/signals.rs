//! Ends a loop on the signals of the process.

use std::sync::Arc;
use std::time::Duration;

use crate::Runnable;
use crate::lifecycle::{CallbackId, ShutdownCoordinator};

/// Makes signals end a loop, as a [`LoopGroup`](crate::LoopGroup) does for its own loops. The first signal lets the
/// loop finish within `timeout`, the second stops it now, and the third ends the process. Returns the callbacks of the
/// first and the second signal, so that you can unregister them.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use snakepit::ShutdownCoordinator;
/// # use snakepit::loops::{MainLoop, RunOptions, Runnable, SHUTDOWN_TIMEOUT, register_loop};
/// # async fn doc(main: Arc<MainLoop>) -> Result<(), Box<dyn std::error::Error>> {
/// let coordinator = ShutdownCoordinator::install()?;
/// register_loop(&coordinator, main.clone(), SHUTDOWN_TIMEOUT);
/// main.run(RunOptions::new()).await?;
/// # Ok(()) }
/// ```
pub fn register_loop(
    coordinator: &ShutdownCoordinator,
    runnable: Arc<dyn Runnable>,
    timeout: Duration,
) -> [CallbackId; 2] {
    let name = runnable.name().to_owned();
    let stopped = Arc::clone(&runnable);
    // The call gives the order. The future is not awaited here.
    let first = coordinator.register(name.clone(), move || drop(runnable.shutdown(timeout)));
    [first, coordinator.register_now(name, move || stopped.stop_now())]
}
