//! The snapshot of a pool for people and programs that watch it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde::{Serialize, Serializer};
use tokio::time::Instant;

use super::{Outcomes, Pool, PoolHealth, WorkerDuty};
use crate::adapter::{AtWork, ReplaceReason};
use crate::call::CallError;
use crate::custody::{self, Pid};
use crate::supervisor::WorkerRow;
use crate::value::Value;
use crate::worker::{Pss, Worker};
use snakepit_policy::liveness::Liveness;
use snakepit_policy::taint::name_of;
use snakepit_policy::{Fault, Tainted};

/// A snapshot of a pool, its queue and its workers: everything that a dashboard shows.
///
/// It serializes to JSON, with times in seconds.
///
/// ```no_run
/// # async fn show(pool: snakepit::Pool) {
/// let status = pool.status().await;
/// println!("{}: {:?}, {} calls wait", status.name, status.health, status.queued);
/// for worker in &status.workers {
///     println!("  {} has {} calls, {:?} bytes", worker.info.id, worker.info.in_flight, worker.rss);
/// }
/// # }
/// ```
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct PoolStatus {
    /// The pool's name.
    pub name: String,
    /// Whether the pool has the workers that it should have, and why not.
    #[serde(flatten)]
    pub health: PoolHealth,
    /// The version of the pool's code and settings. Each successful reload makes a new one.
    pub generation: u64,
    /// The number of workers that the pool should have.
    pub target: usize,
    /// The number of workers that are starting.
    pub starting: usize,
    /// The workers that serve calls, and those that finish their last ones.
    pub workers: Vec<WorkerStatus>,
    /// The number of calls in the queue.
    pub queued: usize,
    /// How long the first call in the queue has waited.
    #[serde(serialize_with = "seconds")]
    pub queue_wait: Duration,
    /// The number of calls that workers have.
    pub in_flight: usize,
    /// The number of sessions.
    pub sessions: usize,
    /// How the pool's calls have ended so far.
    pub outcomes: Outcomes,
    /// Devices and slots that get no worker for a while.
    pub tainted: Vec<TaintedSlot>,
    /// The memory that each command leaves behind, the largest first. Known if `max_rss` is set.
    pub growth: Vec<CommandGrowth>,
}

/// What the host knows of a worker without looking at the worker's processes.
///
/// ```no_run
/// # fn example(pool: snakepit::Pool) {
/// for worker in pool.workers() {
///     println!("{} ({}) got {} calls in {:?}", worker.id, worker.language, worker.calls, worker.age);
/// }
/// # }
/// ```
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// The worker's name.
    pub id: String,
    /// The worker's process.
    #[serde(serialize_with = "pid")]
    pub pid: Option<Pid>,
    /// How long the worker has served.
    #[serde(serialize_with = "seconds")]
    pub age: Duration,
    /// The number of calls that the worker was given so far.
    pub calls: u64,
    /// The number of calls that the worker has now.
    pub in_flight: usize,
    /// The number of calls that the worker gets at a time.
    pub concurrency: usize,
    /// The generation of the pool that started the worker.
    pub generation: u64,
    /// The number of the worker's slot. No other worker of the pool has it at the same time.
    pub slot: usize,
    /// The device that the worker uses, if the pool names devices.
    pub device: Option<String>,
    /// The worker's language and version.
    pub language: String,
}

impl WorkerInfo {
    fn of(worker: &Worker) -> Self {
        Self {
            id: worker.id.to_string(),
            pid: worker.handle.process().map(custody::WorkerProcess::pid),
            age: worker.ready_at.elapsed(),
            calls: worker.calls_given(),
            in_flight: worker.places.all(),
            concurrency: worker.places.places(),
            generation: worker.generation,
            slot: worker.slot,
            device: worker.device.as_deref().map(str::to_owned),
            language: worker.handle.introduction().language.clone(),
        }
    }
}

/// A worker in the snapshot of its pool.
///
/// ```no_run
/// use snakepit::pool::WorkerLiveness;
///
/// # async fn example(pool: snakepit::Pool) {
/// for worker in pool.status().await.workers {
///     if worker.liveness == Some(WorkerLiveness::Stuck) {
///         for call in &worker.at_work {
///             println!("{} is stuck; it has run {} for {:?}", worker.info.id, call.command, call.since);
///         }
///     }
/// }
/// # }
/// ```
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct WorkerStatus {
    /// The worker and its counters.
    #[serde(flatten)]
    pub info: WorkerInfo,
    /// Whether the worker gets calls.
    pub duty: WorkerDuty,
    /// Why the worker is to be replaced.
    pub reason: Option<ReplaceReason>,
    /// What the worker did when the supervisor last looked, which it does once a second.
    pub liveness: Option<WorkerLiveness>,
    /// The calls that the worker runs.
    pub at_work: Vec<CallAtWork>,
    /// Resident memory of the worker and everything it started, in bytes.
    pub rss: Option<u64>,
    /// CPU time of the worker and everything it started.
    #[serde(serialize_with = "maybe_seconds")]
    pub cpu: Option<Duration>,
    /// The number of processes: the worker and everything it started.
    pub processes: Option<usize>,
}

/// What a worker does, as seen from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkerLiveness {
    /// The worker has no call.
    Idle,
    /// The worker computes.
    Busy,
    /// The worker has a call, and waits for something.
    Waiting,
    /// The worker has a call, and shows no sign of life.
    Stuck,
    /// A signal stopped the worker's process.
    Stopped,
    /// The worker's process is gone.
    Dead,
}

impl From<Liveness> for WorkerLiveness {
    fn from(liveness: Liveness) -> Self {
        match liveness {
            Liveness::Idle => Self::Idle,
            Liveness::Busy => Self::Busy,
            Liveness::Waiting => Self::Waiting,
            Liveness::Stuck { .. } => Self::Stuck,
            Liveness::Stopped { .. } => Self::Stopped,
            Liveness::Dead => Self::Dead,
        }
    }
}

/// A call that a worker runs.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CallAtWork {
    /// The number of the call.
    pub call: u64,
    /// The command of the call.
    pub command: String,
    /// How long the worker has run the call.
    #[serde(serialize_with = "seconds")]
    pub since: Duration,
}

/// The answer of a worker's `health` hook.
///
/// ```no_run
/// # async fn example(pool: snakepit::Pool) {
/// for health in pool.check_health().await {
///     match health.answer {
///         Ok(value) => println!("{}: {value}", health.worker),
///         Err(error) => eprintln!("{} is not well: {error}", health.worker),
///     }
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HealthAnswer {
    /// The id of the worker.
    pub worker: String,
    /// What the hook returned, or why it did not.
    pub answer: Result<Value, CallError>,
}

/// The device or the slot of a worker.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum WorkerSlot {
    /// A device, such as a GPU.
    Device(Arc<str>),
    /// A slot of a pool without devices.
    Number(usize),
}

impl fmt::Display for WorkerSlot {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(device) => to.write_str(&name_of(Some(device), 0)),
            Self::Number(slot) => to.write_str(&name_of(None, *slot)),
        }
    }
}

/// A device or a slot that is not used for a while.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TaintedSlot {
    /// The device, or the slot of a pool without devices.
    #[serde(serialize_with = "text")]
    pub slot: WorkerSlot,
    /// What a worker died of there.
    #[serde(serialize_with = "text")]
    pub fault: Fault,
    /// How long it stays unused.
    #[serde(serialize_with = "seconds")]
    pub lasts: Duration,
}

/// The memory that the calls of a command leave behind.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CommandGrowth {
    /// The command.
    pub command: String,
    /// The number of bytes per call.
    pub bytes_per_call: u64,
    /// The number of calls from which this is known.
    pub calls: u64,
}

#[expect(
    clippy::ref_option,
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference to the field"
)]
fn pid<S: Serializer>(pid: &Option<Pid>, serializer: S) -> Result<S::Ok, S::Error> {
    pid.map(Pid::as_raw).serialize(serializer)
}

fn text<T: fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

#[expect(clippy::ref_option, reason = "serde hands over a reference to the field")]
fn maybe_seconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}

impl WorkerStatus {
    async fn measure(row: WorkerRow) -> Self {
        let WorkerRow { worker, state, reason, liveness } = row;
        let stats = worker.process_stats(Pss::Skip).await;
        let now = Instant::now();
        let at_work = |it: AtWork| CallAtWork {
            call: it.call.get(),
            command: it.command.to_string(),
            since: now.saturating_duration_since(it.since),
        };
        Self {
            info: WorkerInfo::of(&worker),
            duty: state,
            reason,
            liveness: liveness.map(Into::into),
            at_work: worker.handle.at_work().into_iter().map(at_work).collect(),
            rss: stats.map(|stats| stats.rss_bytes),
            cpu: stats.map(|stats| stats.cpu),
            processes: stats.map(|stats| stats.processes),
        }
    }
}

impl Pool {
    /// Takes a snapshot: asks the supervisor, and measures the workers' processes.
    ///
    /// [`Pool::workers`], [`Pool::queued`] and [`Pool::in_flight`] answer at once.
    pub async fn status(&self) -> PoolStatus {
        let rows = self.supervisor.worker_rows().await;
        let workers = join_all(rows.workers.into_iter().map(WorkerStatus::measure)).await;
        let health = self.shared.health.borrow().clone();
        let now = Instant::now();
        let slot = |tainted: Tainted| TaintedSlot {
            slot: tainted.device.map_or(WorkerSlot::Number(tainted.slot), WorkerSlot::Device),
            fault: tainted.fault,
            lasts: tainted.until.saturating_duration_since(now),
        };
        let scheduler = self.shared.scheduler();
        PoolStatus {
            name: self.name().to_owned(),
            health,
            generation: rows.generation,
            target: rows.target,
            starting: rows.starting,
            workers,
            queued: scheduler.depth(),
            queue_wait: scheduler.head_waits(now),
            in_flight: scheduler.in_flight(),
            sessions: self.shared.sessions.count(),
            outcomes: self.outcomes(),
            tainted: rows.tainted.into_iter().map(slot).collect(),
            growth: self.growth(),
        }
    }

    /// Lists the workers that serve calls.
    pub fn workers(&self) -> Vec<WorkerInfo> {
        self.shared.scheduler().workers().map(|worker| WorkerInfo::of(worker)).collect()
    }

    /// Counts the calls in the queue.
    pub fn queued(&self) -> usize {
        self.shared.scheduler().depth()
    }

    /// Counts the calls that workers have.
    pub fn in_flight(&self) -> usize {
        self.shared.in_flight()
    }
}
