//! How it stands with a pool in full: what a person or a program that watches it wants to know.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde::{Serialize, Serializer};
use tokio::time::Instant;

use super::{Health, Outcomes, Pool};
use crate::adapter::AtWork;
use crate::custody;
use crate::worker::{Pss, Worker};
use snakepit_policy::Tainted;
use snakepit_policy::liveness::Liveness;
use snakepit_policy::taint::name_of;

/// How it stands with a pool.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct PoolStats {
    /// Its name.
    pub name: String,
    /// Whether it has the workers that it should have.
    pub health: PoolHealth,
    /// Why it is not ready, if it is not.
    pub reason: Option<String>,
    /// The version of its code and settings; each reload that succeeds makes a new one.
    pub generation: u64,
    /// How many workers there should be.
    pub target: usize,
    /// How many workers are starting.
    pub starting: usize,
    /// The workers that serve, and those that finish what they have.
    pub workers: Vec<WorkerStats>,
    /// How many calls wait.
    pub queued: usize,
    /// How long the first of them has waited.
    #[serde(serialize_with = "seconds")]
    pub queue_wait: Duration,
    /// How many calls are with workers.
    pub in_flight: usize,
    /// How many sessions there are.
    pub sessions: usize,
    /// How its calls have ended so far.
    pub outcomes: Outcomes,
    /// Places that are not used for a while.
    pub tainted: Vec<TaintedPlace>,
    /// Which commands leave memory behind, the worst first; known where `max_rss` is set.
    pub growth: Vec<CommandGrowth>,
}

/// How it stands with a worker.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct WorkerStats {
    /// Its name.
    pub id: String,
    /// Whether it gets calls.
    pub state: WorkerDuty,
    /// Why it is due.
    pub reason: Option<String>,
    /// What it did at the last look, which is made once a second.
    pub liveness: Option<WorkerLiveness>,
    /// The calls that it is at.
    pub at_work: Vec<CallAtWork>,
    /// Its process.
    pub pid: Option<i32>,
    /// How long it has served.
    #[serde(serialize_with = "seconds")]
    pub age: Duration,
    /// How many calls it was given so far.
    pub calls: u64,
    /// How many calls it has.
    pub in_flight: usize,
    /// How many calls it gets at a time.
    pub concurrency: usize,
    /// Resident memory of it and all that it started, in bytes.
    pub rss: Option<u64>,
    /// CPU time of it and all that it started.
    #[serde(serialize_with = "maybe_seconds")]
    pub cpu: Option<Duration>,
    /// How many processes it is.
    pub processes: Option<usize>,
    /// Of which version of the pool's code and settings it is.
    pub generation: u64,
    /// The number of its place.
    pub slot: usize,
    /// The device that it uses.
    pub device: Option<String>,
    /// Its language and version.
    pub language: String,
}

/// Whether a pool has the workers that it should have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PoolHealth {
    /// Its first workers start.
    Starting,
    /// All workers serve.
    Ready,
    /// Fewer workers serve than should.
    Short,
    /// Its workers fail again and again.
    Degraded,
    /// It was scaled to 0.
    Empty,
    /// It has stopped.
    Stopped,
}

/// Whether a worker gets calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkerDuty {
    /// It serves.
    Serving,
    /// It serves until its replacement does.
    Due,
    /// A reload that is not done has replaced it: it has no calls, and serves again if the reload fails.
    Kept,
    /// It finishes what it has.
    Leaving,
}

/// What a worker does, as far as can be seen from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkerLiveness {
    /// It has no call.
    Idle,
    /// It computes.
    Busy,
    /// It has a call, and waits for something.
    Waiting,
    /// It has a call, and shows no sign of life.
    Stuck,
    /// A signal stopped its process.
    Stopped,
    /// Its process is gone.
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

/// A call that a worker is at.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CallAtWork {
    /// Its number.
    pub call: u64,
    /// Its command.
    pub command: String,
    /// For how long.
    #[serde(serialize_with = "seconds")]
    pub since: Duration,
}

/// A place that is not used for a while.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TaintedPlace {
    /// The device, or the slot.
    pub place: String,
    /// Of what a worker died there.
    pub fault: String,
    /// For how long it is not used.
    #[serde(serialize_with = "seconds")]
    pub lasts: Duration,
}

/// What the calls of a command leave behind.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CommandGrowth {
    /// The command.
    pub command: String,
    /// Bytes per call.
    pub bytes_per_call: u64,
    /// How many calls that is known from.
    pub calls: u64,
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

#[expect(clippy::ref_option, reason = "serde hands over a reference to the field")]
fn maybe_seconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}

/// What only the supervisor knows.
#[derive(Default)]
pub(crate) struct WorkerRows {
    pub(crate) generation: u64,
    pub(crate) target: usize,
    pub(crate) starting: usize,
    pub(crate) workers: Vec<WorkerRow>,
    pub(crate) tainted: Vec<Tainted>,
}

/// A worker on the roll.
pub(crate) struct WorkerRow {
    pub(crate) worker: Arc<Worker>,
    pub(crate) state: WorkerDuty,
    pub(crate) reason: Option<String>,
    pub(crate) liveness: Option<Liveness>,
}

impl WorkerRow {
    async fn stats(self) -> WorkerStats {
        let Self { worker, state, reason, liveness } = self;
        let vitals = worker.vitals(Pss::Skip).await;
        let process = worker.handle.process();
        let now = Instant::now();
        let at_work = |it: AtWork| CallAtWork {
            call: it.call.get(),
            command: it.command.to_string(),
            since: now.saturating_duration_since(it.since),
        };
        WorkerStats {
            id: worker.id.to_string(),
            state,
            reason,
            liveness: liveness.map(Into::into),
            at_work: worker.handle.at_work().into_iter().map(at_work).collect(),
            pid: process.map(custody::WorkerProcess::pid).map(custody::Pid::as_raw),
            age: worker.ready_at.elapsed(),
            calls: worker.calls_given(),
            in_flight: worker.calls_in_hand(),
            concurrency: worker.places(),
            rss: vitals.map(|vitals| vitals.rss_bytes),
            cpu: vitals.map(|vitals| vitals.cpu),
            processes: vitals.map(|vitals| vitals.processes),
            generation: worker.generation,
            slot: worker.slot,
            device: worker.device.as_deref().map(str::to_owned),
            language: worker.handle.introduction().language.clone(),
        }
    }
}

impl Pool {
    /// How it stands, in full. [`Pool::status`] is cheaper, and knows less.
    pub async fn stats(&self) -> PoolStats {
        let roll = self.supervisor.roll().await;
        let workers = join_all(roll.workers.into_iter().map(WorkerRow::stats)).await;
        let (health, reason) = self.shared.health.borrow().told();
        let now = Instant::now();
        let place = |tainted: Tainted| TaintedPlace {
            place: name_of(tainted.device.as_deref(), tainted.slot),
            fault: tainted.fault.to_string(),
            lasts: tainted.until.saturating_duration_since(now),
        };
        let scheduler = self.shared.scheduler();
        PoolStats {
            name: self.name().to_owned(),
            health,
            reason,
            generation: roll.generation,
            target: roll.target,
            starting: roll.starting,
            workers,
            queued: scheduler.depth(),
            queue_wait: scheduler.head_waits(now),
            in_flight: self.shared.in_hand(),
            sessions: self.shared.sessions.count(),
            outcomes: self.outcomes(),
            tainted: roll.tainted.into_iter().map(place).collect(),
            growth: self.growth(),
        }
    }
}

impl Health {
    /// In a word, and why it is not better.
    fn told(&self) -> (PoolHealth, Option<String>) {
        match self {
            Self::Starting => (PoolHealth::Starting, None),
            Self::Ready(_) => (PoolHealth::Ready, None),
            Self::Empty => (PoolHealth::Empty, Some(super::EMPTY.to_owned())),
            Self::Short { reason, .. } => (PoolHealth::Short, Some(reason.to_string())),
            Self::Degraded { reason, .. } => (PoolHealth::Degraded, Some(reason.to_string())),
            Self::Stopped => (PoolHealth::Stopped, None),
        }
    }
}
