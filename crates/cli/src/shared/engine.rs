//! The runtime of commands that start an engine, and how the engine stops.

use std::pin::pin;
use std::time::Duration;

use snakepit::Snakepit;
use snakepit::telemetry::Logging;
use tokio::runtime::{Builder, Runtime};

use crate::shared::failure::CliFailure;
use crate::shared::interrupts::Interrupts;

/// Calls in flight end by their own deadlines or by cancellation. This limit only bounds a bug.
pub(crate) const STOP_GRACE: Duration = Duration::from_mins(1);

pub(crate) fn runtime(builder: &mut Builder) -> Result<Runtime, CliFailure> {
    builder.enable_all().build().map_err(|error| CliFailure::new("cannot start a runtime", &error))
}

/// Stops the workers. If a signal comes meanwhile, kills them at once.
pub(crate) async fn stop(pit: &Snakepit, interrupts: &mut Interrupts) {
    let mut stop = pin!(pit.stop_within(STOP_GRACE));
    loop {
        tokio::select! {
            _ = &mut stop => return,
            _ = interrupts.signal() => kill(pit).await,
        }
    }
}

pub(crate) async fn kill(pit: &Snakepit) {
    if let Some(run) = pit.run().cloned() {
        let _ = tokio::task::spawn_blocking(move || run.stop_within(Duration::ZERO)).await;
    }
}

/// Returns the logging of the engine. With `--logs`, the program shows each line that workers print.
pub(crate) fn logging(shows_output: bool) -> Logging {
    if shows_output { Logging::default().forward_output() } else { Logging::default().hide_output() }
}
