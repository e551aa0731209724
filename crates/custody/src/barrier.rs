//! The stop barrier: TERM, wait, KILL, wait, and an honest word about who is left.
//!
//! Four steps: collect the living; TERM (and CONT) to each group, and a wait up to the grace; KILL to the
//! rest, as often as configured; a last look, and a report of whoever the kernel will not let go. A survivor is one
//! who was there before the last KILL and is there after it. Where nobody is, a shim is still ending a storm of forks,
//! or its word is on its way, and the barrier waits on for a while.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::process::Signal;

use crate::event::Event;
use crate::identity::Found;
use crate::run::Inner;
use crate::wait::ready_within;
use crate::wire::{Reach, ToKeeper};
use crate::worker::Shared;
use crate::{Pid, WorkerId, identity, machine};

/// How long it waits on for the word that a worker has ended, of whom nobody is seen to outlive KILL.
const UNTOLD_PATIENCE: Duration = Duration::from_secs(5);

/// What a stop did.
#[derive(Clone, Debug, Default)]
#[must_use = "survivors are named here and nowhere else"]
pub struct StopReport {
    /// How many workers it ended.
    pub stopped: usize,
    /// How many of them needed KILL.
    pub killed: usize,
    /// Who is left: processes in uninterruptible sleep, or frozen, or of another user by now.
    pub survivors: Vec<Survivor>,
    /// How long it took.
    pub took: Duration,
}

impl StopReport {
    /// Whether nobody is left.
    pub fn is_clean(&self) -> bool {
        self.survivors.is_empty()
    }
}

/// A process that KILL did not end.
#[derive(Clone, Debug)]
pub struct Survivor {
    /// The worker that it belongs to, where known.
    pub worker: Option<WorkerId>,
    /// The process.
    pub pid: Pid,
    /// Its state as `/proc` has it: `D` is uninterruptible sleep.
    pub state: char,
    /// Its command line.
    pub command: String,
}

impl Survivor {
    pub(crate) fn observe(pid: Pid, worker: Option<WorkerId>) -> Self {
        let state = machine::stat(pid).ok().flatten().map_or('?', |stat| stat.state);
        Self { worker, pid, state, command: machine::command_line(pid) }
    }
}

impl std::fmt::Display for Survivor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} (state {}) {}", self.pid, self.state, self.command)?;
        if let Some(worker) = &self.worker {
            write!(f, " of worker {worker}")?;
        }
        Ok(())
    }
}

/// Whom the barrier is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Everybody in the run, so that its cgroup may be killed as a whole.
    All,
    /// Those who are there now; the run goes on.
    Some,
    /// A single worker.
    One,
}

/// Runs the barrier over these workers.
pub(crate) fn stop_workers(
    run: &Inner,
    workers: Vec<Arc<Shared>>,
    grace: Duration,
    scope: Scope,
) -> StopReport {
    let began = Instant::now();
    let total = workers.len();
    let ids: Vec<WorkerId> = workers.iter().map(|worker| worker.id.clone()).collect();
    let worker = if scope == Scope::One { ids.first().cloned() } else { None };
    run.sink.emit(Event::CleanupStart { worker: worker.clone(), workers: total });
    if !grace.is_zero() {
        ask_to_end(run, &workers);
    }
    let mut left = wait_all(workers, began + grace);
    let killed = left.len();
    let retries = run.config.cleanup_max_retries.max(1);
    let longest = Instant::now() + run.config.retry_interval() * retries + UNTOLD_PATIENCE;
    for retry in 1.. {
        if left.is_empty() {
            break;
        }
        // Looking takes time, so it is left to the last KILL that is sure to come.
        let is_last = retry >= retries;
        let before: Vec<Pid> = if is_last { left.iter().flat_map(living_pids).collect() } else { Vec::new() };
        kill(run, &left, scope);
        left = wait_all(left, Instant::now() + run.config.retry_interval());
        let outlived_it = |worker: &Arc<Shared>| living_pids(worker).any(|pid| before.contains(&pid));
        if is_last && (left.iter().all(outlived_it) || Instant::now() > longest) {
            break;
        }
    }
    let mut survivors: Vec<Survivor> = left.iter().flat_map(|worker| survivors_of(worker)).collect();
    survivors.extend(run.unkillable_of(&ids, scope));
    let took = began.elapsed();
    if survivors.is_empty() {
        run.sink.emit(Event::CleanupSuccess { worker, workers: total, killed, took });
    } else {
        run.sink.emit(Event::CleanupTimeout { worker, killed, survivors: survivors.clone(), took });
    }
    StopReport { stopped: total - left.len(), killed, survivors, took }
}

/// A process that the run may not end, because it became another user's.
#[derive(Debug)]
pub(crate) struct Unkillable {
    worker: Option<WorkerId>,
    process: Found,
}

impl Inner {
    /// The keeper may not end this process of a worker.
    pub(crate) fn note_unkillable(&self, key: u64, pid: Pid) {
        let worker = self.table().workers.get(&key).map(|worker| worker.id.clone());
        if let Ok(Some(process)) = identity::open(pid) {
            let mut known = self.unkillable.lock().unwrap_or_else(PoisonError::into_inner);
            known.push(Unkillable { worker: worker.clone(), process });
        }
        self.sink.emit(Event::Unkillable { worker, pid });
    }

    /// Those who outlived a lost keeper and could not be ended.
    pub(crate) fn note_survivors(&self, survivors: Vec<Survivor>, killed: usize, took: Duration) {
        if survivors.is_empty() {
            return;
        }
        for Survivor { worker, pid, .. } in &survivors {
            if let Ok(Some(process)) = identity::open(*pid) {
                let mut known = self.unkillable.lock().unwrap_or_else(PoisonError::into_inner);
                known.push(Unkillable { worker: worker.clone(), process });
            }
        }
        self.sink.emit(Event::CleanupTimeout { worker: None, killed, survivors, took });
    }

    /// Those of them who still live, of these workers or of all.
    fn unkillable_of(&self, workers: &[WorkerId], scope: Scope) -> Vec<Survivor> {
        let mut known = self.unkillable.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|unkillable| unkillable.process.is_alive());
        let concerns = |unkillable: &&Unkillable| {
            scope == Scope::All || unkillable.worker.as_ref().is_some_and(|id| workers.contains(id))
        };
        let observed = |it: &Unkillable| Survivor::observe(it.process.pid, it.worker.clone());
        known.iter().filter(concerns).map(observed).collect()
    }
}

/// TERM, once for each of them, and CONT.
pub(crate) fn ask_to_end(run: &Inner, workers: &[Arc<Shared>]) {
    let Some(link) = run.link() else { return };
    // A stopped keeper would pass nothing on.
    link.signal(Signal::CONT);
    let term = if run.config.process_group_kill { Reach::Group } else { Reach::Process };
    for worker in workers {
        // CONT after TERM: a stopped worker cannot act on TERM before it goes on.
        let asks = (!worker.was_asked()).then_some((libc::SIGTERM, term));
        for (signal, reach) in asks.into_iter().chain([(libc::SIGCONT, Reach::Group)]) {
            if link.send(&ToKeeper::Signal { key: worker.key, signal, reach }.encode(), &[]).is_err() {
                // It does not listen: KILL will not depend on it.
                return;
            }
        }
    }
}

fn kill(run: &Inner, workers: &[Arc<Shared>], scope: Scope) {
    if let Some(link) = run.link() {
        link.signal(Signal::CONT);
        for worker in workers {
            if link.send(&ToKeeper::Kill { key: worker.key }.encode(), &[]).is_err() {
                break;
            }
        }
    }
    for worker in workers {
        // Directly too: it does not depend on a keeper that may be stopped.
        identity::kill_through(&worker.pidfd);
    }
    if let (Scope::All, Some(cgroup)) = (scope, &run.cgroup) {
        let _ = cgroup.kill();
    }
}

/// Waits for all of them; gives back those that have not ended by then.
fn wait_all(workers: Vec<Arc<Shared>>, deadline: Instant) -> Vec<Arc<Shared>> {
    workers.into_iter().filter(|worker| worker.wait_until(Some(deadline)).is_none()).collect()
}

/// Who lives of a worker: its main process, and everybody below its shim.
fn living_of(worker: &Shared) -> Vec<Survivor> {
    let mut pids = Vec::new();
    let mut next = vec![worker.shim];
    while let Some(parent) = next.pop() {
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
        for child in children.unwrap_or_default().split_ascii_whitespace() {
            let Some(pid) = child.parse().ok().and_then(Pid::new) else { continue };
            // Bounded, however much a hostile worker has started.
            if pids.len() < 1000 && !pids.contains(&pid) {
                pids.push(pid);
                next.push(pid);
            }
        }
    }
    let observe = |pid| Survivor::observe(pid, Some(worker.id.clone()));
    // Whoever has ended is not a survivor, even if a tracer keeps it from being reaped; `?` is gone.
    let lives = |survivor: &Survivor| !matches!(survivor.state, 'Z' | 'X' | '?');
    let mut living: Vec<Survivor> = pids.into_iter().map(observe).filter(lives).collect();
    // Where there is no `/proc`, it is the only one who can be seen.
    let main_ended = ready_within(&worker.pidfd, PollFlags::IN, Duration::ZERO);
    if !main_ended && living.iter().all(|survivor| survivor.pid != worker.pid) {
        living.push(observe(worker.pid));
    }
    living
}

fn living_pids(worker: &Arc<Shared>) -> impl Iterator<Item = Pid> + use<> {
    living_of(worker).into_iter().map(|survivor| survivor.pid)
}

/// Who lives of it; its main process where nobody is seen, since nobody has said that it ended.
fn survivors_of(worker: &Shared) -> Vec<Survivor> {
    let living = living_of(worker);
    if living.is_empty() { vec![Survivor::observe(worker.pid, Some(worker.id.clone()))] } else { living }
}
