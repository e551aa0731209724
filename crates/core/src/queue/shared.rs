//! The state of a pool that callers, workers and the supervisor share.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};

use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::admission::Admission;
use super::call_timer::ListedCalls;
use super::scheduler::open_workers::OpenWorkers;
use super::scheduler::{LockedScheduler, Scheduler};
use super::session::Sessions;
use crate::call::{CallError, NoWorkersReason, PoolCommand, SCALED_TO_ZERO};
use crate::logging::Logging;
use crate::options::{CallLimits, PoolOptions};
use crate::sharded::ShardedArc;
use crate::telemetry::EventOrigin;
use crate::tool::Tools;
use crate::worker::{OomDetector, Worker};
use snakepit_policy::memory_growth::Growth;

/// The state of a pool's workers.
///
/// ```
/// use snakepit::Snakepit;
/// use snakepit::adapter::Mock;
/// use snakepit::pool::PoolHealth;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pit = Snakepit::builder().pool(snakepit::mock(Mock::new()).workers(2)).start().await?;
/// let health = pit.pools()[0].health().borrow().clone();
/// match health {
///     PoolHealth::Ready(workers) => assert_eq!(workers, 2),
///     PoolHealth::Short { serving, reason } => eprintln!("only {serving} workers serve: {reason}"),
///     other => eprintln!("{other:?}: {}", other.reason().unwrap_or("no worker serves")),
/// }
/// # pit.stop().await; Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PoolHealth {
    /// The first workers are starting.
    Starting,
    /// As many workers serve as were asked for. The field is their number.
    Ready(usize),
    /// The pool was told to have no workers.
    Empty,
    /// No worker serves any more.
    Stopped,
    /// Fewer workers serve than were asked for.
    Short {
        /// The number of workers that serve.
        serving: usize,
        /// Why the last worker could not be started, or died.
        reason: Arc<str>,
    },
    /// Workers fail again and again, and only one is tried at a time.
    Degraded {
        /// The number of workers that serve.
        serving: usize,
        /// Why the last worker could not be started, or died.
        reason: Arc<str>,
    },
}

impl PoolHealth {
    /// Returns the name of the state, as files and pages show it.
    fn name(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready(_) => "ready",
            Self::Empty => "empty",
            Self::Stopped => "stopped",
            Self::Short { .. } => "short",
            Self::Degraded { .. } => "degraded",
        }
    }

    /// Returns why fewer workers serve than should.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Short { reason, .. } | Self::Degraded { reason, .. } => Some(reason),
            Self::Empty => Some(SCALED_TO_ZERO),
            Self::Starting | Self::Ready(_) | Self::Stopped => None,
        }
    }
}

/// Two fields: `health`, the name of the state, and `reason`.
impl Serialize for PoolHealth {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("PoolHealth", 2)?;
        fields.serialize_field("health", self.name())?;
        fields.serialize_field("reason", &self.reason())?;
        fields.end()
    }
}

/// What callers, workers and the supervisor of a pool share.
pub(crate) struct PoolInner {
    pub(crate) name: Arc<str>,
    /// The current options. A reload may change them.
    config: ArcSwap<PoolOptions>,
    /// Those options that every call needs.
    pub(crate) call_limits: CallLimits,
    pub(crate) tools: Arc<Tools>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) oom: OomDetector,
    /// How much the engine logs.
    pub(crate) logging: Logging,
    pub(crate) health: watch::Sender<PoolHealth>,
    pub(crate) events: EventOrigin,
    pub(crate) admission: Admission,
    /// Whether the supervisor wants to know of waiting calls.
    pub(crate) wants_attention: AtomicBool,
    pub(crate) attention: Notify,
    /// Whether the last request for a number of workers asked for none. Set before the supervisor gets the request, so
    /// that no call is rejected that was made after someone asked for workers.
    pub(crate) emptied: AtomicBool,
    /// Notifies the tasks that wait for the last call to end.
    pub(crate) done: Notify,
    pub(crate) takes_many: AtomicBool,
    pub(crate) growth: Mutex<Growth>,
    /// The calls that have no timer yet.
    pub(crate) listed: ListedCalls,
    scheduler: Mutex<Scheduler>,
    /// The places that calls take without the scheduler's lock.
    pub(crate) open: Arc<OpenWorkers>,
    pub(super) commands: ArcSwap<HashMap<Box<str>, ShardedArc<PoolCommand>>>,
    /// The pools of the same engine, in order.
    engine: OnceLock<Vec<Weak<PoolInner>>>,
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
        let open = Arc::<OpenWorkers>::default();
        Arc::new(Self {
            name: config.name.as_str().into(),
            tools,
            sessions: Arc::new(Sessions::new(config.session_ttl, config.max_sessions)),
            runtime,
            oom,
            logging,
            health: watch::Sender::new(PoolHealth::Starting),
            events: EventOrigin::default(),
            admission: Admission::new(&config),
            wants_attention: AtomicBool::new(false),
            attention: Notify::new(),
            emptied: AtomicBool::new(config.is_for_nobody()),
            done: Notify::new(),
            takes_many: AtomicBool::new(false),
            growth: Mutex::default(),
            scheduler: Mutex::new(Scheduler::new(config.queue_limit, Arc::clone(&open))),
            open,
            listed: ListedCalls::default(),
            commands: ArcSwap::default(),
            engine: OnceLock::new(),
            call_limits: CallLimits::of(&config),
            config: ArcSwap::from_pointee(config),
        })
    }

    /// Tells pools that they belong to the same engine.
    pub(crate) fn gather_engine(pools: &[Arc<Self>]) {
        for pool in pools {
            let _ = pool.engine.set(pools.iter().map(Arc::downgrade).collect());
        }
    }

    /// Finds a pool of the same engine by its name.
    pub(crate) fn find(&self, name: &str) -> Result<Arc<Self>, CallError> {
        let pools = || self.engine.get().into_iter().flatten().filter_map(Weak::upgrade);
        pools().find(|pool| &*pool.name == name).ok_or_else(|| {
            let known: Vec<_> = pools().map(|pool| pool.name.to_string()).collect();
            CallError::NoSuchPool { name: name.into(), known: known.join(", ") }
        })
    }

    pub(crate) fn config(&self) -> arc_swap::Guard<Arc<PoolOptions>> {
        self.config.load()
    }

    /// Adopts new settings after a reload. A worker keeps what it was started with until it is replaced.
    pub(crate) fn adopt(&self, config: &Arc<PoolOptions>) {
        self.scheduler().set_limit(config.queue_limit);
        self.call_limits.adopt(config);
        self.config.store(Arc::clone(config));
    }

    pub(crate) fn scheduler(&self) -> LockedScheduler<'_> {
        LockedScheduler(self.scheduler.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts the calls that workers have, even those that leave. Each call of a batch counts.
    pub(crate) fn in_flight(&self) -> usize {
        self.scheduler().in_flight()
    }

    /// Returns the record of how much memory each command leaves behind.
    pub(crate) fn growth(&self) -> MutexGuard<'_, Growth> {
        self.growth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops giving calls to a worker. Calls that only this worker could serve go to the others.
    pub(crate) fn retire(self: &Arc<Self>, index: usize) {
        let bound = self.scheduler().retire(index);
        for call in bound {
            self.requeue(call);
        }
    }

    /// Stops giving calls to a worker, and stops counting it among those that serve, until it is taken back.
    pub(crate) fn drain_replaced(self: &Arc<Self>, worker: &Arc<Worker>) {
        let bound = self.scheduler().drain_replaced(worker);
        for call in bound {
            self.requeue(call);
        }
    }

    pub(crate) fn end_drain(self: &Arc<Self>, worker: &Arc<Worker>) {
        self.scheduler().end_drain(worker);
        self.feed(worker.index);
    }

    /// Stops giving calls to a worker that is far beyond its limits if `rests`, otherwise gives it calls again.
    pub(crate) fn drain_worn(self: &Arc<Self>, worker: &Arc<Worker>, rests: bool) {
        if rests {
            let bound = self.scheduler().drain_worn(worker);
            for call in bound {
                self.requeue(call);
            }
        } else {
            self.end_drain(worker);
        }
    }

    /// Fails all waiting calls, because no worker serves them and none will come.
    pub(crate) fn refuse_waiting(&self, reason: &Arc<str>) {
        let waiting = self.scheduler().drain();
        let degraded = self.degraded();
        for call in waiting {
            let (pool, reason) = (self.name.to_string(), NoWorkersReason::Failed(Arc::clone(reason)));
            call.fail(CallError::NoWorkers { pool, reason, degraded: degraded.clone() });
        }
    }

    /// Pauses or resumes a worker whose process was stopped or continues, and wakes the supervisor, because the health
    /// of the pool depends on it.
    pub(crate) fn note_halt(self: &Arc<Self>, worker: &Arc<Worker>) {
        if worker.halted_since().is_some() {
            let moved = self.scheduler().pause(worker);
            if let Some(call) = moved {
                self.hand_over(call);
            }
        } else {
            self.scheduler().resume(worker);
            self.feed(worker.index);
        }
        self.attention.notify_one();
    }

    /// Fails the waiting calls, and from now on takes only nested calls.
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

    /// Fails the waiting calls and takes no more at all, because the workers are about to end.
    pub(crate) fn shut(&self) {
        let waiting = self.scheduler().shut();
        for call in waiting {
            call.fail(CallError::Stopped);
        }
    }

    /// Reports whether the pool was closed and all calls under way have finished, even at workers that leave.
    pub(crate) fn is_done(&self) -> bool {
        self.scheduler().is_done()
    }

    pub(crate) fn note_if_done(&self, scheduler: &Scheduler) {
        if scheduler.is_done() {
            self.done.notify_waiters();
        }
    }

    /// Waits until the pool is closed and all calls under way have finished.
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
