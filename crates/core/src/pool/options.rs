//! What a pool is made of, with its defaults.

use std::fmt;
#[cfg(feature = "config")]
use std::num::NonZeroUsize;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::adapter::Adapter;
#[cfg(feature = "config")]
use crate::hardware::{GpuChoice, ThreadCount};
use crate::hardware::{Gpus, Threads};
use crate::value::{Encoded, ValueError};
use snakepit_policy::CountedFailures;
use snakepit_policy::{Breaker, Quarantine, Recycling, Restarts, Retry, Sizing, Stuck, Taint};
use snakepit_settings::settings;
#[cfg(feature = "config")]
use snakepit_settings::{ByteSize, HumanTime, SettingsTable};

/// Which worker serves the calls of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Affinity {
    /// The one that served it last if it is free, else any.
    #[default]
    Hint,
    /// The one that served it first; calls wait for it.
    StrictQueue,
    /// The one that served it first; while it is busy, calls fail.
    StrictFailFast,
}

/// What becomes of a strict session whose worker is gone, and with it what that worker had in its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LostSessions {
    /// Another worker serves it from now on; [`Event::SessionMoved`](crate::telemetry::Event::SessionMoved) tells it.
    #[default]
    Move,
    /// Its calls fail with [`CallError::SessionLost`](crate::CallError::SessionLost) until it is ended.
    Fail,
}

/// How long each stage of a cancel may take before the next begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CancelGrace {
    /// For the worker's code to see the flag and stop by itself.
    pub ask: Duration,
    /// For the exception that is raised in the call.
    pub raise: Duration,
    /// Between TERM and KILL to the worker.
    pub terminate: Duration,
}

impl Default for CancelGrace {
    fn default() -> Self {
        Self { ask: Duration::from_secs(1), raise: Duration::from_secs(2), terminate: Duration::from_secs(3) }
    }
}

#[cfg(feature = "config")]
settings! {
    keys of CancelGrace {
        /// For the worker's code to see that the call was given up, and to stop by itself.
        ask: Duration as HumanTime,
        /// For an exception that is raised in the call.
        raise: Duration as HumanTime,
        /// Between TERM and KILL to the worker. It holds for a worker that is replaced, too; for the stop of an engine, see
        /// `[custody]`.
        terminate: Duration as HumanTime,
    }
}

settings! {
    /// The settings of a [`PoolOptions`], which sets them.
    #[derive(Clone, Debug)]
    #[non_exhaustive]
    pub struct PoolSettings {
        /// How many workers there are: twice the number of cores, unless it is set. Example: `workers = 4`.
        @manual workers: usize as NonZeroUsize = cores() * 2,
        /// How many calls a worker does at the same time.
        @manual concurrency: usize as NonZeroUsize = 1,
        /// The fewest and the most calls that a worker does at the same time, in place of `concurrency`: the pool finds the best
        /// number between them by watching how long calls take. Example: `adaptive_concurrency = [1, 16]`.
        @manual adaptive_concurrency: Option<(usize, usize)> = None,
        /// How many workers are started at the same time: four times the number of cores, unless it is set. Example:
        /// `start_batch = 8`.
        @manual start_batch: usize as NonZeroUsize = cores() * 4,
        /// How long a worker may take to get ready.
        @manual start_timeout: Duration as HumanTime = Duration::from_secs(30) => "worker_start_timeout",
        /// How many calls may wait for a worker.
        queue_limit: usize = 1000,
        /// How long a call may wait for a worker.
        queue_timeout: Duration as HumanTime = Duration::from_secs(10),
        /// How long a call may take in all, unless the call says otherwise.
        call_timeout: Duration as HumanTime = Duration::from_mins(5),
        /// How long a stream may take in all, unless the call says otherwise.
        stream_timeout: Duration as HumanTime = Duration::from_mins(15),
        /// Which worker serves a session: `"hint"` (the worker that served it last, if that is free), `"strict_queue"` (only the
        /// worker that served it first; calls wait for it) or `"strict_fail_fast"` (the same worker; while it is busy, calls
        /// fail).
        affinity: Affinity = Affinity::Hint,
        /// What becomes of a strict session whose worker is gone: `"move"` (another worker serves it, and an event tells so) or
        /// `"fail"` (its calls fail until it is ended).
        lost_sessions: LostSessions = LostSessions::Move,
        /// How long a session without calls lives.
        session_ttl: Duration as HumanTime = Duration::from_hours(1),
        /// How many sessions there may be.
        max_sessions: usize = 10_000,
        /// How long each stage of a cancel may take before the next begins.
        cancel_grace: CancelGrace as SettingsTable<CancelGrace> = CancelGrace::default(),
        /// The largest message to or from a worker, in bytes.
        max_frame: usize as ByteSize = 256 << 20,
        /// How many workers are replaced at the same time by recycling or a reload, so how many there may be above the pool's
        /// size meanwhile.
        @manual replace_at_once: usize as NonZeroUsize = 1,
        /// Whether the first worker is started by the first call.
        @manual lazy: bool = false,
        /// For a person with a debugger: whether each call gets a worker of its own, which has the host's terminal (so
        /// `breakpoint()` works), and may take as long as it likes.
        @manual debug: bool = false,
        /// The devices that the workers share, such as `"cuda:0"`. A worker gets the device with the fewest workers, and finds its
        /// name in `SNAKEPIT_DEVICE`.
        @manual devices: Vec<Arc<str>> as Vec<String> = Vec::new(),
        /// GPUs in place of `devices`: `"one-per-worker"` (each worker finds its own in `CUDA_VISIBLE_DEVICES` or
        /// `HIP_VISIBLE_DEVICES`), `"all"`, or a list of those that are shared out, such as [0, 1]. Example:
        /// `gpus = "one-per-worker"`.
        @into gpus: Option<Gpus> as Option<GpuChoice> = None,
        /// How many threads the numeric libraries of a worker use (`OMP_NUM_THREADS` and the like): `"auto"` (the usable cores divided
        /// by the number of workers), a number, or `"off"`. A variable that is set in `env` or in the host's environment wins.
        threads: Threads as ThreadCount = Threads::Shared,
        /// How workers that fail are replaced, and when the pool counts as degraded.
        restarts: Restarts = Restarts::default(),
        /// How calls that are marked as idempotent are made again when their worker is lost.
        retry: Retry = Retry::default(),
        /// When a call that keeps killing workers is refused, known by its command and its arguments.
        @manual quarantine: Quarantine = Quarantine::default(),
        /// When calls are refused because too many of the last ones lost their worker or their time: those of the pool, and those of
        /// each command. Off, unless it is set.
        @manual breaker: Option<Breaker> = None,
        /// What is done with the device, or the slot, of a worker that died of it.
        taint: Taint = Taint::default(),
        /// When a worker that has a call and shows no sign of life counts as stuck, and what is done then.
        stuck: Stuck = Stuck::default(),
    }
    also {
        /// Whether the user has set `workers`; otherwise other settings may decide it.
        workers_are_set: bool = false,
        /// Calls that each worker must answer before it serves.
        warm_up: Vec<WarmUp> = Vec::new(),
        /// When a worker is replaced.
        recycling: Recycling = Recycling::default(),
        /// Set if the size follows the load.
        sizing: Option<Sizing> = None,
    }
    setters on PoolOptions.settings
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A pool to be started: workers of one kind, and how calls reach them.
///
/// ```
/// use std::time::Duration;
/// use snakepit::python;
///
/// let pool = python("worker.py").name("math").workers(4).call_timeout(Duration::from_secs(10));
/// ```
#[derive(Clone)]
#[must_use]
pub struct PoolOptions {
    pub(crate) name: String,
    pub(crate) adapter: Arc<dyn Adapter>,
    pub(crate) settings: PoolSettings,
    /// How many threads each worker is to use; found when the pool is started.
    pub(crate) thread_share: Option<usize>,
}

impl Deref for PoolOptions {
    type Target = PoolSettings;

    fn deref(&self) -> &PoolSettings {
        &self.settings
    }
}

impl DerefMut for PoolOptions {
    fn deref_mut(&mut self) -> &mut PoolSettings {
        &mut self.settings
    }
}

/// A call that a worker must answer before it serves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WarmUp {
    /// The command.
    pub command: String,
    /// Its arguments.
    pub arguments: Result<Encoded, ValueError>,
}

impl fmt::Debug for PoolOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolOptions")
            .field("name", &self.name)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

impl PoolOptions {
    /// A pool of workers of any kind.
    pub fn new(name: impl Into<String>, adapter: impl Adapter) -> Self {
        Self {
            name: name.into(),
            adapter: Arc::new(adapter),
            settings: PoolSettings::default(),
            thread_share: None,
        }
    }

    /// The same pool with these settings.
    pub fn settings(mut self, settings: PoolSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Its name.
    pub fn pool_name(&self) -> &str {
        &self.name
    }

    /// Its adapter.
    pub fn adapter(&self) -> &Arc<dyn Adapter> {
        &self.adapter
    }

    /// The same pool with another adapter around its own.
    pub fn wrap_adapter(mut self, wrap: impl FnOnce(Arc<dyn Adapter>) -> Arc<dyn Adapter>) -> Self {
        self.adapter = wrap(self.adapter);
        self
    }

    /// The name that calls use to choose it.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How many workers there are; twice the number of cores unless it is set.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self.workers_are_set = true;
        self
    }

    /// How many calls a worker does at the same time; 1 unless it is set.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.adaptive_concurrency = None;
        self.concurrency = concurrency.max(1);
        self
    }

    /// Finds out how many calls a worker should do at the same time, between these two, by watching how long calls take.
    ///
    /// It helps where calls slow each other down: they then wait in the pool's queue, where priorities and other workers
    /// count, and not inside a worker.
    pub fn adaptive_concurrency(mut self, between: std::ops::RangeInclusive<usize>) -> Self {
        let most = (*between.end()).max(1);
        self.adaptive_concurrency = Some(((*between.start()).clamp(1, most), most));
        self.concurrency = most;
        self
    }

    /// How long a worker may take to get ready; 30 s unless it is set.
    pub fn worker_start_timeout(mut self, timeout: Duration) -> Self {
        self.start_timeout = timeout;
        self
    }

    /// Shortens the time that a worker may take to get ready, if it is longer: for a host that waits no longer itself, and
    /// gets an error that shows what the worker printed.
    pub fn worker_start_timeout_at_most(mut self, timeout: Duration) -> Self {
        self.start_timeout = self.start_timeout.min(timeout);
        self
    }

    /// How many workers are started at the same time; four times the number of cores unless it is set.
    pub fn start_batch(mut self, batch: usize) -> Self {
        self.start_batch = batch.max(1);
        self
    }

    /// A call that each worker must answer before it counts as ready: to load a model, or to fill a cache. Several are
    /// made in the order in which they were given.
    pub fn warm_up(mut self, command: impl Into<String>, args: impl Serialize) -> Self {
        self.warm_up.push(WarmUp { command: command.into(), arguments: Encoded::encode_args(&args) });
        self
    }

    /// Starts no worker before the first call.
    pub fn lazy(mut self) -> Self {
        self.lazy = true;
        self
    }

    /// For a person with a debugger: each call gets a worker of its own, started for it and ended after it, which has
    /// the host's standard input, output and error (so `breakpoint()` works), and calls may take as long as they like.
    pub fn debug(mut self) -> Self {
        self.debug = true;
        self
    }

    /// When workers are replaced although nothing is wrong with them; never unless it is set.
    pub fn recycling(mut self, recycling: Recycling) -> Self {
        self.recycling = recycling;
        self
    }

    /// Lets the load decide how many workers there are; [`PoolOptions::workers`] no longer does.
    pub fn sizing(mut self, sizing: Sizing) -> Self {
        self.sizing = Some(sizing);
        self
    }

    /// The devices that its workers share, such as `cuda:0`. Each worker is given the one with the fewest workers, and
    /// finds its name in `SNAKEPIT_DEVICE`; the number of its slot is in `SNAKEPIT_SLOT`, devices or not.
    pub fn devices(mut self, devices: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Self {
        self.devices = devices.into_iter().map(Into::into).collect();
        self
    }

    /// When a call that keeps killing workers is refused; `None` if it never is.
    pub fn quarantine(mut self, quarantine: impl Into<Option<Quarantine>>) -> Self {
        self.quarantine = quarantine.into().unwrap_or_else(Quarantine::off);
        self
    }

    /// When calls are refused because the last ones lost their workers or their time, those of the pool and those of each
    /// command; never unless it is set.
    pub fn breaker(mut self, breaker: impl Into<Option<Breaker>>) -> Self {
        self.breaker = breaker.into();
        self
    }

    /// How many workers are replaced at the same time by recycling or a reload, so how many there may be above the pool's
    /// size meanwhile; 1 unless it is set.
    pub fn replace_at_once(mut self, workers: usize) -> Self {
        self.replace_at_once = workers.max(1);
        self
    }

    /// For a pool whose calls are evaluated: whatever they do to its workers is their result, and is held against nobody. A worker
    /// that dies is replaced at once however many did before, no call is refused for the deaths of others, and no device is
    /// tainted. Only workers that fail before they are given a call count as failed, so that those that no longer start
    /// are noticed.
    pub fn for_evaluation(mut self) -> Self {
        self.restarts.counted = CountedFailures::BeforeFirstCall;
        self.taint.lasts = Duration::ZERO;
        self.quarantine(None).breaker(None)
    }

    /// Whether it is to have no workers, and neither the load nor a call changes that.
    pub(crate) fn is_for_nobody(&self) -> bool {
        self.workers == 0 && self.sizing.is_none()
    }

    /// The pool as it is started: debugging overrides some settings.
    pub(crate) fn settled(mut self) -> Self {
        if self.debug {
            const LONG: Duration = Duration::from_hours(24 * 365);
            self.lazy = true;
            self.sizing = None;
            self = self.concurrency(1);
            (self.call_timeout, self.stream_timeout, self.queue_timeout) = (LONG, LONG, LONG);
            self.start_timeout = LONG;
        }
        self
    }
}
