//! The engine behind the handles: its pools, its run, and how far it is with its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{self, Arc, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tracing::Level;

use crate::custody::{Run, RunId};
use crate::lifecycle::orchestrator;
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
    phase: watch::Sender<Phase>,
    /// When what is under way has had its time: the earliest that anybody has asked for.
    until: watch::Sender<Option<Instant>>,
    /// Whoever holds it stops the workers; whether all could finish, once that is done.
    stopped: Mutex<Option<bool>>,
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
        all.filter(|engine| engine.phase() != Phase::Closed).collect()
    }

    /// To be called inside its runtime.
    pub(crate) fn new(pools: Vec<PoolRef>, directory: Arc<Directory>, run: Option<Run>) -> Arc<Self> {
        let engine = Arc::new(Self {
            pools,
            directory,
            run: run.clone(),
            phase: watch::Sender::new(Phase::Serving),
            until: watch::Sender::new(None),
            stopped: Mutex::new(None),
            is_heeded: AtomicBool::new(false),
        });
        ENGINES.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&engine));
        if let Some(run) = run {
            let watchman = Watchman { engine: Arc::clone(&engine), run };
            tokio::spawn(async move { watchman.engine.reached(Phase::Closed).await });
        }
        engine
    }

    pub(crate) fn run(&self) -> Option<&Run> {
        self.run.as_ref()
    }

    pub(crate) fn run_id(&self) -> Option<RunId> {
        self.run.as_ref().map(Run::id)
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
            if self.pools.iter().all(|pool| pool.shared.is_done()) {
                return;
            }
        }
    }

    /// Drains and ends all workers; says whether everything that was under way could finish. Whoever asks while that is
    /// being done may hasten it, and waits for it.
    pub(crate) async fn stop(&self, grace: Duration) -> bool {
        self.close();
        self.hasten(Instant::now() + grace);
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
            tracing::warn!(?grace, "calls were cut short: they did not finish in time");
        }
        join_all(self.pools.iter().map(|pool| pool.crew.stop())).await;
        *stopped = Some(drained);
        drained
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
        self.pools.iter().for_each(|pool| pool.crew.give_up());
    }

    /// It is over: nobody needs to look after it any more.
    pub(crate) fn closed(&self) {
        self.phase.send_replace(Phase::Closed);
    }
}

/// Sits in the engine's runtime. If that is dropped under the engine, whoever could stop it is gone, too.
struct Watchman {
    engine: Arc<Engine>,
    run: Run,
}

impl Drop for Watchman {
    fn drop(&mut self) {
        if self.engine.phase() != Phase::Closed {
            orchestrator::rescue(&self.engine, &self.run);
            self.engine.closed();
        }
    }
}
