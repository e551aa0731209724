//! What a pool is made of, with its defaults.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::adapter::Adapter;
use crate::hardware::{Gpus, Threads};
#[cfg(feature = "evals")]
use crate::supervision::restarts::CountedFailures;
use crate::supervision::{Breaker, Quarantine, Recycling, Restarts, Retry, Sizing, Stuck, Taint};
use crate::value::{Encoded, ValueError};

/// Which worker serves the calls of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
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
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LostSessions {
    /// Another worker serves it from now on; [`PoolEvent::SessionMoved`](crate::PoolEvent::SessionMoved) tells it.
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

/// A pool to be started: workers of one kind, and how calls reach them.
///
/// ```
/// use std::time::Duration;
/// use snakepit::Pool;
///
/// let pool = Pool::python("worker.py").name("math").workers(4).call_timeout(Duration::from_secs(10));
/// ```
#[derive(Clone)]
#[must_use]
pub struct Pool {
    pub(crate) name: String,
    pub(crate) adapter: Arc<dyn Adapter>,
    pub(crate) workers: usize,
    /// By its user; otherwise other settings may decide it.
    pub(crate) workers_are_said: bool,
    pub(crate) concurrency: usize,
    pub(crate) queue_limit: usize,
    pub(crate) queue_timeout: Duration,
    pub(crate) call_timeout: Duration,
    pub(crate) stream_timeout: Duration,
    pub(crate) start_timeout: Duration,
    pub(crate) start_batch: usize,
    pub(crate) affinity: Affinity,
    pub(crate) lost_sessions: LostSessions,
    pub(crate) session_ttl: Duration,
    pub(crate) max_sessions: usize,
    pub(crate) cancel_grace: CancelGrace,
    pub(crate) max_frame: usize,
    pub(crate) replace_at_once: usize,
    pub(crate) warm_up: Vec<WarmUp>,
    pub(crate) lazy: bool,
    pub(crate) debug: bool,
    pub(crate) restarts: Restarts,
    pub(crate) taint: Taint,
    pub(crate) devices: Vec<Arc<str>>,
    pub(crate) gpus: Option<Gpus>,
    pub(crate) threads: Threads,
    /// How many threads each worker is to use; found when the pool is started.
    pub(crate) thread_share: Option<usize>,
    pub(crate) recycling: Recycling,
    pub(crate) stuck: Stuck,
    pub(crate) fewest_at_a_time: Option<usize>,
    pub(crate) sizing: Option<Sizing>,
    pub(crate) retry: Retry,
    pub(crate) quarantine: Option<Quarantine>,
    pub(crate) breaker: Option<Breaker>,
}

/// A call that a worker must answer before it serves.
#[derive(Clone, Debug)]
pub(crate) struct WarmUp {
    pub(crate) command: String,
    pub(crate) arguments: Result<Encoded, ValueError>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("name", &self.name)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool of workers of any kind.
    pub fn new(name: impl Into<String>, adapter: impl Adapter) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            name: name.into(),
            adapter: Arc::new(adapter),
            workers: cores * 2,
            workers_are_said: false,
            concurrency: 1,
            queue_limit: 1000,
            queue_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_mins(5),
            stream_timeout: Duration::from_mins(15),
            start_timeout: Duration::from_secs(30),
            start_batch: cores * 4,
            affinity: Affinity::default(),
            lost_sessions: LostSessions::default(),
            session_ttl: Duration::from_hours(1),
            max_sessions: 10_000,
            cancel_grace: CancelGrace::default(),
            max_frame: 256 << 20,
            replace_at_once: 1,
            warm_up: Vec::new(),
            lazy: false,
            debug: false,
            restarts: Restarts::default(),
            taint: Taint::default(),
            devices: Vec::new(),
            gpus: None,
            threads: Threads::default(),
            thread_share: None,
            recycling: Recycling::default(),
            stuck: Stuck::default(),
            fewest_at_a_time: None,
            sizing: None,
            retry: Retry::default(),
            quarantine: Some(Quarantine::default()),
            breaker: None,
        }
    }

    /// The name that calls use to choose it.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How many workers there are; twice the number of cores unless it is set.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self.workers_are_said = true;
        self
    }

    /// How many calls a worker does at the same time; 1 unless it is set.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.fewest_at_a_time = None;
        self.concurrency = concurrency.max(1);
        self
    }

    /// Finds out how many calls a worker should do at the same time, between these two, by watching how long calls take.
    ///
    /// It helps where calls slow each other down: they then wait in the pool's queue, where priorities and other workers
    /// count, and not inside a worker.
    pub fn adaptive_concurrency(mut self, between: std::ops::RangeInclusive<usize>) -> Self {
        self.concurrency = (*between.end()).max(1);
        self.fewest_at_a_time = Some((*between.start()).clamp(1, self.concurrency));
        self
    }

    /// How many calls may wait; 1000 unless it is set.
    pub fn queue_limit(mut self, limit: usize) -> Self {
        self.queue_limit = limit;
        self
    }

    /// How long a call may wait for a worker; 10 s unless it is set.
    pub fn queue_timeout(mut self, timeout: Duration) -> Self {
        self.queue_timeout = timeout;
        self
    }

    /// How long a call may take in all, unless it says otherwise itself; 300 s unless it is set.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// How long a stream may take in all, unless it says otherwise itself; 900 s unless it is set.
    pub fn stream_timeout(mut self, timeout: Duration) -> Self {
        self.stream_timeout = timeout;
        self
    }

    /// How long a worker may take to get ready; 30 s unless it is set.
    pub fn worker_start_timeout(mut self, timeout: Duration) -> Self {
        self.start_timeout = timeout;
        self
    }

    /// Shortens that, if it is longer: for a host that waits no longer itself, and gets an error that shows what the worker printed.
    pub fn worker_start_timeout_at_most(mut self, timeout: Duration) -> Self {
        self.start_timeout = self.start_timeout.min(timeout);
        self
    }

    /// How many workers are started at the same time; four times the number of cores unless it is set.
    pub fn start_batch(mut self, batch: usize) -> Self {
        self.start_batch = batch.max(1);
        self
    }

    /// Which worker serves the calls of a session.
    pub fn affinity(mut self, affinity: Affinity) -> Self {
        self.affinity = affinity;
        self
    }

    /// What becomes of a session with a strict affinity whose worker died, was recycled or was reloaded.
    pub fn lost_sessions(mut self, lost: LostSessions) -> Self {
        self.lost_sessions = lost;
        self
    }

    /// How long a session lives that nobody visits; an hour unless it is set.
    pub fn session_ttl(mut self, ttl: Duration) -> Self {
        self.session_ttl = ttl;
        self
    }

    /// How many sessions there may be; 10,000 unless it is set.
    pub fn max_sessions(mut self, sessions: usize) -> Self {
        self.max_sessions = sessions;
        self
    }

    /// How long each stage of a cancel may take.
    pub fn cancel_grace(mut self, grace: CancelGrace) -> Self {
        self.cancel_grace = grace;
        self
    }

    /// The largest message to or from a worker, in bytes; 256 MiB unless it is set.
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.max_frame = bytes;
        self
    }

    /// A call that each worker must answer before it counts as ready: to load a model, or to fill a cache. Several are
    /// made in the order in which they were given.
    pub fn warm_up(mut self, command: impl Into<String>, args: impl Serialize) -> Self {
        self.warm_up.push(WarmUp { command: command.into(), arguments: Encoded::encode_args(&args) });
        self
    }

    /// Starts no worker before the first call.
    pub fn lazy(mut self, lazy: bool) -> Self {
        self.lazy = lazy;
        self
    }

    /// For a person with a debugger: each call gets a worker of its own, started for it and ended after it, which has
    /// the host's standard input, output and error (so `breakpoint()` works), and calls may take as long as they like.
    pub fn debug(mut self, debug: bool) -> Self {
        self.debug = debug;
        self
    }

    /// How workers that fail are replaced, and when the pool counts as degraded.
    pub fn restarts(mut self, restarts: Restarts) -> Self {
        self.restarts = restarts;
        self
    }

    /// When workers are replaced although nothing is wrong with them.
    pub fn recycling(mut self, recycling: Recycling) -> Self {
        self.recycling = recycling;
        self
    }

    /// When a worker counts as stuck, and what is done then; it is told after a minute unless this is set.
    pub fn stuck(mut self, stuck: Stuck) -> Self {
        self.stuck = stuck;
        self
    }

    /// Lets the load decide how many workers there are; [`Pool::workers`] no longer does.
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

    /// Which GPUs its workers use; they decide for themselves unless it is set. Their names become the pool's devices.
    pub fn gpus(mut self, gpus: Gpus) -> Self {
        self.gpus = Some(gpus);
        self
    }

    /// How many threads each worker's numeric libraries use; the cores are shared out unless it is set.
    pub fn threads(mut self, threads: Threads) -> Self {
        self.threads = threads;
        self
    }

    /// What is done with the device, or the slot, of a worker that died of it.
    pub fn taint(mut self, taint: Taint) -> Self {
        self.taint = taint;
        self
    }

    /// How calls that are marked as idempotent are made again when their worker is lost.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// When a call that keeps killing workers is refused; `None` if it never is.
    pub fn quarantine(mut self, quarantine: impl Into<Option<Quarantine>>) -> Self {
        self.quarantine = quarantine.into();
        self
    }

    /// When calls are refused because the last ones lost their workers or their time, those of the pool and those of each
    /// command; never unless it is set.
    pub fn breaker(mut self, breaker: impl Into<Option<Breaker>>) -> Self {
        self.breaker = breaker.into();
        self
    }

    /// For a pool whose calls are evaluated: whatever they do to its workers is their result, and is held against nobody. A worker
    /// that dies is replaced at once however many did before, no call is refused for the deaths of others, and no place is
    /// tainted. Only workers that fail before they are given a call count as failed, so that those that no longer start
    /// are noticed.
    #[cfg(feature = "evals")]
    pub fn for_evaluation(mut self) -> Self {
        self.restarts.counted = CountedFailures::BeforeFirstCall;
        self.taint.lasts = Duration::ZERO;
        self.quarantine(None).breaker(None)
    }

    /// Whether it is to have no workers, and neither the load nor a call changes that.
    pub(crate) fn is_for_nobody(&self) -> bool {
        self.workers == 0 && self.sizing.is_none()
    }

    /// What holds in the place of some settings while it is debugged.
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

    /// How many workers are replaced at the same time by a recycling or a reload, so how many there may be above the
    /// pool's size meanwhile; 1 unless it is set.
    pub fn replace_at_once(mut self, workers: usize) -> Self {
        self.replace_at_once = workers.max(1);
        self
    }
}
