//! The options of a pool, with their defaults.

mod call_limits;
mod cancel;
mod hardware;

use std::fmt;
#[cfg(feature = "config")]
use std::num::NonZeroUsize;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use call_limits::CallLimits;
pub use cancel::CancelGrace;
pub(crate) use hardware::equipped;

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
    /// The worker that served the session last, if that is free, otherwise any worker.
    #[default]
    Hint,
    /// Only the worker that served the session first. Calls wait for it.
    StrictQueue,
    /// Only the worker that served the session first. Calls fail while it is busy.
    StrictFailFast,
}

/// What happens to a strict session whose worker is gone, and with it what the worker had in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LostSessions {
    /// Another worker serves the session from now on, and
    /// [`Event::SessionMoved`](crate::telemetry::Event::SessionMoved) is emitted.
    #[default]
    Move,
    /// The calls of the session fail with [`CallError::SessionLost`](crate::CallError::SessionLost) until the session
    /// is ended.
    Fail,
}

settings! {
    /// The settings of a [`PoolOptions`], which has a setter for each.
    #[derive(Clone, Debug)]
    pub struct PoolSettings {
        /// The number of workers. Unset: twice the number of cores. Example: `workers = 4`.
        @manual workers: usize as NonZeroUsize = cores() * 2,
        /// The number of calls that a worker runs at the same time.
        @manual concurrency: usize as NonZeroUsize = 1,
        /// The smallest and the largest number of calls that a worker runs at the same time, instead of `concurrency`.
        /// The pool finds the best number between them by watching how long calls take. Example:
        /// `adaptive_concurrency = [1, 16]`.
        @manual adaptive_concurrency: Option<(usize, usize)> = None,
        /// The number of workers that are started at the same time. Unset: four times the number of cores. Example:
        /// `start_batch = 8`.
        @manual start_batch: usize as NonZeroUsize = cores() * 4,
        /// How long a worker may take to get ready.
        @manual start_timeout: Duration as HumanTime = Duration::from_secs(30) => "worker_start_timeout",
        /// The largest number of calls that may wait for a worker.
        queue_limit: usize = 1000,
        /// How long a call may wait for a worker.
        queue_timeout: Duration as HumanTime = Duration::from_secs(10),
        /// How long a call may take in total, unless the call sets its own timeout.
        call_timeout: Duration as HumanTime = Duration::from_mins(5),
        /// How long a stream may take in total, unless the call sets its own timeout.
        stream_timeout: Duration as HumanTime = Duration::from_mins(15),
        /// Which worker serves a session: `"hint"` (the worker that served it last, if that is free), `"strict_queue"`
        /// (only the worker that served it first; calls wait for it) or `"strict_fail_fast"` (the same worker; calls
        /// fail while it is busy).
        affinity: Affinity = Affinity::Hint,
        /// What happens to a strict session whose worker is gone: `"move"` (another worker serves it, and an event
        /// reports that) or `"fail"` (its calls fail until it is ended).
        lost_sessions: LostSessions = LostSessions::Move,
        /// How long a session without calls lives.
        session_ttl: Duration as HumanTime = Duration::from_hours(1),
        /// The largest number of sessions.
        max_sessions: usize = 10_000,
        /// How long each stage of a cancel may take before the next begins.
        cancel_grace: CancelGrace as SettingsTable<CancelGrace> = CancelGrace::default(),
        /// The largest message to or from a worker, in bytes.
        max_frame: usize as ByteSize = 256 << 20,
        /// The number of workers that recycling or a reload replaces at the same time. The pool may have this many
        /// workers above its size meanwhile.
        @manual replace_at_once: usize as NonZeroUsize = 1,
        /// Whether the first call starts the first worker.
        @manual lazy: bool = false,
        /// Whether each call gets a worker of its own, for use with a debugger. The worker has the host's terminal (so
        /// `breakpoint()` works), and the call may take as long as it likes.
        @manual debug: bool = false,
        /// The devices that the workers share, such as `"cuda:0"`. A worker gets the device with the fewest workers,
        /// and finds its name in `SNAKEPIT_DEVICE`.
        @manual devices: Vec<Arc<str>> as Vec<String> = Vec::new(),
        /// The GPUs of the workers, instead of `devices`: `"one-per-worker"` (each worker finds its own in
        /// `CUDA_VISIBLE_DEVICES` or `HIP_VISIBLE_DEVICES`), `"all"`, or a list of GPUs that the workers share, such as
        /// [0, 1]. Example: `gpus = "one-per-worker"`.
        @into gpus: Option<Gpus> as Option<GpuChoice> = None,
        /// The number of threads that the numeric libraries of a worker use (`OMP_NUM_THREADS` and the like): `"auto"`
        /// (the usable cores divided by the number of workers), a number, or `"off"`. A variable that is set in `env`
        /// or in the host's environment takes precedence.
        threads: Threads as ThreadCount = Threads::Shared,
        /// How failed workers are replaced, and when the pool counts as degraded.
        restarts: Restarts = Restarts::default(),
        /// How idempotent calls are repeated when their worker is lost.
        retry: Retry = Retry::default(),
        /// When a call that keeps killing workers is rejected. A call is recognized by its command and its arguments.
        @manual quarantine: Quarantine = Quarantine::default(),
        /// When calls are rejected because too many of the last ones lost their worker or ran out of time. Applies to
        /// the pool as a whole, and to each command by itself. Unset: never.
        @manual breaker: Option<Breaker> = None,
        /// What happens to the device or slot of a worker that died because of it.
        taint: Taint = Taint::default(),
        /// When a worker that has a call and shows no sign of life counts as stuck, and what happens then.
        stuck: Stuck = Stuck::default(),
    }
    also {
        /// Whether the user has set `workers`. If not, other settings may decide the number.
        workers_are_set: bool = false,
        /// The calls that each worker must answer before it serves.
        warm_up: Vec<WarmUp> = Vec::new(),
        /// When a worker is replaced.
        recycling: Recycling = Recycling::default(),
        /// Set if the number of workers follows the load.
        sizing: Option<Sizing> = None,
    }
    setters on PoolOptions.settings
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A pool that is about to be started: workers of one kind, and how calls reach them.
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
    /// The number of threads that each worker should use, determined when the pool starts.
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
    /// The arguments of the call.
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
    /// Describes a pool of workers of any kind.
    pub fn new(name: impl Into<String>, adapter: impl Adapter) -> Self {
        Self {
            name: name.into(),
            adapter: Arc::new(adapter),
            settings: PoolSettings::default(),
            thread_share: None,
        }
    }

    /// Replaces all settings.
    pub fn settings(mut self, settings: PoolSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Returns the name of the pool.
    pub fn pool_name(&self) -> &str {
        &self.name
    }

    /// Returns the adapter of the pool.
    pub fn adapter(&self) -> &Arc<dyn Adapter> {
        &self.adapter
    }

    /// Wraps the adapter of the pool in another one.
    pub fn wrap_adapter(mut self, wrap: impl FnOnce(Arc<dyn Adapter>) -> Arc<dyn Adapter>) -> Self {
        self.adapter = wrap(self.adapter);
        self
    }

    /// Sets the name by which calls choose the pool.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the number of workers. The default is twice the number of cores.
    ///
    /// ```
    /// use snakepit::python;
    ///
    /// let pool = python("worker.py").workers(4);
    /// ```
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self.workers_are_set = true;
        self
    }

    /// Sets the number of calls that a worker runs at the same time. The default is 1.
    ///
    /// ```
    /// use snakepit::python;
    ///
    /// // Each of the 2 workers runs up to 16 coroutines at a time.
    /// let pool = python("worker.py").workers(2).concurrency(16);
    /// ```
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.adaptive_concurrency = None;
        self.concurrency = concurrency.max(1);
        self
    }

    /// Lets the pool find the best number of calls that a worker runs at the same time, within this range, by watching
    /// how long calls take.
    ///
    /// This helps if calls slow each other down. They then wait in the pool's queue, where priorities count and other
    /// workers can take them, instead of inside a worker.
    ///
    /// ```
    /// use snakepit::python;
    ///
    /// let pool = python("worker.py").adaptive_concurrency(1..=32);
    /// ```
    pub fn adaptive_concurrency(mut self, between: std::ops::RangeInclusive<usize>) -> Self {
        let most = (*between.end()).max(1);
        self.adaptive_concurrency = Some(((*between.start()).clamp(1, most), most));
        self.concurrency = most;
        self
    }

    /// Sets how long a worker may take to get ready. The default is 30 s.
    pub fn worker_start_timeout(mut self, timeout: Duration) -> Self {
        self.start_timeout = timeout;
        self
    }

    /// Limits the time that a worker may take to get ready. A host that itself waits no longer than that gets an error
    /// that shows what the worker printed.
    pub fn worker_start_timeout_at_most(mut self, timeout: Duration) -> Self {
        self.start_timeout = self.start_timeout.min(timeout);
        self
    }

    /// Sets the number of workers that are started at the same time. The default is four times the number of cores.
    pub fn start_batch(mut self, batch: usize) -> Self {
        self.start_batch = batch.max(1);
        self
    }

    /// Adds a call that each worker must answer before it serves, for example to load a model or to fill a cache.
    /// Several calls are made in the order in which they were added.
    ///
    /// ```
    /// use snakepit::{args, python};
    ///
    /// let pool = python("worker.py").warm_up("load", args! { model: "small" });
    /// ```
    pub fn warm_up(mut self, command: impl Into<String>, args: impl Serialize) -> Self {
        self.warm_up.push(WarmUp { command: command.into(), arguments: Encoded::encode_args(&args) });
        self
    }

    /// Starts no worker before the first call.
    pub fn lazy(mut self) -> Self {
        self.lazy = true;
        self
    }

    /// Prepares the pool for a debugger. Each call gets a worker of its own, which is started for the call and ends
    /// after it. The worker has the host's standard input, output and error (so `breakpoint()` works), and calls may
    /// take as long as they like.
    pub fn debug(mut self) -> Self {
        self.debug = true;
        self
    }

    /// Sets when healthy workers are replaced. The default is never.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use snakepit::policy::Recycling;
    /// use snakepit::python;
    ///
    /// let pool = python("worker.py").recycling(Recycling::default().max_requests(10_000).ttl(Duration::from_hours(6)));
    /// ```
    pub fn recycling(mut self, recycling: Recycling) -> Self {
        self.recycling = recycling;
        self
    }

    /// Lets the number of workers follow the load, instead of [`PoolOptions::workers`].
    ///
    /// ```
    /// use snakepit::policy::Sizing;
    /// use snakepit::python;
    ///
    /// let pool = python("worker.py").sizing(Sizing::between(1, 8));
    /// ```
    pub fn sizing(mut self, sizing: Sizing) -> Self {
        self.sizing = Some(sizing);
        self
    }

    /// Sets the devices that the workers share, such as `cuda:0`. Each worker gets the device with the fewest workers,
    /// and finds its name in `SNAKEPIT_DEVICE`. With or without devices, `SNAKEPIT_SLOT` has the number of the worker's
    /// slot.
    ///
    /// ```
    /// use snakepit::python;
    ///
    /// let pool = python("worker.py").workers(4).devices(["cuda:0", "cuda:1"]);
    /// ```
    pub fn devices(mut self, devices: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Self {
        self.devices = devices.into_iter().map(Into::into).collect();
        self
    }

    /// Sets when a call that keeps killing workers is rejected. `None` means never.
    ///
    /// ```
    /// use snakepit::python;
    ///
    /// let pool = python("worker.py").quarantine(None);
    /// ```
    pub fn quarantine(mut self, quarantine: impl Into<Option<Quarantine>>) -> Self {
        self.quarantine = quarantine.into().unwrap_or_else(Quarantine::off);
        self
    }

    /// Sets when calls are rejected because the last ones lost their workers or ran out of time. Applies to the pool as
    /// a whole, and to each command by itself. The default is never.
    ///
    /// ```
    /// use snakepit::policy::Breaker;
    /// use snakepit::python;
    ///
    /// let pool = python("worker.py").breaker(Breaker::default());
    /// ```
    pub fn breaker(mut self, breaker: impl Into<Option<Breaker>>) -> Self {
        self.breaker = breaker.into();
        self
    }

    /// Sets the number of workers that recycling or a reload replaces at the same time. The pool may have this many
    /// workers above its size meanwhile. The default is 1.
    pub fn replace_at_once(mut self, workers: usize) -> Self {
        self.replace_at_once = workers.max(1);
        self
    }

    /// Prepares the pool for calls that are evaluated. Whatever a call does to its worker is the result of that call,
    /// and has no other consequence. A worker that dies is replaced at once, however many died before. No call is
    /// rejected because other calls killed workers, and no device is tainted. Only workers that fail before they get a
    /// call count as failed, so that workers that no longer start are noticed.
    pub fn for_evaluation(mut self) -> Self {
        self.restarts.counted = CountedFailures::BeforeFirstCall;
        self.taint.lasts = Duration::ZERO;
        self.quarantine(None).breaker(None)
    }

    /// Reports whether the pool should have no workers, and neither the load nor a call changes that.
    pub(crate) fn is_for_nobody(&self) -> bool {
        self.workers == 0 && self.sizing.is_none()
    }

    /// Returns the options with which the pool is started. Debugging overrides some of them.
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
