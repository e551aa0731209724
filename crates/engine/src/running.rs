//! The engine behind its handles: the pools, the run, and the progress of the shutdown.
//!
//! ```text
//! Serving ── close ──► Closing ── drain, end the workers, clean up ──► Closed
//! ```

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{self, Arc, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tracing::Level;

use crate::custody::{Pid, Run, RunId, StopReport};
use crate::lifecycle::shutdown::{self, Shutdown, ShutdownCause};
use crate::logging::somebody_says;
use crate::pool::PoolSet;
use crate::shutdown_report::ShutdownReport;
use snakepit_core::StopWindow;
use snakepit_core::error_text::ignoring_panics;
use snakepit_policy::time::after;

/// The progress of an engine's shutdown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum EnginePhase {
    Serving,
    /// The engine takes no more calls.
    Closing,
    /// The workers are gone.
    Closed,
}

pub(crate) struct Engine {
    pub(crate) pools: PoolSet,
    run: Option<Run>,
    runtime: tokio::runtime::Handle,
    /// The process that started the engine. A forked copy has its memory, but neither its threads nor its workers.
    owner: Pid,
    /// Whether a task or a thread is responsible for the shutdown.
    is_ending: AtomicBool,
    phase: watch::Sender<EnginePhase>,
    /// When the time of the calls under way is over: the earliest deadline that was requested.
    deadline: watch::Sender<Option<Instant>>,
    /// The holder of the lock stops the workers. Once they are stopped, this says whether all calls could finish.
    stopped: Mutex<Option<bool>>,
    /// The time from the request to exit until KILL, as custody is configured.
    pub(crate) stop_grace: Duration,
    /// Opened once, by the first caller that ends the workers.
    window: OnceLock<StopWindow>,
    /// Whether a task waits in [`Engine::stopping`], and gets time to react.
    has_stop_waiter: AtomicBool,
    /// When the shutdown began, and what it has done so far. `took` is set when the engine is closed.
    end: sync::Mutex<Option<(Instant, ShutdownReport)>>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("pools", &self.pools).finish_non_exhaustive()
    }
}

/// All engines of this process that are not closed.
static ENGINES: sync::Mutex<Vec<Weak<Engine>>> = sync::Mutex::new(Vec::new());

impl Engine {
    /// Returns all engines of this process that are not closed.
    pub(crate) fn all() -> Vec<Arc<Self>> {
        let mut engines = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
        engines.retain(|engine| engine.strong_count() > 0);
        let all = engines.iter().filter_map(Weak::upgrade);
        all.filter(|engine| engine.is_own() && engine.phase() != EnginePhase::Closed).collect()
    }

    /// Creates an engine. Call it inside the engine's runtime.
    pub(crate) fn new(pools: PoolSet, run: Option<Run>, stop_grace: Duration) -> Arc<Self> {
        let engine = Arc::new(Self {
            pools,
            run,
            runtime: tokio::runtime::Handle::current(),
            owner: Pid::current(),
            is_ending: AtomicBool::new(false),
            phase: watch::Sender::new(EnginePhase::Serving),
            deadline: watch::Sender::new(None),
            stopped: Mutex::new(None),
            stop_grace,
            window: OnceLock::new(),
            has_stop_waiter: AtomicBool::new(false),
            end: sync::Mutex::new(None),
        });
        ENGINES.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&engine));
        if engine.run.is_some() {
            let guard = RuntimeGuard(Arc::clone(&engine));
            tokio::spawn(async move { guard.0.reached(EnginePhase::Closed).await });
        }
        engine
    }

    pub(crate) fn run(&self) -> Option<&Run> {
        self.run.as_ref()
    }

    pub(crate) fn run_id(&self) -> Option<RunId> {
        self.run.as_ref().map(Run::id)
    }

    /// Reports whether this process started the engine.
    pub(crate) fn is_own(&self) -> bool {
        self.owner == Pid::current()
    }

    /// Claims the shutdown. The one caller that gets `true` must carry it out; all others wait for it.
    pub(crate) fn claim_end(&self) -> bool {
        !self.is_ending.swap(true, Ordering::SeqCst)
    }

    /// Begins the shutdown, unless it has begun. It goes on even if no caller waits for it. Calls under way get at most
    /// `grace`.
    pub(crate) fn begin_end(self: &Arc<Self>, cause: ShutdownCause, grace: Duration) {
        self.close();
        self.hasten(after(Instant::now(), grace));
        if self.claim_end() {
            self.continue_end(cause, grace);
        }
    }

    /// Carries out the shutdown in a task of the runtime, for a caller that claimed it and cannot.
    pub(crate) fn continue_end(self: &Arc<Self>, cause: ShutdownCause, grace: Duration) {
        self.runtime.spawn(Shutdown::of(self, cause, grace).run());
    }

    /// Ends the engine on a thread of its own, because the runtime may not be driven.
    pub(crate) fn end_on_thread(self: &Arc<Self>) {
        let engine = Arc::clone(self);
        let end = move || {
            engine.give_up();
            shutdown::end_without_runtime(&engine);
            engine.mark_closed();
        };
        if std::thread::Builder::new().name("snakepit-drop".into()).spawn(end).is_err() {
            self.continue_end(ShutdownCause::Drop, Duration::ZERO);
        }
    }

    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        &self.runtime
    }

    /// Reports whether the runtime makes progress only while a thread blocks on it.
    pub(crate) fn needs_a_driver(&self) -> bool {
        self.runtime.runtime_flavor() == tokio::runtime::RuntimeFlavor::CurrentThread
    }

    pub(crate) fn phase(&self) -> EnginePhase {
        *self.phase.borrow()
    }

    /// Waits until the engine is in this phase or a later one.
    pub(crate) async fn reached(&self, phase: EnginePhase) {
        let _ = self.phase.subscribe().wait_for(|now| *now >= phase).await;
    }

    /// Waits until the shutdown begins. The caller gets time to react.
    pub(crate) async fn stopping(&self) {
        self.has_stop_waiter.store(true, Ordering::Relaxed);
        self.reached(EnginePhase::Closing).await;
    }

    /// Reports whether a task has waited in [`Engine::stopping`].
    pub(crate) fn has_stop_waiter(&self) -> bool {
        self.has_stop_waiter.load(Ordering::Relaxed)
    }

    /// Fails the queued calls, and takes no more.
    pub(crate) fn close(&self) {
        self.phase.send_if_modified(|phase| {
            let serves = *phase == EnginePhase::Serving;
            if serves {
                *phase = EnginePhase::Closing;
            }
            serves
        });
        let under_way = self.pools.in_flight();
        let given_back = self.pools.close();
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, report) = end.get_or_insert_with(|| {
            (Instant::now(), ShutdownReport { completed: under_way, ..ShutdownReport::default() })
        });
        report.given_back += given_back;
    }

    /// Records what the shutdown has done.
    fn note_end(&self, note: impl FnOnce(&mut ShutdownReport)) {
        if let Some((_, report)) = self.end.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            note(report);
        }
    }

    /// Returns what the shutdown has done so far.
    pub(crate) fn report(&self) -> ShutdownReport {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((began, report)) = &*end else { return ShutdownReport::default() };
        let mut report = report.clone();
        if self.phase() != EnginePhase::Closed {
            report.took = began.elapsed();
        }
        report
    }

    /// Drains the calls and ends all workers. Returns whether all calls could finish. A second caller waits for the
    /// first, and may bring its deadline forward.
    pub(crate) async fn stop(&self, grace: Duration) -> bool {
        self.close();
        self.hasten(after(Instant::now(), grace));
        let mut stopped = self.stopped.lock().await;
        if let Some(drained) = *stopped {
            return drained;
        }
        let drained = tokio::select! {
            biased;
            () = self.pools.finished() => true,
            () = self.deadline_passed() => false,
        };
        let cut_short = if drained { 0 } else { self.pools.in_flight() };
        self.note_end(|report| {
            report.cut_short = cut_short;
            report.completed = report.completed.saturating_sub(cut_short);
        });
        if !drained && !grace.is_zero() && somebody_says(Level::WARN) {
            ignoring_panics(|| {
                tracing::warn!(?grace, "calls were cut short: they did not finish within the grace period");
            });
        }
        self.end_workers().await;
        *stopped = Some(drained);
        drained
    }

    /// Ends all workers of all pools within one window: the supervisors ask them to end, then custody's barrier ends
    /// all that are left at once.
    async fn end_workers(&self) {
        let window = self.window();
        let mut supervisors = pin!(self.pools.stop(window));
        if tokio::time::timeout_at(window.term_at, &mut supervisors).await.is_ok() {
            return;
        }
        if let Some(run) = self.run.clone() {
            // On a thread of its own: the barrier blocks, and the runtime may have few threads.
            let barrier = move || drop(run.stop_within(window.left()));
            let name = "snakepit-barrier".to_owned();
            if std::thread::Builder::new().name(name).spawn(barrier.clone()).is_err() {
                barrier();
            }
        }
        supervisors.await;
    }

    /// Returns the time that workers have to end. The first call opens the window.
    fn window(&self) -> StopWindow {
        *self.window.get_or_init(|| StopWindow::open(self.stop_grace))
    }

    /// Runs custody's barrier over all remaining processes of the run, until the window closes. Blocks.
    pub(crate) fn end_processes(&self) -> Option<StopReport> {
        let left = self.window().left();
        let done = self.run.as_ref().map(|run| run.stop_within(left));
        if let Some(done) = &done {
            self.note_end(|report| {
                report.survivors.clone_from(&done.survivors);
            });
        }
        done
    }

    /// Gives calls no more time, and kills the processes. The current or next stop finds them gone.
    pub(crate) fn kill_now(&self) {
        self.close();
        self.hasten(Instant::now());
        if let Some(run) = self.run.clone() {
            let kill = move || drop(run.stop_within(Duration::ZERO));
            // Without the thread, the supervisors end their workers one by one, which takes longer.
            let _ = std::thread::Builder::new().name("snakepit-stop-now".into()).spawn(kill);
        }
    }

    /// Moves the deadline of the calls under way forward to this instant, if that is sooner.
    fn hasten(&self, deadline: Instant) {
        self.deadline.send_if_modified(|known| {
            let sooner = known.is_none_or(|known| deadline < known);
            if sooner {
                *known = Some(deadline);
            }
            sooner
        });
    }

    async fn deadline_passed(&self) {
        let mut changes = self.deadline.subscribe();
        loop {
            let deadline = *changes.borrow_and_update();
            tokio::select! {
                () = async {
                    match deadline {
                        Some(deadline) => tokio::time::sleep_until(deadline).await,
                        None => std::future::pending().await,
                    }
                } => return,
                _ = changes.changed() => {}
            }
        }
    }

    /// Takes no more calls and replaces no workers, because the caller is about to end them from outside.
    pub(crate) fn give_up(&self) {
        self.close();
        self.hasten(Instant::now());
        let window = self.window();
        self.pools.give_up(window);
    }

    /// Marks the engine as closed: nothing is left to end.
    pub(crate) fn mark_closed(&self) {
        if self.phase() != EnginePhase::Closed
            && let Some((began, report)) = self.end.lock().unwrap_or_else(PoisonError::into_inner).as_mut()
        {
            report.took = began.elapsed();
        }
        self.phase.send_replace(EnginePhase::Closed);
    }
}

/// Held by a task of the engine's runtime. If the runtime is dropped while the engine runs, the tasks that could stop
/// the engine are gone, and this drop ends the processes.
struct RuntimeGuard(Arc<Engine>);

impl Drop for RuntimeGuard {
    fn drop(&mut self) {
        if self.0.is_own() && self.0.phase() != EnginePhase::Closed {
            if self.0.claim_end() {
                shutdown::end_without_runtime(&self.0);
            } else {
                // The task that claimed the shutdown was dropped with this runtime, too.
                let _ = self.0.end_processes();
            }
            self.0.mark_closed();
        }
    }
}
