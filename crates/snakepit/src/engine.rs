//! The engine behind the handles: its pools, its run, and how far it is with its end.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{self, Arc, OnceLock, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tracing::Level;

use crate::call::waiting::after;
use crate::custody::{Pid, Run, RunId, StopReport};
use crate::lifecycle::orchestrator::{self, Path, Shutdown, undisturbed};
use crate::lifecycle::stop_window::StopWindow;
use crate::logging::somebody_says;
use crate::pool::{Directory, PoolRef};

/// How far an engine is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Phase {
    Serving,
    /// It takes no more calls.
    Closing,
    /// Its workers are gone.
    Closed,
}

pub(crate) struct Engine {
    pub(crate) pools: Vec<PoolRef>,
    pub(crate) directory: Arc<Directory>,
    run: Option<Run>,
    runtime: tokio::runtime::Handle,
    /// A forked copy of the host has the engine's memory, but neither its threads nor its workers.
    owner: Pid,
    /// Somebody sees to its end.
    is_ending: AtomicBool,
    phase: watch::Sender<Phase>,
    /// When what is under way has had its time: the earliest that anybody has asked for.
    until: watch::Sender<Option<Instant>>,
    /// Whoever holds it stops the workers; whether all could finish, once that is done.
    stopped: Mutex<Option<bool>>,
    /// From the first word to KILL, as custody is configured.
    pub(crate) stop_grace: Duration,
    /// Opened once, by whoever is the first to end the workers.
    window: OnceLock<StopWindow>,
    /// Somebody has asked to be told of the end, and will act on it.
    is_heeded: AtomicBool,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("pools", &self.pools).finish_non_exhaustive()
    }
}

/// All engines of this process, those that are closed aside.
static ENGINES: sync::Mutex<Vec<Weak<Engine>>> = sync::Mutex::new(Vec::new());

impl Engine {
    /// All engines of this process that are not closed.
    pub(crate) fn all() -> Vec<Arc<Self>> {
        let mut engines = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
        engines.retain(|engine| engine.strong_count() > 0);
        let all = engines.iter().filter_map(Weak::upgrade);
        all.filter(|engine| engine.is_own() && engine.phase() != Phase::Closed).collect()
    }

    /// To be called inside its runtime.
    pub(crate) fn new(
        pools: Vec<PoolRef>,
        directory: Arc<Directory>,
        run: Option<Run>,
        stop_grace: Duration,
    ) -> Arc<Self> {
        let engine = Arc::new(Self {
            pools,
            directory,
            run,
            runtime: tokio::runtime::Handle::current(),
            owner: Pid::current(),
            is_ending: AtomicBool::new(false),
            phase: watch::Sender::new(Phase::Serving),
            until: watch::Sender::new(None),
            stopped: Mutex::new(None),
            stop_grace,
            window: OnceLock::new(),
            is_heeded: AtomicBool::new(false),
        });
        ENGINES.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&engine));
        if engine.run.is_some() {
            let watchman = Watchman(Arc::clone(&engine));
            tokio::spawn(async move { watchman.0.reached(Phase::Closed).await });
        }
        engine
    }

    pub(crate) fn run(&self) -> Option<&Run> {
        self.run.as_ref()
    }

    pub(crate) fn run_id(&self) -> Option<RunId> {
        self.run.as_ref().map(Run::id)
    }

    /// Whether it was started by this process.
    pub(crate) fn is_own(&self) -> bool {
        self.owner == Pid::current()
    }

    /// Whoever is told yes sees to its end; the others wait for that.
    pub(crate) fn claim_end(&self) -> bool {
        !self.is_ending.swap(true, Ordering::SeqCst)
    }

    /// Begins to end it, unless somebody has; who waits for the end may be gone before it. What is under way has no more
    /// time than this.
    pub(crate) fn begin_end(self: &Arc<Self>, path: Path, grace: Duration) {
        self.close();
        self.hasten(after(Instant::now(), grace));
        if self.claim_end() {
            self.go_on_ending(path, grace);
        }
    }

    /// Whoever saw to its end has left.
    pub(crate) fn go_on_ending(self: &Arc<Self>, path: Path, grace: Duration) {
        self.runtime.spawn(Shutdown::of(self, path, grace).conduct());
    }

    /// Ends it without its runtime, which may be one that nobody drives.
    pub(crate) fn end_apart(self: &Arc<Self>) {
        let engine = Arc::clone(self);
        let end = move || {
            engine.give_up();
            orchestrator::rescue(&engine);
            engine.closed();
        };
        if std::thread::Builder::new().name("snakepit-drop".into()).spawn(end).is_err() {
            self.go_on_ending(Path::Drop, Duration::ZERO);
        }
    }

    /// Whether nothing happens in its runtime but while somebody waits in it.
    pub(crate) fn is_driven_by_others(&self) -> bool {
        self.runtime.runtime_flavor() == tokio::runtime::RuntimeFlavor::CurrentThread
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Until it is so far.
    pub(crate) async fn reached(&self, phase: Phase) {
        let _ = self.phase.subscribe().wait_for(|now| *now >= phase).await;
    }

    /// As [`Engine::reached`] for the beginning of the end; who asks is given time to act on it.
    pub(crate) async fn stopping(&self) {
        self.is_heeded.store(true, Ordering::Relaxed);
        self.reached(Phase::Closing).await;
    }

    /// Whether somebody waits for its end to finish what he is at.
    pub(crate) fn is_heeded(&self) -> bool {
        self.is_heeded.load(Ordering::Relaxed)
    }

    /// Gives back what waits, and takes no more calls.
    pub(crate) fn close(&self) {
        self.phase.send_if_modified(|phase| {
            let serves = *phase == Phase::Serving;
            if serves {
                *phase = Phase::Closing;
            }
            serves
        });
        for pool in &self.pools {
            pool.shared.close();
        }
    }

    /// Until what was under way is finished. A call of one pool may need another pool, so all serve until the last is done.
    pub(crate) async fn finished(&self) {
        loop {
            for pool in &self.pools {
                pool.shared.finished().await;
            }
            if self.is_done() {
                return;
            }
        }
    }

    /// Whether nothing is under way.
    pub(crate) fn is_done(&self) -> bool {
        self.pools.iter().all(|pool| pool.shared.is_done())
    }

    /// Drains and ends all workers; says whether everything that was under way could finish. Whoever asks while that is
    /// being done may hasten it, and waits for it.
    pub(crate) async fn stop(&self, grace: Duration) -> bool {
        self.close();
        self.hasten(after(Instant::now(), grace));
        let mut stopped = self.stopped.lock().await;
        if let Some(drained) = *stopped {
            return drained;
        }
        let drained = tokio::select! {
            biased;
            () = self.finished() => true,
            () = self.out_of_time() => false,
        };
        if !drained && !grace.is_zero() && somebody_says(Level::WARN) {
            undisturbed(|| tracing::warn!(?grace, "calls were cut short: they did not finish in time"));
        }
        self.end_workers().await;
        *stopped = Some(drained);
        drained
    }

    /// Ends all workers of all pools within one window: the crews ask them, and custody's barrier, over all of them at once,
    /// sees to it that they end.
    async fn end_workers(&self) {
        let window = self.window();
        let mut crews = pin!(join_all(self.pools.iter().map(|pool| pool.crew.stop(window))));
        if tokio::time::timeout_at(window.term_at, &mut crews).await.is_ok() {
            return;
        }
        if let Some(run) = self.run.clone() {
            // On a thread of its own: it blocks, and a runtime may have few.
            let barrier = move || drop(run.stop_within(window.left()));
            let name = "snakepit-barrier".to_owned();
            if std::thread::Builder::new().name(name).spawn(barrier.clone()).is_err() {
                barrier();
            }
        }
        crews.await;
    }

    /// The time that workers have to end. It begins when this is asked for the first time.
    fn window(&self) -> StopWindow {
        *self.window.get_or_init(|| StopWindow::open(self.stop_grace))
    }

    /// Custody's barrier over all that is left in the run, for as long as the window is still open. Blocks.
    pub(crate) fn end_processes(&self) -> Option<StopReport> {
        let left = self.window().left();
        self.run.as_ref().map(|run| run.stop_within(left))
    }

    /// Nothing that is under way gets any more time, and the processes are killed. The stop that is under way, or the next,
    /// finds them gone.
    pub(crate) fn end_now(&self) {
        self.close();
        self.hasten(Instant::now());
        if let Some(run) = self.run.clone() {
            let kill = move || drop(run.stop_within(Duration::ZERO));
            // Without a thread the crews end their workers one by one, which takes longer.
            let _ = std::thread::Builder::new().name("snakepit-stop-now".into()).spawn(kill);
        }
    }

    fn hasten(&self, until: Instant) {
        self.until.send_if_modified(|known| {
            let sooner = known.is_none_or(|known| until < known);
            if sooner {
                *known = Some(until);
            }
            sooner
        });
    }

    async fn out_of_time(&self) {
        let mut changes = self.until.subscribe();
        loop {
            let until = *changes.borrow_and_update();
            tokio::select! {
                () = async {
                    match until {
                        Some(until) => tokio::time::sleep_until(until).await,
                        None => std::future::pending().await,
                    }
                } => return,
                _ = changes.changed() => {}
            }
        }
    }

    /// Takes no more calls and replaces no workers: somebody is about to end them from outside.
    pub(crate) fn give_up(&self) {
        self.close();
        self.hasten(Instant::now());
        let window = self.window();
        self.pools.iter().for_each(|pool| pool.crew.give_up(window));
    }

    /// It is over: nobody needs to look after it any more.
    pub(crate) fn closed(&self) {
        self.phase.send_replace(Phase::Closed);
    }
}

/// Sits in the engine's runtime. If that is dropped under the engine, whoever could stop it is gone, too.
struct Watchman(Arc<Engine>);

impl Drop for Watchman {
    fn drop(&mut self) {
        if self.0.is_own() && self.0.phase() != Phase::Closed {
            if self.0.claim_end() {
                orchestrator::rescue(&self.0);
            } else {
                // Who saw to it sat in this runtime, too.
                let _ = self.0.end_processes();
            }
            self.0.closed();
        }
    }
}
