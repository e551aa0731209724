//! A pool: workers of one kind behind a queue.
//!
//! Owns who serves which call ([`scheduler`], [`placing`]), which calls travel together ([`batch`]), which belong together ([`session`]) and how many workers there are
//! ([`crew`]). Knows workers only through [`crate::adapter::Handle`]: no adapter, no protocol.

mod admission;
mod batch;
mod bounds;
mod command;
mod config;
mod crew;
mod directory;
mod estimate;
mod event;
mod gathering;
mod handing;
mod outcomes;
mod placing;
mod queue_key;
mod reference;
mod scheduler;
mod session;
mod slot;
mod stats;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};

pub(crate) use admission::Account;
pub use admission::{CircuitScope, CircuitTable};
pub(crate) use command::Command;
pub use config::{Affinity, CancelGrace, LostSessions, Pool};
pub(crate) use crew::{Crew, prepare};
pub use crew::{ReloadError, Reloaded};
pub(crate) use directory::Directory;
pub use event::{PoolEvent, PoolEvents};
pub(crate) use gathering::Otherwise;
pub(crate) use outcomes::Fate;
pub use outcomes::Outcomes;
pub(crate) use placing::{Limit, Placed, Whereabouts, Wish};
pub(crate) use queue_key::QueueKey;
pub use reference::{PoolRef, PoolStatus, WorkerStatus};
pub use session::SessionInfo;
pub(crate) use session::{InUse, StoreError};
pub(crate) use slot::Slot;
pub use stats::{CallAtWork, CommandGrowth, PoolStats, TaintedPlace, WorkerStats};

use crate::call::waiting::{Plan, Waiting};
use crate::call::{CallError, CallId, Input};
use crate::logging::Logging;
use crate::supervision::growth::Growth;
use crate::tool::Tools;
use crate::value::{Encoded, Value};
use crate::worker::{Berth, OomTeller};
use scheduler::Scheduler;
use session::Sessions;

/// How it stands with a pool's workers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Health {
    Starting,
    /// As many workers serve as were asked for: so many.
    Ready(usize),
    /// It was told to have no workers.
    Empty,
    /// None does any more.
    Stopped,
    /// Fewer do; why the last one could not be started, or died.
    Short {
        serving: usize,
        reason: Arc<str>,
    },
    /// They fail again and again, and only one at a time is tried.
    Degraded {
        serving: usize,
        reason: Arc<str>,
    },
}

/// What is said of a pool that was told to have no workers.
pub(crate) const EMPTY: &str = "it was scaled to 0 workers: call scale(n) to have some";

/// What callers, workers and the crew of a pool share.
pub(crate) struct Shared {
    pub(crate) name: Arc<str>,
    /// What it is made of at present: a reload may change it.
    config: ArcSwap<Pool>,
    /// Of these, what every call asks for.
    pub(crate) bounds: bounds::Bounds,
    pub(crate) tools: Arc<Tools>,
    pub(crate) sessions: Sessions,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) oom: OomTeller,
    /// How much its engine says.
    pub(crate) logging: Logging,
    pub(crate) health: watch::Sender<Health>,
    events: event::Announcer,
    admission: admission::Admission,
    /// Whether the crew wants to hear of calls that wait.
    pub(crate) wants_attention: AtomicBool,
    pub(crate) attention: Notify,
    /// It is to have no workers, by the last who said how many. Known before the crew has heard of it: no call is refused that
    /// was made after somebody asked for workers.
    emptied: AtomicBool,
    /// Somebody may wait for the last call to end.
    done: Notify,
    /// Calls that workers hold.
    in_hand: AtomicUsize,
    /// Calls beyond the first of each batch that workers hold.
    pub(crate) aboard: AtomicUsize,
    takes_many: AtomicBool,
    growth: Mutex<Growth>,
    scheduler: Mutex<Scheduler>,
    commands: RwLock<HashMap<Box<str>, Arc<Command>>>,
}

/// Numbers of calls, unique in the process: a call keeps its number wherever it goes.
static NEXT_CALL: AtomicU64 = AtomicU64::new(1);

pub(crate) fn next_call_id() -> CallId {
    CallId(NEXT_CALL.fetch_add(1, Ordering::Relaxed))
}

impl Shared {
    pub(crate) fn new(
        config: Pool,
        tools: Arc<Tools>,
        runtime: tokio::runtime::Handle,
        oom: OomTeller,
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
            events: event::Announcer::default(),
            admission: admission::Admission::new(&config),
            wants_attention: AtomicBool::new(false),
            attention: Notify::new(),
            emptied: AtomicBool::new(config.is_for_nobody()),
            done: Notify::new(),
            in_hand: AtomicUsize::new(0),
            aboard: AtomicUsize::new(0),
            takes_many: AtomicBool::new(false),
            growth: Mutex::default(),
            scheduler: Mutex::new(Scheduler::new(config.queue_limit)),
            commands: RwLock::new(HashMap::new()),
            bounds: bounds::Bounds::of(&config),
            config: ArcSwap::from_pointee(config),
        })
    }

    pub(crate) fn config(&self) -> arc_swap::Guard<Arc<Pool>> {
        self.config.load()
    }

    /// New settings, from a reload. What a worker was started with stays as it was until it is replaced.
    fn adopt(&self, config: &Arc<Pool>) {
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

    /// How many calls workers hold.
    pub(crate) fn in_hand(&self) -> usize {
        self.in_hand.load(Ordering::Relaxed) + self.aboard.load(Ordering::Relaxed)
    }

    /// A worker takes no more calls; what only it was to serve goes to the others.
    pub(crate) fn retire(self: &Arc<Self>, post: usize) {
        let bound = self.scheduler().retire(post);
        for call in bound {
            self.requeue(call);
        }
    }

    /// A worker gets no more calls, and is not among those that serve, until it is taken back.
    fn set_aside(self: &Arc<Self>, berth: &Arc<Berth>) {
        let bound = self.scheduler().set_aside(berth);
        for call in bound {
            self.requeue(call);
        }
    }

    fn take_back(&self, berth: &Arc<Berth>) {
        self.scheduler().take_back(berth);
        self.feed(berth.post);
    }

    /// A worker that is worn beyond measure gets no more calls, or gets them again after all.
    fn lay_off(self: &Arc<Self>, berth: &Arc<Berth>, rests: bool) {
        if rests {
            let bound = self.scheduler().lay_off(berth);
            for call in bound {
                self.requeue(call);
            }
        } else {
            self.take_back(berth);
        }
    }

    /// Answers all calls that wait: there is nobody to serve them, and nobody comes.
    fn refuse_waiting(&self, reason: &str) {
        let waiting = self.scheduler().drain();
        let degraded = self.degraded();
        for call in waiting {
            let (pool, reason) = (self.name.to_string(), reason.to_owned());
            call.fail(CallError::NoWorkers { pool, reason, degraded: degraded.clone() });
        }
    }

    /// A worker's process was stopped, or goes on: whether it gets calls, and how it stands with the pool, depends on that.
    pub(crate) fn note_halt(&self, berth: &Arc<Berth>) {
        if berth.halted_since().is_some() {
            self.scheduler().pause(berth);
        } else {
            self.scheduler().resume(berth);
            self.feed(berth.post);
        }
        self.attention.notify_one();
    }

    /// Tells a worker that a session it has served is over.
    pub(crate) fn tell_session_end(self: &Arc<Self>, berth: &Arc<Berth>, session: &str) {
        let args = BTreeMap::from([("session", session)]);
        if let Ok(mut told) = self.own_call(berth, "snakepit.session_end", &args) {
            self.runtime.spawn(async move { told.value().await });
        }
    }

    /// Asks a worker's health hook.
    pub(crate) async fn ask_health(self: &Arc<Self>, berth: &Arc<Berth>) -> Result<Value, CallError> {
        let mut waiting = self.own_call(berth, "snakepit.health", &BTreeMap::<&str, &str>::new())?;
        let value = waiting.value().await?;
        value.to_value().map_err(|source| CallError::Result { command: "snakepit.health".into(), source })
    }

    /// A call of the engine's own to one worker, before those of others.
    fn own_call(
        self: &Arc<Self>,
        berth: &Arc<Berth>,
        name: &str,
        args: &BTreeMap<&str, &str>,
    ) -> Result<Waiting, CallError> {
        let arguments =
            Encoded::encode(args).map_err(|source| CallError::Arguments { command: name.into(), source })?;
        let plan = Plan {
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
        Waiting::begin_at(Arc::clone(self), plan, Wish::Only(berth.post))
    }

    /// Gives back what waits, and takes no more calls but nested ones.
    pub(crate) fn close(&self) {
        let waiting = self.scheduler().close();
        for call in waiting {
            call.fail(CallError::Stopped);
        }
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
        self.scheduler().is_drained() && self.in_hand.load(Ordering::SeqCst) == 0
    }

    fn note_if_done(&self, scheduler: &Scheduler) {
        if scheduler.is_drained() && self.in_hand.load(Ordering::SeqCst) == 0 {
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
pub(crate) const AUTOPSY_PATIENCE: Duration = Duration::from_millis(40);
