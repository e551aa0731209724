//! The stop barrier: TERM, wait, KILL, wait, and a report of the survivors.
//!
//! The barrier has four steps. It collects the living workers. It sends TERM and CONT to each group and waits up to the
//! grace. It sends KILL to the rest, as often as configured. It reports the survivors: the processes that KILL does not
//! change (`survivors.rs`). As long as KILL changes something, the shims are still at work, and the barrier waits a while
//! longer.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::link::wire::{SignalReach, ToKeeper};
use crate::process::identity::{self, LiveProcess};
use crate::run::event::CustodyEvent;
use crate::run::shared_state::RunInner;
use crate::serve::worker_state::WorkerState;
use crate::{Pid, WorkerId};

use super::report::{StopReport, Survivor};
use super::survivors::{Unchanged, survivors_of};

/// How much longer the barrier waits for shims that are still at work after the last KILL.
const SHIM_TIMEOUT: Duration = Duration::from_secs(5);

/// The processes that the barrier stops.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopScope {
    /// All processes of the run. Its cgroup may be killed as a whole.
    WholeRun,
    /// The workers that are alive now. The run continues.
    LivingWorkers,
    /// One worker.
    OneWorker,
}

/// Runs the barrier over these workers.
pub(crate) fn stop_workers(
    run: &RunInner,
    workers: Vec<Arc<WorkerState>>,
    grace: Duration,
    scope: StopScope,
) -> StopReport {
    let began = Instant::now();
    let total = workers.len();
    let ids: Vec<WorkerId> = workers.iter().map(|worker| worker.id.clone()).collect();
    let worker = if scope == StopScope::OneWorker { ids.first().cloned() } else { None };
    run.sink.emit(CustodyEvent::CleanupStart { worker: worker.clone(), workers: total });
    if !grace.is_zero() {
        ask_to_end(run, &workers);
    }
    let mut left = wait_all(workers, began + grace);
    let killed = left.len();
    let retries = run.config.cleanup_max_retries.max(1);
    let interval = run.config.retry_interval();
    let longest = Instant::now() + interval * retries + SHIM_TIMEOUT;
    // A process that KILL cannot reach at all is reported right after the last retry.
    let mut unchanged = Unchanged::for_at_least(interval * (retries - 1).max(1));
    for retry in 1.. {
        if left.is_empty() {
            break;
        }
        kill(run, &left, scope);
        left = wait_all(left, Instant::now() + interval);
        let all_are_stuck = unchanged.all_are_stuck(&left);
        if retry >= retries && (all_are_stuck || Instant::now() > longest) {
            break;
        }
    }
    let mut survivors: Vec<Survivor> = left.iter().flat_map(|worker| survivors_of(worker)).collect();
    survivors.extend(run.unkillable_of(&ids, scope));
    let took = began.elapsed();
    if survivors.is_empty() {
        run.sink.emit(CustodyEvent::CleanupSuccess { worker, workers: total, killed, took });
    } else {
        run.sink.emit(CustodyEvent::CleanupTimeout { worker, killed, survivors: survivors.clone(), took });
    }
    StopReport { stopped: total - left.len(), killed, survivors, took }
}

/// A process that the run may not signal, because it now belongs to another user.
#[derive(Debug)]
pub(crate) struct UnkillableProcess {
    worker: Option<WorkerId>,
    process: LiveProcess,
}

impl RunInner {
    /// Records that the keeper may not signal this process of a worker.
    pub(crate) fn note_unkillable(&self, key: u64, pid: Pid) {
        let worker = self.table().workers.get(&key).map(|worker| worker.id.clone());
        if let Ok(Some(process)) = identity::open(pid) {
            let mut known = self.unkillable.lock().unwrap_or_else(PoisonError::into_inner);
            known.push(UnkillableProcess { worker: worker.clone(), process });
        }
        self.sink.emit(CustodyEvent::Unkillable { worker, pid });
    }

    /// Records the processes that outlived a lost keeper and could not be ended.
    pub(crate) fn note_survivors(&self, survivors: Vec<Survivor>, killed: usize, took: Duration) {
        if survivors.is_empty() {
            return;
        }
        for Survivor { worker, pid, .. } in &survivors {
            if let Ok(Some(process)) = identity::open(*pid) {
                let mut known = self.unkillable.lock().unwrap_or_else(PoisonError::into_inner);
                known.push(UnkillableProcess { worker: worker.clone(), process });
            }
        }
        self.sink.emit(CustodyEvent::CleanupTimeout { worker: None, killed, survivors, took });
    }

    /// Returns the living unkillable processes of these workers or of the whole run.
    fn unkillable_of(&self, workers: &[WorkerId], scope: StopScope) -> Vec<Survivor> {
        let mut known = self.unkillable.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|unkillable| unkillable.process.is_alive());
        let concerns = |unkillable: &&UnkillableProcess| {
            scope == StopScope::WholeRun || unkillable.worker.as_ref().is_some_and(|id| workers.contains(id))
        };
        let observed = |it: &UnkillableProcess| Survivor::observe(it.process.pid, it.worker.clone());
        known.iter().filter(concerns).map(observed).collect()
    }
}

/// Sends TERM and CONT. TERM goes only to workers that have not received it before.
pub(crate) fn ask_to_end(run: &RunInner, workers: &[Arc<WorkerState>]) {
    let Some(link) = run.link() else { return };
    // A stopped keeper forwards nothing.
    link.signal(Signal::CONT);
    let term = if run.config.process_group_kill { SignalReach::Group } else { SignalReach::Process };
    for worker in workers {
        // CONT follows TERM, because a stopped worker acts on TERM only once it continues.
        let asks = (!worker.was_asked()).then_some((libc::SIGTERM, term));
        for (signal, reach) in asks.into_iter().chain([(libc::SIGCONT, SignalReach::Group)]) {
            if link.send(&ToKeeper::Signal { key: worker.key, signal, reach }.encode(), &[]).is_err() {
                // The keeper does not listen. KILL does not depend on the keeper.
                return;
            }
        }
    }
}

fn kill(run: &RunInner, workers: &[Arc<WorkerState>], scope: StopScope) {
    if let Some(link) = run.link() {
        link.signal(Signal::CONT);
        for worker in workers {
            if link.send(&ToKeeper::Kill { key: worker.key }.encode(), &[]).is_err() {
                break;
            }
        }
    }
    for worker in workers {
        // Also kill the worker directly, because the keeper may be stopped.
        identity::kill_through(&worker.pidfd);
    }
    if let (StopScope::WholeRun, Some(cgroup)) = (scope, &run.cgroup) {
        let _ = cgroup.kill();
    }
}

/// Waits for all workers. Returns those that have not ended by the deadline.
fn wait_all(workers: Vec<Arc<WorkerState>>, deadline: Instant) -> Vec<Arc<WorkerState>> {
    workers.into_iter().filter(|worker| worker.wait_until(Some(deadline)).is_none()).collect()
}
