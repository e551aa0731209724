//! The main loop: which workers serve, start, are due and leave. One rule covers recycling, reloading and scaling:
//!
//! ```text
//! wanted = target + those that are due (a few at a time)
//! fewer than wanted: start one           more than target: one leaves, those that are due first
//! ```

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;

use super::periodic_checks::{CheckNotes, WorkerLook};
use super::reload::Reload;
use super::worker_task::{TaskEnd, WorkerStart, announce_session_end};
use super::{Generation, SupervisorCommand};
use crate::adapter::{ReplaceReason, StartError};
use crate::custody::Run;
use crate::queue::PoolInner;
use crate::telemetry::Event;
use crate::worker::StopWindow;
use crate::worker::Worker;
use snakepit_policy::jitter::Chance;
use snakepit_policy::recycling::{RecycleReason, Term};
use snakepit_policy::restarts::{NextStart, RestartLog, SHORT_LIFE, WorkerLife};
use snakepit_policy::sizing::{Sizer, Sizing};
use snakepit_policy::taint::{AllTainted, Assignment, Slots};
use snakepit_policy::time::after;

/// How often a supervisor in trouble checks whether its newest worker serves.
const PROOF: Duration = Duration::from_millis(20);

/// A report to the supervisor.
pub(super) enum WorkerReport {
    Serving(Id, Arc<Worker>),
    /// The worker finishes its calls, and takes no more.
    Leaving(usize),
    /// The results of looking at the workers.
    Seen(Vec<WorkerLook>),
}

/// A worker and what its supervisor knows about it.
pub(super) struct SupervisedWorker {
    pub(super) worker: Arc<Worker>,
    /// The task that manages the worker.
    pub(super) task: Id,
    /// Why the worker must be replaced, or `None` if it need not be.
    pub(super) due: Option<ReplaceMark>,
    /// Whether the worker is so far beyond its term that it gets no more calls.
    pub(super) is_worn_out: bool,
    pub(super) term: Term,
    pub(super) notes: CheckNotes,
    /// Whether the worker has answered a call, or has lived long enough.
    pub(super) proved: bool,
}

/// Marks a worker that must be replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ReplaceMark {
    pub(super) due: ReplaceReason,
    pub(super) since: Instant,
}

impl ReplaceMark {
    pub(super) fn now(due: ReplaceReason) -> Self {
        Self { due, since: Instant::now() }
    }
}

pub(super) struct Supervisor {
    pub(super) shared: Arc<PoolInner>,
    pub(super) run: Option<Run>,
    pub(super) generation: Arc<Generation>,
    pub(super) next_generation: u64,
    pub(super) target: usize,
    /// Whether no worker is started before the first call.
    pub(super) asleep: bool,
    pub(super) next_name: u64,
    pub(super) reports: mpsc::UnboundedSender<WorkerReport>,
    /// Decides how many workers there should be, if that depends on the load.
    pub(super) sizer: Option<Sizer>,
    pub(super) sized_at: Instant,
    pub(super) looked_at: Instant,
    /// The time at which the next session may expire.
    pub(super) sessions_at: Instant,
    /// The time from which the next due worker may be replaced.
    pub(super) next_replacement: Instant,
    /// The number of calls that were given to workers that are gone.
    pub(super) calls_of_ended_workers: u64,
    pub(super) tasks: JoinSet<TaskEnd>,
    /// The generation of each worker that is starting, by its task.
    pub(super) starting: HashMap<Id, u64>,
    /// Where each worker runs, from its start to its end, by its task.
    pub(super) places: HashMap<Id, Assignment>,
    pub(super) slots: Slots,
    pub(super) serving: BTreeMap<usize, SupervisedWorker>,
    /// Workers that finish their last calls.
    pub(super) leaving: Vec<SupervisedWorker>,
    /// Workers that a reload has replaced, until the reload is done.
    pub(super) kept: Vec<SupervisedWorker>,
    pub(super) reload: Option<Reload>,
    pub(super) stopping: watch::Sender<Option<StopWindow>>,
    pub(super) restarts: RestartLog,
    pub(super) pause_until: Option<Instant>,
    pub(super) trouble: Option<Arc<str>>,
    pub(super) first: Option<oneshot::Sender<Result<(), StartError>>>,
    /// The first failure to start a worker, while a caller waits for the start. Replaced if it came from outside.
    pub(super) first_failure: Option<StartError>,
}

impl Supervisor {
    pub(super) fn new(
        shared: Arc<PoolInner>,
        run: Option<Run>,
        first: oneshot::Sender<Result<(), StartError>>,
    ) -> (Self, mpsc::UnboundedReceiver<WorkerReport>) {
        // Bounded by the workers: each reports when it serves and when it leaves, and one round looks at all of them.
        let (reports, reports_in) = mpsc::unbounded_channel();
        let config = Arc::clone(&*shared.config());
        let sizer = config.sizing.map(Sizer::new);
        let supervisor = Self {
            target: sizer.as_ref().map_or(config.workers, Sizer::target),
            sizer,
            sized_at: Instant::now(),
            looked_at: Instant::now(),
            sessions_at: after(Instant::now(), config.session_ttl),
            next_replacement: Instant::now(),
            calls_of_ended_workers: 0,
            asleep: config.lazy,
            next_generation: 2,
            shared,
            run,
            next_name: 1,
            reports,
            tasks: JoinSet::new(),
            generation: Generation::new(1, Arc::clone(&config)),
            starting: HashMap::new(),
            places: HashMap::new(),
            slots: Slots::new(&config.taint, config.devices.iter().cloned()),
            restarts: RestartLog::new(config.restarts, config.workers),
            serving: BTreeMap::new(),
            leaving: Vec::new(),
            kept: Vec::new(),
            reload: None,
            stopping: watch::Sender::new(None),
            pause_until: None,
            trouble: None,
            first: Some(first),
            first_failure: None,
        };
        (supervisor, reports_in)
    }

    pub(super) async fn work(
        mut self,
        mut orders: mpsc::UnboundedReceiver<SupervisorCommand>,
        mut reports: mpsc::UnboundedReceiver<WorkerReport>,
    ) {
        loop {
            self.wake_up();
            self.believe();
            self.run_periodic_checks();
            self.give_up_start();
            self.fill_up();
            self.trim();
            self.finish_reload();
            self.report_health();
            let look_again = self.look_again();
            tokio::select! {
                order = orders.recv() => match order {
                    Some(SupervisorCommand::Scale(workers)) => {
                        self.keep_size();
                        self.scale(workers);
                    }
                    Some(SupervisorCommand::ScaleBy(sizing)) => {
                        self.keep_size();
                        self.scale_by(sizing);
                    }
                    Some(SupervisorCommand::Recycle(worker, reply)) => {
                        let _ = reply.send(self.recycle(worker.as_deref()));
                    }
                    Some(SupervisorCommand::WorkerRows(reply)) => drop(reply.send(self.worker_rows())),
                    Some(SupervisorCommand::Reload(pool, reply)) => self.begin_reload(pool, reply),
                    Some(SupervisorCommand::Stop(window, done)) => {
                        self.stop(window, reports).await;
                        let _ = done.send(());
                        return;
                    }
                    // The engine is gone without a stop, so no caller waits.
                    None => return self.stop(StopWindow::open(Duration::ZERO), reports).await,
                },
                Some(report) = reports.recv() => self.receive_report(report),
                Some(left) = self.tasks.join_next_with_id() => {
                    // `Serving` is reported before the end, through another channel: handle it first.
                    while let Ok(report) = reports.try_recv() {
                        self.receive_report(report);
                    }
                    self.worker_ended(left);
                }
                () = self.shared.attention.notified() => {}
                () = wait_until(look_again) => {}
                () = tokio::time::sleep_until(self.sessions_at) => self.end_sessions(),
            }
        }
    }

    /// Ends the sessions that have expired, and notifies the workers that have served them.
    pub(super) fn end_sessions(&mut self) {
        let (ended, next) = self.shared.sessions.expire();
        for session in ended {
            announce_session_end(&self.shared, &session, |pool, session| Event::SessionExpired {
                pool,
                session,
            });
        }
        self.sessions_at = after(Instant::now(), next.max(Duration::from_millis(10)));
    }

    /// Wakes a lazy supervisor when a call waits.
    fn wake_up(&mut self) {
        let debug = self.generation.config.debug;
        // With a sizer, the first waiting call must wake the loop. While calls wait, the loop wakes periodically.
        let waits_for_load = self.sizer.is_some() && self.shared.scheduler().depth() == 0;
        self.shared.wants_attention.store(self.asleep || debug || waits_for_load, Ordering::SeqCst);
        // After the flag is set, so that a call is either seen here or wakes the loop.
        if self.asleep && self.shared.scheduler().depth() > 0 {
            self.asleep = false;
        }
    }

    /// Returns how many workers there should be at present.
    pub(super) fn target(&self) -> usize {
        match self.generation.config.debug {
            _ if self.asleep => 0,
            // One worker for each waiting call.
            true => self.target.min(self.shared.scheduler().depth()),
            false => self.target,
        }
    }

    /// Returns how many workers there should be, including replacements for some that are due.
    pub(super) fn wanted(&self) -> usize {
        let replaced = if Instant::now() < self.next_replacement {
            0
        } else {
            self.due().min(self.generation.config.replace_at_once)
        };
        // Worn-out workers get no more calls, so they are missing already.
        self.target() + replaced.max(self.worn_out())
    }

    /// Reports whether the pool is scaled to no workers.
    pub(super) fn is_empty(&self) -> bool {
        self.target == 0 && self.sizer.is_none()
    }

    fn due(&self) -> usize {
        self.serving.values().filter(|member| member.due.is_some()).count()
    }

    /// Marks workers that answer, or live on, as proven: they show that workers can be started.
    fn believe(&mut self) {
        let was_degraded = self.restarts.is_degraded();
        self.restarts.forget_old(Instant::now());
        for member in self.serving.values_mut().filter(|member| !member.proved) {
            let (lived, answered) = (member.worker.ready_at.elapsed(), member.worker.has_answered());
            // In this order: calls of a dead worker count as answered, but before that the worker stops serving.
            let life = WorkerLife { lived, answered, was_used: answered };
            if self.restarts.passes(life) && self.shared.scheduler().serves(&member.worker) {
                member.proved = true;
                self.restarts.served();
            }
        }
        if was_degraded && !self.restarts.is_degraded() {
            self.shared.announce(|pool| Event::PoolRecovered { pool });
        }
    }

    /// Returns when there may be something to do even if nothing happens.
    fn look_again(&self) -> Option<Instant> {
        let in_trouble = self.restarts.is_degraded() || self.pause_until.is_some();
        if in_trouble && self.serving.values().any(|member| !member.proved) {
            return Some(Instant::now() + PROOF);
        }
        let now = Instant::now();
        let replacement = (self.due() > 0).then_some(self.next_replacement).filter(|at| *at > now);
        // A reload succeeds when its youngest worker has lived long enough.
        let youngest = self.serving.values().map(|member| member.worker.ready_at + SHORT_LIFE).max();
        let proof = youngest.filter(|at| self.reload.is_some() && *at > now);
        self.pause_until.into_iter().chain(replacement).chain(proof).chain(self.next_check()).min()
    }

    /// Returns a place for one more worker, if it may be started now. Otherwise records when to try again.
    fn may_start(&mut self) -> Option<Assignment> {
        let now = Instant::now();
        self.pause_until = match self.restarts.next(now) {
            NextStart::Now => None,
            NextStart::At(until) => Some(until),
            NextStart::Degraded { trial_at } if trial_at <= now && !self.is_on_trial() => None,
            NextStart::Degraded { trial_at } => Some(trial_at.max(now + PROOF)),
        };
        if self.pause_until.is_some() {
            return None;
        }
        match self.slots.take(now) {
            Ok(place) => Some(place),
            Err(AllTainted { until }) => {
                self.trouble = Some("workers died of each of its devices".into());
                self.pause_until = Some(until);
                None
            }
        }
    }

    /// Reports whether a worker was started that has not proven itself yet.
    fn is_on_trial(&self) -> bool {
        !self.starting.is_empty() || self.serving.values().any(|member| !member.proved)
    }

    fn fill_up(&mut self) {
        self.pause_until = None;
        while self.starting.len() < self.generation.config.start_batch
            && self.serving.len() + self.starting.len() < self.wanted()
            && let Some(place) = self.may_start()
        {
            self.restarts.started(Instant::now(), Chance::draw());
            let birth = WorkerStart {
                shared: Arc::clone(&self.shared),
                run: self.run.clone(),
                generation: Arc::clone(&self.generation),
                name: format!("{}-{}", self.shared.name, self.next_name),
                slot: place.slot,
                device: place.device.clone(),
                checked: self.reload.is_some(),
                stopping: self.stopping.subscribe(),
                reports: self.reports.clone(),
            };
            self.next_name += 1;
            let task = self.tasks.spawn(birth.live());
            self.starting.insert(task.id(), self.generation.number);
            self.places.insert(task.id(), place);
        }
    }

    pub(super) fn resize(&mut self, workers: usize) {
        if workers != self.target {
            self.shared.announce(|pool| Event::PoolResized { pool, from: self.target, to: workers });
        }
        self.target = workers;
        self.restarts.resize(workers);
    }

    /// Keeps the size that is requested now, even if a reload that requested another size fails.
    fn keep_size(&mut self) {
        if let Some(reload) = &mut self.reload {
            reload.size_before = None;
        }
    }

    /// Sets a fixed number of workers, whatever the load is.
    pub(super) fn scale(&mut self, workers: usize) {
        self.sizer = None;
        self.resize(workers);
    }

    pub(super) fn scale_by(&mut self, sizing: Sizing) {
        let mut sizer = Sizer::new(sizing);
        sizer.set(self.target, Instant::now());
        self.resize(sizer.target());
        self.sizer = Some(sizer);
    }

    /// Marks workers for replacement. They serve until their replacements do. Returns how many were marked.
    fn recycle(&mut self, worker: Option<&str>) -> usize {
        let chosen = self.serving.values_mut().filter(|member| {
            member.due.is_none() && worker.is_none_or(|worker| member.worker.id.as_str() == worker)
        });
        chosen.map(|member| member.recycle(RecycleReason::ByHand, &self.shared)).count()
    }

    pub(super) fn receive_report(&mut self, report: WorkerReport) {
        match report {
            WorkerReport::Serving(task, worker) => {
                self.starting.remove(&task);
                let is_old = worker.generation != self.generation.number;
                // A later generation means that its reload failed when the worker was about to serve.
                let is_dropped = worker.generation > self.generation.number;
                let due = if is_dropped {
                    Some(ReplaceMark::now(ReplaceReason::ReloadGivenUp))
                } else {
                    (is_old && self.reload.is_some()).then(|| ReplaceMark::now(ReplaceReason::Reloaded))
                };
                let after = worker.ready_at.saturating_duration_since(worker.began_at);
                // Starts take CPU time from calls, so replacements may use it for at most a third of the time.
                self.next_replacement = worker.ready_at + 2 * after;
                let name = worker.id.as_str();
                self.shared.announce(|pool| Event::WorkerReady { pool, worker: name.into(), took: after });
                let term = worker.term;
                let notes = CheckNotes::default();
                let (is_worn_out, proved) = (false, false);
                self.serving.insert(
                    worker.index,
                    SupervisedWorker { worker, task, due, is_worn_out, term, notes, proved },
                );
            }
            WorkerReport::Seen(seen) => self.note(seen),
            WorkerReport::Leaving(index) => {
                let kept = |member: &mut SupervisedWorker| member.worker.index == index;
                let gone = self.serving.remove(&index).or_else(|| self.kept.extract_if(.., kept).next());
                if let Some(member) = gone {
                    self.note_leaving(member);
                }
            }
        }
    }
}

async fn wait_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}
