//! How a script answers signals, from its first step to its last.

use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::coordinator::{CallbackId, ShutdownCoordinator, Stage};
use super::orchestrator::undisturbed;
use crate::custody;
use crate::pit::Snakepit;

/// How long a script may take to leave the process after a second signal, before that is done for it.
const LEAVING: Duration = Duration::from_secs(5);

/// While it lives, signals are answered for a script, if it answers them at all.
pub(super) struct Answering(Option<Hold>);

struct Hold {
    coordinator: Arc<ShutdownCoordinator>,
    rescue: CallbackId,
    /// Dropped when the script is over.
    _over: SyncSender<()>,
}

/// The scripts of this process that answer signals: one may begin while another ends.
struct Holders {
    count: usize,
    /// The coordinator was not there before the first of them, and the last one takes it away.
    is_theirs: bool,
}

static HOLDERS: Mutex<Holders> = Mutex::new(Holders { count: 0, is_theirs: false });

fn holders() -> MutexGuard<'static, Holders> {
    HOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Answering {
    /// A script whose process has an engine already leaves signals to those who started that. If they cannot be had, they
    /// keep their default.
    ///
    /// A script that is stuck leaves the process by `leave`.
    pub(super) fn begin(wanted: bool, leave: fn(i32) -> !) -> Self {
        if !wanted || Snakepit::global().is_some() {
            return Self(None);
        }
        let mut holders = holders();
        if holders.count == 0 {
            holders.is_theirs = ShutdownCoordinator::get().is_none();
        }
        let coordinator = match ShutdownCoordinator::install() {
            Ok(coordinator) => coordinator,
            Err(error) => {
                undisturbed(|| tracing::warn!(%error, "signals keep their default"));
                return Self(None);
            }
        };
        let (over, script) = mpsc::sync_channel::<()>(0);
        let rescue = coordinator.register_now("script", move || {
            // The runtime may be blocked, and the script with it: the workers do not wait for it.
            let _ = custody::end_all(Duration::ZERO);
            let is_stuck = script.recv_timeout(LEAVING) == Err(mpsc::RecvTimeoutError::Timeout);
            if let (true, Some(Stage::StopNow { signal })) = (is_stuck, stage()) {
                leave(128 + signal);
            }
        });
        holders.count += 1;
        Self(Some(Hold { coordinator, rescue, _over: over }))
    }

    /// Leaves signals to others.
    pub(super) fn none() -> Self {
        Self(None)
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
            let mut holders = holders();
            holders.count -= 1;
            // A process that goes on without scripts is ended by signals as before.
            if holders.count == 0 && holders.is_theirs {
                hold.coordinator.reset();
            }
        }
    }
}
