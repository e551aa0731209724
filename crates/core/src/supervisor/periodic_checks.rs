//! The periodic checks of a supervisor: how worn its workers are, what they hold, and how many are needed.
//!
//! A look at a worker is cheap and happens once a second. Idle workers are examined only if memory is limited. The
//! number of workers is decided more often, but only while calls wait or workers start.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::main_loop::{ReplaceMark, SupervisedWorker, Supervisor, WorkerReport};
use crate::adapter::{AtWork, Reason, ReplaceReason};
use crate::queue::PoolInner;
use crate::telemetry::Event;
use crate::worker::{Pss, Watch, Worker, WorkerOrder};
use snakepit_policy::WhenStuck;
use snakepit_policy::liveness::Liveness;
use snakepit_policy::memory_growth::MemoryGauge;
use snakepit_policy::recycling::{RecycleReason, WorkerUsage};
use snakepit_policy::sizing::Observation;

/// How often workers are looked at.
const ROUND: Duration = Duration::from_secs(1);
/// How often the size is decided while it may be wrong.
const SIZING: Duration = Duration::from_millis(25);

/// How long a stuck worker may take to go on after it was asked for its stacks.
const COMES_BACK_WITHIN: Duration = Duration::from_millis(500);

/// The result of a look at a worker.
pub(super) struct WorkerLook {
    worker: Arc<Worker>,
    watch: Watch,
    liveness: Liveness,
    memory: Option<u64>,
}

/// What is remembered of a worker between two looks.
pub(super) struct CheckNotes {
    calls: u64,
    idle_since: Option<Instant>,
    memory: Option<u64>,
    gauge: MemoryGauge,
    /// `None` while a look is in progress.
    watch: Option<Watch>,
    pub(super) liveness: Liveness,
    /// Whether it was announced that the worker is stuck.
    pub(super) told_stuck: bool,
}

impl Default for CheckNotes {
    fn default() -> Self {
        Self {
            calls: 0,
            idle_since: None,
            memory: None,
            gauge: MemoryGauge::default(),
            watch: Some(Watch::default()),
            liveness: Liveness::Idle,
            told_stuck: false,
        }
    }
}

impl SupervisedWorker {
    /// Reports whether the worker's process is stopped, so that it serves no calls.
    pub(super) fn is_halted(&self) -> bool {
        self.worker.halted_since().is_some()
    }

    /// Returns what the worker is doing: now if it is stopped, otherwise at the last look.
    pub(super) fn liveness(&self) -> Liveness {
        self.worker.halted_since().map_or(self.notes.liveness, |since| Liveness::Stopped { since })
    }

    /// Returns how long the worker has been idle, or `None` if it is not.
    pub(super) fn idle_for(&self, now: Instant) -> Option<Duration> {
        // Calls since the last look are not in the notes yet.
        let is_idle = !self.worker.holds_calls() && self.worker.calls_given() == self.notes.calls;
        self.notes.idle_since.filter(|_| is_idle).map(|since| now.saturating_duration_since(since))
    }

    fn look(&mut self, now: Instant) {
        let calls = self.worker.calls_given();
        if self.worker.holds_calls() {
            self.notes.idle_since = None;
        } else if calls != self.notes.calls || self.notes.idle_since.is_none() {
            self.notes.idle_since = Some(now);
        }
        self.notes.calls = calls;
    }

    pub(super) fn usage(&self, now: Instant) -> WorkerUsage {
        WorkerUsage {
            calls: self.worker.calls_given(),
            age: now.saturating_duration_since(self.worker.ready_at),
            // A worker that never had a call holds nothing that a new one would not.
            idle_for: self.idle_for(now).filter(|_| self.worker.calls_given() > 0),
            memory: self.notes.memory,
        }
    }

    /// Marks the worker for replacement. It serves until its replacement does.
    pub(super) fn recycle(&mut self, why: RecycleReason, shared: &PoolInner) {
        self.due = Some(ReplaceMark::now(ReplaceReason::Recycled(why)));
        shared.announce(|pool| Event::WorkerDue {
            pool,
            worker: self.worker.id.as_str().into(),
            reason: why.to_string().into(),
        });
    }
}

impl Supervisor {
    /// Returns when the next check is due.
    pub(super) fn next_check(&self) -> Option<Instant> {
        let sizing = (self.sizer.is_some() && self.size_may_be_wrong()).then_some(self.sized_at + SIZING);
        let round = (!self.serving.is_empty()).then_some(self.looked_at + ROUND);
        sizing.into_iter().chain(round).min()
    }

    fn size_may_be_wrong(&self) -> bool {
        !self.starting.is_empty() || self.shared.scheduler().depth() > 0
    }

    pub(super) fn run_periodic_checks(&mut self) {
        let now = Instant::now();
        if now >= self.looked_at + ROUND {
            self.looked_at = now;
            self.serving.values_mut().for_each(|member| member.look(now));
            self.look_closer();
            self.think_about_size(now);
        } else if now >= self.sized_at + SIZING && self.size_may_be_wrong() {
            self.think_about_size(now);
        }
        self.find_worn(now);
    }

    /// Marks workers that have reached their term.
    fn find_worn(&mut self, now: Instant) {
        for member in self.serving.values_mut().filter(|member| member.due.is_none()) {
            if let Some(why) = member.term.due(&member.usage(now)) {
                member.recycle(why, &self.shared);
            }
        }
        self.rest_worn_out(now);
    }

    fn think_about_size(&mut self, now: Instant) {
        self.sized_at = now;
        let Some(sizer) = &mut self.sizer else { return };
        let idle_ttl = sizer.idle_ttl();
        // A stopped worker says nothing about the load. Calls that wait because of it make the pool grow.
        let long_idle = |member: &&SupervisedWorker| {
            !member.is_halted() && member.idle_for(now).is_some_and(|idle| idle >= idle_ttl)
        };
        let given = self.calls_of_ended_workers
            + self
                .serving
                .values()
                .chain(&self.leaving)
                .chain(&self.kept)
                .map(|member| member.worker.calls_given())
                .sum::<u64>();
        let (queued, head_waits, in_flight) = {
            let scheduler = self.shared.scheduler();
            (scheduler.depth(), scheduler.head_waits(now), scheduler.in_flight())
        };
        let seen = Observation {
            queued,
            head_waits,
            serving: self.serving.len(),
            starting: self.starting.len(),
            busy: self.serving.values().filter(|member| member.worker.holds_calls()).count(),
            long_idle: self.serving.values().filter(long_idle).count(),
            arrived: given + queued as u64,
            finished: given.saturating_sub(in_flight as u64),
        };
        let wanted = sizer.decide(&seen, now);
        self.resize(wanted);
    }

    /// Looks at the activity and the memory of workers in a separate task, because the kernel takes its time. Skips
    /// idle workers unless memory is limited.
    fn look_closer(&mut self) {
        let limit = self.generation.config.recycling.memory_limit();
        let mut looks = Vec::new();
        for member in self.serving.values_mut() {
            if member.notes.idle_since.is_some() {
                member.notes.liveness = Liveness::Idle;
                member.notes.told_stuck = false;
            }
            if (limit.is_some() || member.notes.idle_since.is_none())
                && let Some(watch) = member.notes.watch.take()
            {
                looks.push(look(Arc::clone(&member.worker), watch, limit));
            }
        }
        let reports = self.reports.clone();
        tokio::spawn(async move { reports.send(WorkerReport::Seen(join_all(looks).await)) });
    }

    pub(super) fn note(&mut self, seen: Vec<WorkerLook>) {
        let (now, stuck) = (Instant::now(), self.generation.config.stuck);
        for WorkerLook { worker, watch, liveness, memory } in seen {
            let Some(member) = self.serving.get_mut(&worker.index) else { continue };
            if !Arc::ptr_eq(&member.worker, &worker) {
                continue;
            }
            member.notes.watch = Some(watch);
            member.notes.liveness = liveness;
            member.notes.memory = memory;
            if let Some(memory) = memory {
                let counts = worker.take_counts();
                let calls = counts.iter().map(|(command, count)| (&**command, *count));
                self.shared.growth().observe(&mut member.notes.gauge, memory, calls);
            }
            let due = stuck.due(liveness, now);
            let was_told = std::mem::replace(&mut member.notes.told_stuck, due.is_some());
            if let (Some(then), Liveness::Stuck { since }, false) = (due, liveness, was_told) {
                let time = now.saturating_duration_since(since);
                self.report_stuck(worker, time, then);
            }
        }
    }

    /// Announces that a worker is stuck, and where. Ends the worker if the settings demand it and it stays stuck.
    fn report_stuck(&self, worker: Arc<Worker>, time: Duration, then: WhenStuck) {
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let before = SignOfLife::of(&worker);
            let stack = worker.stacks().await;
            shared.announce(|pool| Event::WorkerStuck {
                pool,
                worker: worker.id.as_str().into(),
                lasted: time,
                stack: stack.map(Into::into),
            });
            // The request for stacks may have freed the worker.
            if then == WhenStuck::Replace && !before.comes_back(&worker).await {
                worker.order(WorkerOrder::End(Reason::Stuck(time)));
            }
        });
    }
}

/// What changes when a stuck worker goes on.
#[derive(PartialEq, Eq)]
struct SignOfLife {
    beats: Option<u64>,
    at_work: Vec<AtWork>,
}

impl SignOfLife {
    fn of(worker: &Worker) -> Self {
        Self { beats: worker.handle.beats(), at_work: worker.handle.at_work() }
    }

    /// Reports whether the worker runs again. The request for stacks may have interrupted a system call and so let the
    /// worker answer one heartbeat. If nothing else has changed, a second heartbeat is required.
    async fn comes_back(&self, worker: &Worker) -> bool {
        let Some(now) = self.changes(worker).await else { return false };
        if now.at_work != self.at_work {
            return true;
        }
        // The first tick completes at once.
        let mut pause = tokio::time::interval(COMES_BACK_WITHIN / 5);
        pause.tick().await;
        pause.tick().await;
        let again = Self::of(worker);
        worker.handle.ask_beat();
        again != now || again.changes(worker).await.is_some()
    }

    /// Polls for a change, and returns the new state. Beats are on a page of memory and send no event.
    async fn changes(&self, worker: &Worker) -> Option<Self> {
        let until = Instant::now() + COMES_BACK_WITHIN;
        let mut looks = tokio::time::interval(COMES_BACK_WITHIN / 20);
        while Instant::now() < until {
            looks.tick().await;
            let now = Self::of(worker);
            if now != *self {
                return Some(now);
            }
        }
        None
    }
}

async fn look(worker: Arc<Worker>, mut watch: Watch, limit: Option<u64>) -> WorkerLook {
    let (liveness, stats) = watch.look(&worker).await;
    let memory = match (limit, stats) {
        (Some(limit), Some(stats)) if stats.rss_bytes >= limit && stats.processes > 1 => {
            // The resident size reaches the limit, so shared memory must be divided among the processes.
            let exact = worker.process_stats(Pss::Measure).await.unwrap_or(stats);
            Some(exact.pss_bytes.unwrap_or(exact.rss_bytes))
        }
        (Some(_), Some(stats)) => Some(stats.rss_bytes),
        _ => None,
    };
    WorkerLook { worker, watch, liveness, memory }
}
