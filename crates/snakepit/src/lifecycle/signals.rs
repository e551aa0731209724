//! How a script answers signals, from its first step to its last.

use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::time::Duration;

use super::coordinator::{CallbackId, ShutdownCoordinator, Stage};
use super::exit;
use crate::custody;
use crate::pit::Snakepit;

/// How long a script may take to leave the process after a second signal, before that is done for it.
const LEAVING: Duration = Duration::from_secs(5);

/// While it lives, signals are answered for a script, if it answers them at all.
pub(super) struct Answering(Option<Hold>);

struct Hold {
    coordinator: Arc<ShutdownCoordinator>,
    /// It was not there before.
    is_ours: bool,
    rescue: CallbackId,
    /// Dropped when the script is over.
    _over: SyncSender<()>,
}

impl Answering {
    /// A script whose process has an engine already leaves signals to those who started that. If they cannot be had, they
    /// keep their default.
    pub(super) fn begin(wanted: bool) -> Self {
        if !wanted || Snakepit::global().is_some() {
            return Self(None);
        }
        let is_ours = ShutdownCoordinator::get().is_none();
        let coordinator = match ShutdownCoordinator::install() {
            Ok(coordinator) => coordinator,
            Err(error) => {
                tracing::warn!(%error, "signals keep their default");
                return Self(None);
            }
        };
        let (over, script) = mpsc::sync_channel::<()>(0);
        let rescue = coordinator.register_now("script", move || {
            // The runtime may be blocked, and the script with it: the workers do not wait for it.
            let _ = custody::end_all(Duration::ZERO);
            let is_stuck = script.recv_timeout(LEAVING) == Err(mpsc::RecvTimeoutError::Timeout);
            if let (true, Some(Stage::StopNow { signal })) = (is_stuck, stage()) {
                exit::exit(128 + signal);
            }
        });
        Self(Some(Hold { coordinator, is_ours, rescue, _over: over }))
    }

    /// Until the first signal.
    pub(super) async fn first(&self) {
        self.reached(Stage::Draining { signal: None }).await;
    }

    /// Until the second.
    pub(super) async fn second(&self) {
        self.reached(Stage::StopNow { signal: 0 }).await;
    }

    async fn reached(&self, stage: Stage) {
        match &self.0 {
            Some(hold) => drop(hold.coordinator.reached(stage).await),
            None => std::future::pending().await,
        }
    }

    /// Whether a signal asked the script to end.
    pub(super) fn have_come(&self) -> bool {
        self.0.as_ref().is_some_and(|hold| hold.coordinator.triggered())
    }

    pub(super) fn are_answered(&self) -> bool {
        self.0.is_some()
    }
}

fn stage() -> Option<Stage> {
    ShutdownCoordinator::get().map(|coordinator| coordinator.stage())
}

impl Drop for Answering {
    fn drop(&mut self) {
        if let Some(hold) = self.0.take() {
            hold.coordinator.unregister(hold.rescue);
            // A process that goes on without the script is ended by signals as before.
            if hold.is_ours {
                hold.coordinator.reset();
            }
        }
    }
}
