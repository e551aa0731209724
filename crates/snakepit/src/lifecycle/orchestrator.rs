//! Step 5: the one way in which engines are stopped, whoever asks for it.
//!
//! ```text
//! a  tell that it begins        c  stop: drain, then end the workers      e  return, exit in order, or halt
//! b  take down the targets      d  clean up: custody's barrier over them
//! ```
//!
//! Every step is bounded, and each may be taken again: a second shutdown of an engine waits for the first, or hastens it, and
//! finds nothing to do afterwards.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::sync::oneshot;

use super::coordinator::{ShutdownCoordinator, Stage};
use super::exit;
use super::failpoint::{Step, reach};
pub(crate) use super::mode::Exit;
use super::mode::StopMode;
use crate::custody::{self, RunId, StopReport};
use crate::engine::{Engine, Phase};
use crate::logging;
use crate::telemetry::{self, Event};

/// How long calls that are under way may take, unless it is said otherwise.
pub(crate) const GRACE: Duration = Duration::from_secs(30);

/// How long the cleanup may take, unless it is said otherwise. Custody's own times are far below it.
pub(crate) const CLEANUP_TIMEOUT: Duration = Duration::from_secs(15);

/// How long workers may take to be gone beyond the window of their stop. It only bounds a mistake.
pub(crate) const ENDING: Duration = Duration::from_secs(30);

/// Who asked for the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Path {
    /// A script whose function has ended.
    Script,
    /// A signal.
    Signal,
    /// A call of `stop`.
    Stop,
    /// The last handle is gone, or the runtime.
    Drop,
}

impl Path {
    fn as_str(self) -> &'static str {
        match self {
            Self::Script => "script",
            Self::Signal => "signal",
            Self::Stop => "stop",
            Self::Drop => "drop",
        }
    }
}

/// What is to be done.
#[derive(Debug)]
pub(crate) struct Shutdown {
    pub(crate) path: Path,
    pub(crate) exit: Exit,
    pub(crate) stop_mode: StopMode,
    pub(crate) owned: bool,
    pub(crate) status: i32,
    /// The run of this invocation.
    pub(crate) run_id: Option<RunId>,
    /// How the process is left if a second signal cuts this short; none if signals are not its matter.
    pub(crate) if_cut_short: Option<Exit>,
    /// What is stopped.
    pub(crate) engines: Vec<Arc<Engine>>,
    /// How long what is under way may take.
    pub(crate) grace: Duration,
    pub(crate) cleanup_timeout: Duration,
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ended {
    /// The status that the process ends with, if it is to end.
    pub(crate) status: i32,
    /// Whether everything that was under way could finish.
    pub(crate) drained: bool,
}

/// What must be gone in the end, known before those are stopped who know it.
struct Target {
    engine: Arc<Engine>,
    workers: Vec<custody::Worker>,
}

/// How the cleanup ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cleaned {
    /// Nobody is left.
    Clean,
    /// Somebody is, or nobody could tell in time.
    Timeout,
    /// There was nothing of ours.
    Nothing,
}

impl Cleaned {
    fn as_str(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Timeout => "timeout",
            Self::Nothing => "nothing",
        }
    }
}

impl Shutdown {
    /// An engine's end that leaves the process alone.
    pub(crate) fn of(engine: &Arc<Engine>, path: Path, grace: Duration) -> Self {
        Self {
            path,
            exit: Exit::Return,
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

    /// Does it, step by step. Returns only if the process is to go on.
    pub(crate) async fn conduct(mut self) -> Ended {
        let unfinished = Unfinished::new(self.engines.clone(), self.path, self.grace);
        // a
        reach(Step::Start);
        self.tell_start();
        // b
        reach(Step::Capture);
        let targets: Vec<Target> = self.engines.iter().filter_map(Target::capture).collect();
        // c
        reach(Step::Stop);
        let drained = self.stop().await;
        // d
        reach(Step::Cleanup);
        self.clean_up(targets).await;
        // e
        reach(Step::Exit);
        self.cut_short();
        self.tell_exit();
        logging::flush().await;
        // Who waits for the end has heard of all of it.
        for engine in &self.engines {
            engine.closed();
        }
        unfinished.finish();
        self.leave();
        Ended { status: self.status, drained }
    }

    /// c: Drains and ends what is to be stopped.
    async fn stop(&mut self) -> bool {
        let began = Instant::now();
        let engines = &self.engines;
        let stop = join_all(engines.iter().map(|engine| engine.stop(self.grace)));
        let hasten = async {
            stop_now().await;
            for engine in engines {
                engine.end_now();
            }
            std::future::pending::<()>().await;
        };
        let stopped = tokio::select! {
            stopped = tokio::time::timeout(self.stop_limit(), stop) => stopped,
            () = hasten => return false,
        };
        let drained = stopped.is_ok_and(|all| all.into_iter().all(|drained| drained));
        if !engines.is_empty() {
            self.tell_stop(drained, began.elapsed());
        }
        drained
    }

    /// How long the drain and the end of the workers may take together.
    fn stop_limit(&self) -> Duration {
        self.grace.saturating_add(self.longest_window()).saturating_add(ENDING)
    }

    fn longest_window(&self) -> Duration {
        self.engines.iter().map(|engine| engine.stop_grace).max().unwrap_or_default()
    }

    /// d: Makes sure that nobody is left, whatever became of the stop.
    async fn clean_up(&self, targets: Vec<Target>) {
        let began = Instant::now();
        if targets.is_empty() {
            return self.tell_cleanup(Cleaned::Nothing, 0, began.elapsed());
        }
        let cleaned = join_all(targets.into_iter().map(Target::clear));
        // A process that only the run knows of may still have all of the window.
        let limit = self.cleanup_timeout.saturating_add(self.longest_window());
        let (outcome, killed) = match tokio::time::timeout(limit, cleaned).await {
            Ok(all) => {
                let clean = all.iter().all(Option::is_some);
                let killed = all.into_iter().flatten().map(|report| report.killed).sum();
                (if clean { Cleaned::Clean } else { Cleaned::Timeout }, killed)
            }
            Err(_) => (Cleaned::Timeout, 0),
        };
        self.tell_cleanup(outcome, killed, began.elapsed());
    }

    /// A second signal, whenever it came, decides about the status.
    fn cut_short(&mut self) {
        let stage = ShutdownCoordinator::get().map(|coordinator| coordinator.stage());
        if let (Some(exit), Some(Stage::StopNow { signal })) = (self.if_cut_short, stage) {
            self.status = 128 + signal;
            self.exit = exit;
        }
    }

    /// e: Leaves the process as it was asked for. Nothing is written from here on.
    fn leave(&self) {
        match self.exit {
            Exit::Return => {}
            Exit::Stop => exit::exit(self.status),
            Exit::Halt => custody::exit_now(self.status),
        }
    }
}

/// Engines whose end has begun: it goes on, also if who waits for it does not wait any longer.
pub(crate) struct Unfinished {
    engines: Vec<Arc<Engine>>,
    path: Path,
    grace: Duration,
}

impl Unfinished {
    fn new(engines: Vec<Arc<Engine>>, path: Path, grace: Duration) -> Self {
        for engine in &engines {
            let _ = engine.claim_end();
        }
        Self { engines, path, grace }
    }

    fn finish(mut self) {
        self.engines.clear();
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        for engine in self.engines.drain(..).filter(|engine| engine.is_own()) {
            if std::thread::panicking() {
                engine.end_apart();
            } else if engine.phase() != Phase::Closed {
                engine.go_on_ending(self.path, self.grace);
            }
        }
    }
}

/// The engines of a script whose function still runs: ended if nobody waits for the script any longer.
pub(super) struct Deserted(Vec<Arc<Engine>>);

impl Deserted {
    pub(super) fn unless_kept(engines: Vec<Arc<Engine>>) -> Self {
        Self(engines)
    }

    pub(super) fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Deserted {
    fn drop(&mut self) {
        for engine in self.0.drain(..).filter(|engine| engine.is_own() && engine.phase() != Phase::Closed) {
            engine.begin_end(Path::Drop, Duration::ZERO);
        }
    }
}

/// Does what must not change how a process ends: a log that cannot be written to may panic.
pub(crate) fn undisturbed(tell: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(tell));
}

fn tell(event: Event) {
    undisturbed(|| telemetry::emit(event));
}

/// Until a second signal says so.
async fn stop_now() {
    match ShutdownCoordinator::get() {
        Some(coordinator) => drop(coordinator.reached(Stage::StopNow { signal: 0 }).await),
        None => std::future::pending().await,
    }
}

impl Target {
    fn capture(engine: &Arc<Engine>) -> Option<Self> {
        engine.run().map(|run| Self { engine: Arc::clone(engine), workers: run.workers() })
    }

    /// The report, if nobody is left. On a thread of its own: it blocks, and neither a busy runtime nor the end of one shall
    /// wait for it longer than we do.
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

/// Ends the processes of an engine when nobody is left to stop it in order: its runtime is being dropped. Blocks, bounded.
pub(crate) fn rescue(engine: &Arc<Engine>) {
    let shutdown = Shutdown::of(engine, Path::Drop, Duration::ZERO);
    let began = Instant::now();
    shutdown.tell_start();
    engine.close();
    let report = engine.end_processes();
    let (outcome, killed) = match &report {
        Some(report) if report.is_clean() => (Cleaned::Clean, report.killed),
        Some(report) => (Cleaned::Timeout, report.killed),
        None => (Cleaned::Nothing, 0),
    };
    shutdown.tell_cleanup(outcome, killed, began.elapsed());
    shutdown.tell_exit();
}

/// An event of a shutdown: what all of them say, and what this one says besides.
macro_rules! told {
    ($shutdown:expr, $event:ident $(, $field:ident: $value:expr)*) => {
        tell(Event::$event {
            run_id: $shutdown.run_id.map(|id| id.to_string().into()),
            path: $shutdown.path.as_str(),
            exit_mode: $shutdown.exit.as_str(),
            stop_mode: $shutdown.stop_mode.as_str(),
            owned: $shutdown.owned,
            status: $shutdown.status,
            $($field: $value,)*
        })
    };
}

impl Shutdown {
    fn tell_start(&self) {
        told!(self, ScriptShutdownStart);
    }

    fn tell_stop(&self, drained: bool, took: Duration) {
        told!(self, ScriptShutdownStop, drained: drained, took: took);
    }

    fn tell_cleanup(&self, outcome: Cleaned, killed: usize, took: Duration) {
        told!(self, ScriptShutdownCleanup, outcome: outcome.as_str(), killed: killed, took: took);
    }

    fn tell_exit(&self) {
        told!(self, ScriptShutdownExit);
    }
}
