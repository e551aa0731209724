//! A pool: workers of one kind behind a queue.
//!
//! Owns who serves which call (`scheduler`, `placement`), which calls travel together (`batch`), which belong together (`session`) and how many workers there are
//! (`supervisor`). Knows workers only through [`crate::adapter::Handle`]: no adapter, no protocol.

mod bounds;
mod command;
mod directory;
mod equipment;
mod event;
mod handle;
pub(crate) mod options;
pub(crate) mod outcomes;
mod set;
pub(crate) mod status;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};

pub(crate) use directory::PoolDirectory;
pub(crate) use equipment::equipped;
pub(crate) use event::{command_of, worker_died};
pub use handle::Pool;
pub use options::{Affinity, CancelGrace, LostSessions, PoolOptions, PoolSettings, WarmUp};
pub(crate) use outcomes::CallOutcome;
pub use outcomes::Outcomes;
pub use set::{FirstStart, PoolSet};
pub use status::{
    CallAtWork, CommandGrowth, HealthAnswer, PoolHealth, PoolStatus, TaintedPlace, WorkerDuty, WorkerInfo,
    WorkerLiveness, WorkerPlace, WorkerStatus,
};

use crate::call::{CallError, Input, NoWorkersReason, PoolCommand, SCALED_TO_ZERO};
use crate::logging::Logging;
use crate::queue::Placement;
use crate::queue::admission::Admission;
use crate::queue::scheduler::Scheduler;
use crate::queue::session::Sessions;
use crate::request::{CallPlan, PendingCall};
use crate::telemetry::EventOrigin;
use crate::tool::Tools;
use crate::value::{Encoded, Value};
use crate::worker::{HeldCount, OomDetector, Worker};
use snakepit_policy::growth::Growth;

/// How it stands with a pool's workers.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Health {
    /// Its first workers are being started.
    Starting,
    /// As many workers serve as were asked for: so many.
    Ready(usize),
    /// It was told to have no workers.
    Empty,
    /// None does any more.
    Stopped,
    /// Fewer do; why the last one could not be started, or died.
    Short {
        /// How many serve.
        serving: usize,
        /// Why the last one failed.
        reason: Arc<str>,
    },
    /// They fail again and again, and only one at a time is tried.
    Degraded {
        /// How many serve.
        serving: usize,
        /// Why the last one failed.
        reason: Arc<str>,
    },
}

impl Health {
    /// Says why fewer workers serve than should.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Short { reason, .. } | Self::Degraded { reason, .. } => Some(reason),
            Self::Empty => Some(SCALED_TO_ZERO),
            Self::Starting | Self::Ready(_) | Self::Stopped => None,
        }
    }
}

/// What callers, workers and the supervisor of a pool share.
pub(crate) struct PoolInner {
    pub(crate) name: Arc<str>,
    /// What it is made of at present: a reload may change it.
    config: ArcSwap<PoolOptions>,
    /// Of these, what every call asks for.
    pub(crate) bounds: bounds::PoolBounds,
    pub(crate) tools: Arc<Tools>,
    pub(crate) sessions: Sessions,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) oom: OomDetector,
    /// How much its engine says.
    pub(crate) logging: Logging,
    pub(crate) health: watch::Sender<Health>,
    pub(crate) events: EventOrigin,
    pub(crate) admission: Admission,
    /// Whether the supervisor wants to hear of calls that wait.
    pub(crate) wants_attention: AtomicBool,
    pub(crate) attention: Notify,
    /// It is to have no workers, by the last who said how many. Known before the supervisor has heard of it: no call is refused that
    /// was made after somebody asked for workers.
    pub(crate) emptied: AtomicBool,
    /// Somebody may wait for the last call to end.
    pub(crate) done: Notify,
    /// The calls that all workers hold.
    pub(crate) held: HeldCount,
    pub(crate) takes_many: AtomicBool,
    pub(crate) growth: Mutex<Growth>,
    pub(crate) scheduler: Mutex<Scheduler>,
    pub(crate) commands: RwLock<HashMap<Box<str>, Arc<PoolCommand>>>,
}

impl PoolInner {
    pub(crate) fn new(
        config: PoolOptions,
        tools: Arc<Tools>,
        runtime: tokio::runtime::Handle,
        oom: OomDetector,
        logging: Logging,
    ) -> Arc<Self> {
        let config = config.settled();
        Arc::new(Self {
            name: config.name.as_str().into(),
            tools,
            sessions: Sessions::new(config.session_ttl, config.max_sessions),
            runtime,
            oom,
            logging,
            health: watch::Sender::new(Health::Starting),
            events: EventOrigin::default(),
            admission: Admission::new(&config),
            wants_attention: AtomicBool::new(false),
            attention: Notify::new(),
            emptied: AtomicBool::new(config.is_for_nobody()),
            done: Notify::new(),
            held: HeldCount::default(),
            takes_many: AtomicBool::new(false),
            growth: Mutex::default(),
            scheduler: Mutex::new(Scheduler::new(config.queue_limit)),
            commands: RwLock::new(HashMap::new()),
            bounds: bounds::PoolBounds::of(&config),
            config: ArcSwap::from_pointee(config),
        })
    }

    pub(crate) fn config(&self) -> arc_swap::Guard<Arc<PoolOptions>> {
        self.config.load()
    }

    /// New settings, from a reload. What a worker was started with stays as it was until it is replaced.
    pub(crate) fn adopt(&self, config: &Arc<PoolOptions>) {
        self.scheduler().set_limit(config.queue_limit);
        self.bounds.adopt(config);
        self.config.store(Arc::clone(config));
    }

    pub(crate) fn scheduler(&self) -> MutexGuard<'_, Scheduler> {
        self.scheduler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which command leaves how much memory behind.
    pub(crate) fn growth(&self) -> MutexGuard<'_, Growth> {
        self.growth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker takes no more calls; what only it was to serve goes to the others.
    pub(crate) fn retire(self: &Arc<Self>, index: usize) {
        let bound = self.scheduler().retire(index);
        for call in bound {
            self.requeue(call);
        }
    }

    /// A worker gets no more calls, and is not among those that serve, until it is taken back.
    pub(crate) fn set_aside(self: &Arc<Self>, worker: &Arc<Worker>) {
        let bound = self.scheduler().set_aside(worker);
        for call in bound {
            self.requeue(call);
        }
    }

    pub(crate) fn take_back(&self, worker: &Arc<Worker>) {
        self.scheduler().take_back(worker);
        self.feed(worker.index);
    }

    /// A worker that is worn beyond measure gets no more calls, or gets them again after all.
    pub(crate) fn lay_off(self: &Arc<Self>, worker: &Arc<Worker>, rests: bool) {
        if rests {
            let bound = self.scheduler().lay_off(worker);
            for call in bound {
                self.requeue(call);
            }
        } else {
            self.take_back(worker);
        }
    }

    /// Answers all calls that wait: there is nobody to serve them, and nobody comes.
    pub(crate) fn refuse_waiting(&self, reason: &Arc<str>) {
        let waiting = self.scheduler().drain();
        let degraded = self.degraded();
        for call in waiting {
            let (pool, reason) = (self.name.to_string(), NoWorkersReason::Failed(Arc::clone(reason)));
            call.fail(CallError::NoWorkers { pool, reason, degraded: degraded.clone() });
        }
    }

    /// A worker's process was stopped, or goes on: whether it gets calls, and how it stands with the pool, depends on that.
    pub(crate) fn note_halt(&self, worker: &Arc<Worker>) {
        if worker.halted_since().is_some() {
            self.scheduler().pause(worker);
        } else {
            self.scheduler().resume(worker);
            self.feed(worker.index);
        }
        self.attention.notify_one();
    }

    /// Tells a worker that a session it has served is over.
    pub(crate) fn tell_session_end(self: &Arc<Self>, worker: &Arc<Worker>, session: &str) {
        let args = BTreeMap::from([("session", session)]);
        if let Ok(mut told) = self.own_call(worker, "snakepit.session_end", &args) {
            self.runtime.spawn(async move { told.value().await });
        }
    }

    /// Asks a worker's health hook.
    pub(crate) async fn ask_health(self: &Arc<Self>, worker: &Arc<Worker>) -> Result<Value, CallError> {
        let mut waiting = self.own_call(worker, "snakepit.health", &BTreeMap::<&str, &str>::new())?;
        let value = waiting.value().await?;
        value.to_value().map_err(|source| CallError::Result { command: "snakepit.health".into(), source })
    }

    /// A call of the engine's own to one worker, before those of others.
    fn own_call(
        self: &Arc<Self>,
        worker: &Arc<Worker>,
        name: &str,
        args: &BTreeMap<&str, &str>,
    ) -> Result<PendingCall, CallError> {
        let arguments =
            Encoded::encode(args).map_err(|source| CallError::Arguments { command: name.into(), source })?;
        let plan = CallPlan {
            command: self.command(name),
            input: Input::One(arguments),
            // A worker that is busy for long is told late, not never.
            timeout: self.bounds.call_timeout(),
            queue_timeout: self.bounds.call_timeout(),
            priority: i8::MAX,
            extras: None,
            began: None,
            alone: false,
        };
        PendingCall::begin_at(Arc::clone(self), plan, Placement::Only(worker.index))
    }

    /// Gives back what waits, and takes no more calls but nested ones.
    ///
    /// Returns how many calls waited.
    pub(crate) fn close(&self) -> usize {
        let waiting = self.scheduler().close();
        let count = waiting.len();
        for call in waiting {
            call.fail(CallError::Stopped);
        }
        count
    }

    /// Takes no more calls at all: the workers are about to end.
    pub(crate) fn shut(&self) {
        let waiting = self.scheduler().shut();
        for call in waiting {
            call.fail(CallError::Stopped);
        }
    }

    /// Whether it was closed and what was under way is finished, at workers that leave, too.
    pub(crate) fn is_done(&self) -> bool {
        self.scheduler().is_drained() && self.held.calls() == 0
    }

    pub(crate) fn note_if_done(&self, scheduler: &Scheduler) {
        if scheduler.is_drained() && self.held.calls() == 0 {
            self.done.notify_waiters();
        }
    }

    /// Until what was under way when it was closed is finished.
    pub(crate) async fn finished(&self) {
        loop {
            let done = self.done.notified();
            if self.is_done() {
                return;
            }
            done.await;
        }
    }
}

/// The longest that the error of a dead worker's call waits to learn how it died.
pub const AUTOPSY_PATIENCE: Duration = Duration::from_millis(40);
