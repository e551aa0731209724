//! Signals while a script runs: which scripts react to them, and what happens if a script is stuck.

use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::coordinator::{CallbackId, ShutdownCoordinator, Stage};
use crate::Snakepit;
use crate::custody;
use crate::error_text::ignoring_panics;

/// How long a script may take to leave the process after a second signal. After that, a thread ends the process.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The signals of a script, while it runs. `None` if the script leaves signals alone.
pub(super) struct ScriptSignals(Option<SignalRegistration>);

struct SignalRegistration {
    coordinator: Arc<ShutdownCoordinator>,
    /// Ends a script that is stuck.
    watchdog: CallbackId,
    /// Dropped when the script is over.
    _over: SyncSender<()>,
}

/// The number of scripts in this process that react to signals: one may begin while another ends.
struct ScriptCount {
    count: usize,
    /// Whether the first script installed the coordinator, so that the last one resets it.
    installed_coordinator: bool,
}

static SCRIPTS: Mutex<ScriptCount> = Mutex::new(ScriptCount { count: 0, installed_coordinator: false });

fn scripts() -> MutexGuard<'static, ScriptCount> {
    SCRIPTS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ScriptSignals {
    /// Takes over the signals, unless the script does not want them or the process has an engine already. In the latter
    /// case, the signals belong to the code that started that engine. If the coordinator cannot be installed, signals
    /// keep their default.
    ///
    /// A script that is stuck leaves the process through `leave`.
    pub(super) fn begin(wanted: bool, leave: fn(i32) -> !) -> Self {
        if !wanted || Snakepit::global().is_some() {
            return Self(None);
        }
        let mut scripts = scripts();
        if scripts.count == 0 {
            scripts.installed_coordinator = ShutdownCoordinator::get().is_none();
        }
        let coordinator = match ShutdownCoordinator::install() {
            Ok(coordinator) => coordinator,
            Err(error) => {
                ignoring_panics(
                    || tracing::warn!(%error, "the script does not answer signals: they keep their default"),
                );
                return Self(None);
            }
        };
        let (over, script) = mpsc::sync_channel::<()>(0);
        let watchdog = coordinator.register_now("script", move || {
            // The runtime may be blocked, and the script with it, so this thread ends the workers.
            let _ = custody::end_all(Duration::ZERO);
            let is_stuck = script.recv_timeout(LEAVE_TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout);
            if let (true, Some(Stage::StopNow { signal })) = (is_stuck, stage()) {
                leave(128 + signal);
            }
        });
        scripts.count += 1;
        Self(Some(SignalRegistration { coordinator, watchdog, _over: over }))
    }

    /// Returns a value that leaves signals alone.
    pub(super) fn none() -> Self {
        Self(None)
    }

    /// Waits for the first signal.
    pub(super) async fn first(&self) {
        self.reached(Stage::Draining { signal: None }).await;
    }

    /// Waits for the second signal.
    pub(super) async fn second(&self) {
        self.reached(Stage::StopNow { signal: 0 }).await;
    }

    async fn reached(&self, stage: Stage) {
        match &self.0 {
            Some(registration) => drop(registration.coordinator.reached(stage).await),
            None => std::future::pending().await,
        }
    }

    /// Reports whether a signal has asked the script to end.
    pub(super) fn have_come(&self) -> bool {
        self.0.as_ref().is_some_and(|registration| registration.coordinator.triggered())
    }

    /// Reports whether the script reacts to signals.
    pub(super) fn are_answered(&self) -> bool {
        self.0.is_some()
    }
}

fn stage() -> Option<Stage> {
    ShutdownCoordinator::get().map(|coordinator| coordinator.stage())
}

impl Drop for ScriptSignals {
    fn drop(&mut self) {
        if let Some(SignalRegistration { coordinator, watchdog, _over }) = self.0.take() {
            coordinator.unregister(watchdog);
            let mut scripts = scripts();
            scripts.count -= 1;
            // Without scripts, signals end the process as before.
            if scripts.count == 0 && scripts.installed_coordinator {
                coordinator.reset();
            }
        }
    }
}
