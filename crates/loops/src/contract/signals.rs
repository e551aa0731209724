//! A loop that the signals of the process end.

use std::sync::Arc;
use std::time::Duration;

use crate::Runnable;
use crate::lifecycle::{CallbackId, ShutdownCoordinator};

/// Lets signals end a loop, as a [`LoopGroup`](crate::LoopGroup) does with its own: the first signal lets the loop finish within `timeout`, the
/// second stops it now, and the third ends the process. Returns the callbacks of the first and of the second signal, to unregister them.
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
