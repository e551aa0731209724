//! Step 5: the one way in which engines stop, whatever the cause.
//!
//! ```text
//! a  report that it begins      c  stop: drain, then end the workers      e  return, exit in order, or halt
//! b  capture the targets        d  clean up: custody's barrier over them
//! ```
//!
//! Every step is bounded and may be repeated. A second shutdown of an engine waits for the first or hastens it, and
//! then finds nothing to do.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::coordinator::{ShutdownCoordinator, Stage};
use super::exit;
use super::failpoint::{ScriptStep, reach};
pub(crate) use super::mode::ExitAction;
use super::mode::StopMode;
use crate::custody::{self, RunId, StopReport};
use crate::error_text::ignoring_panics;
use crate::logging;
use crate::running::{Engine, EnginePhase};
use crate::telemetry::{self, Event};

/// The default grace period of the calls under way.
pub(crate) const GRACE: Duration = Duration::from_secs(30);

/// The default limit of the cleanup. Custody's own limits are far below it.
pub(crate) const CLEANUP_TIMEOUT: Duration = Duration::from_secs(15);

/// How long workers may take to be gone after their stop window. Only a bug takes that long.
pub(crate) const ENDING: Duration = Duration::from_secs(30);

/// The cause of a shutdown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ShutdownCause {
    /// A script whose function has ended.
    Script,
    /// A signal.
    Signal,
    /// A call of `stop`.
    Stop,
    /// The drop of the last handle, or of the runtime.
    Drop,
}

impl ShutdownCause {
    fn as_str(self) -> &'static str {
        match self {
            Self::Script => "script",
            Self::Signal => "signal",
            Self::Stop => "stop",
            Self::Drop => "drop",
        }
    }
}

/// A shutdown: which engines stop, how, and what happens to the process.
#[derive(Debug)]
pub(crate) struct Shutdown {
    pub(crate) cause: ShutdownCause,
    pub(crate) exit: ExitAction,
    pub(crate) stop_mode: StopMode,
    pub(crate) owned: bool,
    pub(crate) status: i32,
    /// The run of the engine, for events.
    pub(crate) run_id: Option<RunId>,
    /// What happens to the process if a second signal cuts the shutdown short. `None` if this shutdown does not react
    /// to signals.
    pub(crate) if_cut_short: Option<ExitAction>,
    /// The engines to stop.
    pub(crate) engines: Vec<Arc<Engine>>,
    /// How long calls under way may take.
    pub(crate) grace: Duration,
    pub(crate) cleanup_timeout: Duration,
}

/// The result of a shutdown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ShutdownOutcome {
    /// The exit status of the process.
    pub(crate) status: i32,
    /// Whether all calls could finish.
    pub(crate) drained: bool,
}

/// An engine and the workers that must be gone in the end. Captured before the stop, which discards them.
struct CleanupTarget {
    engine: Arc<Engine>,
    workers: Vec<custody::WorkerProcess>,
}

/// The result of a cleanup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CleanupOutcome {
    /// No process is left.
    Clean,
    /// A process is left, or the check took too long.
    Timeout,
    /// The engines had no processes.
    Nothing,
}

impl CleanupOutcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Timeout => "timeout",
            Self::Nothing => "nothing",
        }
    }
}

impl Shutdown {
    /// Creates a shutdown of one engine that leaves the process alone.
    pub(crate) fn of(engine: &Arc<Engine>, cause: ShutdownCause, grace: Duration) -> Self {
        Self {
            cause,
            exit: ExitAction::Return,
            stop_mode: StopMode::Always,
            owned: true,
            status: 0,
            run_id: engine.run_id(),
            if_cut_short: None,
            engines: vec![Arc::clone(engine)],
            grace,
            cleanup_timeout: CLEANUP_TIMEOUT,
        }
    }

    /// Runs the steps. Returns only if the process goes on.
    pub(crate) async fn run(mut self) -> ShutdownOutcome {
        for engine in &self.engines {
            let _ = engine.claim_end();
        }
        let (cause, grace) = (self.cause, self.grace);
        // Without this future, the shutdown goes on in a task or on a thread.
        let guard = EndGuard::new(self.engines.clone(), move |engine| {
            if std::thread::panicking() {
                engine.end_on_thread();
            } else if engine.phase() != EnginePhase::Closed {
                engine.continue_end(cause, grace);
            }
        });
        // a
        reach(ScriptStep::Start);
        self.emit_start();
        // b
        reach(ScriptStep::Capture);
        let targets: Vec<CleanupTarget> = self.engines.iter().filter_map(CleanupTarget::capture).collect();
        // c
        reach(ScriptStep::Stop);
        let drained = self.stop().await;
        // d
        reach(ScriptStep::Cleanup);
        self.clean_up(targets).await;
        // e
        reach(ScriptStep::Exit);
        self.apply_second_signal();
        self.emit_exit();
        logging::flush().await;
        // After the events and the log, so that a caller that waits for the end finds both.
        for engine in &self.engines {
            engine.mark_closed();
        }
        guard.disarm();
        self.leave();
        ShutdownOutcome { status: self.status, drained }
    }

    /// c: Drains the engines and ends their workers.
    async fn stop(&mut self) -> bool {
        let began = Instant::now();
        let engines = &self.engines;
        let stop = join_all(engines.iter().map(|engine| engine.stop(self.grace)));
        let hasten = async {
            second_signal().await;
            for engine in engines {
                engine.kill_now();
            }
            std::future::pending::<()>().await;
        };
        let stopped = tokio::select! {
            stopped = tokio::time::timeout(self.stop_limit(), stop) => stopped,
            () = hasten => return false,
        };
        let drained = stopped.is_ok_and(|all| all.into_iter().all(|drained| drained));
        if !engines.is_empty() {
            self.emit_stop(drained, began.elapsed());
        }
        drained
    }

    /// Returns how long the drain and the end of the workers may take together.
    fn stop_limit(&self) -> Duration {
        self.grace.saturating_add(self.longest_window()).saturating_add(ENDING)
    }

    fn longest_window(&self) -> Duration {
        self.engines.iter().map(|engine| engine.stop_grace).max().unwrap_or_default()
    }

    /// d: Makes sure that no process is left, however the stop ended.
    async fn clean_up(&self, targets: Vec<CleanupTarget>) {
        let began = Instant::now();
        if targets.is_empty() {
            return self.emit_cleanup(CleanupOutcome::Nothing, 0, began.elapsed());
        }
        let cleaned = join_all(targets.into_iter().map(CleanupTarget::clear));
        // A process that only the run knows may still need the whole window.
        let limit = self.cleanup_timeout.saturating_add(self.longest_window());
        let (outcome, killed) = match tokio::time::timeout(limit, cleaned).await {
            Ok(all) => {
                let clean = all.iter().all(Option::is_some);
                let killed = all.into_iter().flatten().map(|report| report.killed).sum();
                (if clean { CleanupOutcome::Clean } else { CleanupOutcome::Timeout }, killed)
            }
            Err(_) => (CleanupOutcome::Timeout, 0),
        };
        self.emit_cleanup(outcome, killed, began.elapsed());
    }

    /// Lets a second signal decide the status, whenever it came.
    fn apply_second_signal(&mut self) {
        let stage = ShutdownCoordinator::get().map(|coordinator| coordinator.stage());
        if let (Some(exit), Some(Stage::StopNow { signal })) = (self.if_cut_short, stage) {
            self.status = 128 + signal;
            self.exit = exit;
        }
    }

    /// e: Leaves the process as requested. Nothing is written from here on.
    fn leave(&self) {
        match self.exit {
            ExitAction::Return => {}
            ExitAction::Stop => exit::exit(self.status),
            ExitAction::Halt => custody::exit_now(self.status),
        }
    }
}

/// Engines that a future is about to end. If the future is dropped before that, the guard ends them in its way.
pub(super) struct EndGuard<F: Fn(&Arc<Engine>)> {
    engines: Vec<Arc<Engine>>,
    end: F,
}

impl<F: Fn(&Arc<Engine>)> EndGuard<F> {
    pub(super) fn new(engines: Vec<Arc<Engine>>, end: F) -> Self {
        Self { engines, end }
    }

    pub(super) fn disarm(mut self) {
        self.engines.clear();
    }
}

impl<F: Fn(&Arc<Engine>)> Drop for EndGuard<F> {
    fn drop(&mut self) {
        self.engines.drain(..).filter(|engine| engine.is_own()).for_each(|engine| (self.end)(&engine));
    }
}

/// Ends the engine of a script whose future was dropped while its function ran.
pub(super) fn end_dropped(engine: &Arc<Engine>) {
    if engine.phase() != EnginePhase::Closed {
        engine.begin_end(ShutdownCause::Drop, Duration::ZERO);
    }
}

fn emit(event: Event) {
    ignoring_panics(|| telemetry::emit(event));
}

/// Waits for a second signal.
async fn second_signal() {
    match ShutdownCoordinator::get() {
        Some(coordinator) => drop(coordinator.reached(Stage::StopNow { signal: 0 }).await),
        None => std::future::pending().await,
    }
}

impl CleanupTarget {
    fn capture(engine: &Arc<Engine>) -> Option<Self> {
        engine.run().map(|run| Self { engine: Arc::clone(engine), workers: run.workers() })
    }

    /// Returns the report if no process is left. Runs on a thread of its own, because it blocks and must not depend on
    /// a runtime that is busy or ends.
    async fn clear(self) -> Option<StopReport> {
        let (done, cleared) = oneshot::channel();
        let clear = move || {
            let report = self.engine.end_processes().filter(StopReport::is_clean);
            let all_ended = self.workers.iter().all(|worker| worker.try_wait().is_some());
            let _ = done.send(report.filter(|_| all_ended));
        };
        std::thread::Builder::new().name("snakepit-cleanup".into()).spawn(clear).ok()?;
        cleared.await.ok().flatten()
    }
}

/// Ends the processes of an engine whose runtime is dropped or not driven, so that no task can stop it in order. Blocks
/// for a bounded time.
pub(crate) fn end_without_runtime(engine: &Arc<Engine>) {
    let shutdown = Shutdown::of(engine, ShutdownCause::Drop, Duration::ZERO);
    let began = Instant::now();
    shutdown.emit_start();
    engine.close();
    let report = engine.end_processes();
    let (outcome, killed) = match &report {
        Some(report) if report.is_clean() => (CleanupOutcome::Clean, report.killed),
        Some(report) => (CleanupOutcome::Timeout, report.killed),
        None => (CleanupOutcome::Nothing, 0),
    };
    shutdown.emit_cleanup(outcome, killed, began.elapsed());
    shutdown.emit_exit();
}

/// Emits an event of a shutdown, with the common fields and its own.
macro_rules! emit_event {
    ($shutdown:expr, $event:ident $(, $field:ident: $value:expr)*) => {
        emit(Event::$event {
            run_id: $shutdown.run_id.map(|id| id.to_string().into()),
            path: $shutdown.cause.as_str(),
            exit_mode: $shutdown.exit.as_str(),
            stop_mode: $shutdown.stop_mode.as_str(),
            owned: $shutdown.owned,
            status: $shutdown.status,
            $($field: $value,)*
        })
    };
}

impl Shutdown {
    fn emit_start(&self) {
        emit_event!(self, ScriptShutdownStart);
    }

    fn emit_stop(&self, drained: bool, took: Duration) {
        emit_event!(self, ScriptShutdownStop, drained: drained, took: took);
    }

    fn emit_cleanup(&self, outcome: CleanupOutcome, killed: usize, took: Duration) {
        emit_event!(self, ScriptShutdownCleanup, outcome: outcome.as_str(), killed: killed, took: took);
    }

    fn emit_exit(&self) {
        emit_event!(self, ScriptShutdownExit);
    }
}
