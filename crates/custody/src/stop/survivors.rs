//! Detects the processes of a worker that outlive KILL.
//!
//! A process that is ending can look stuck for a moment: it waits in the kernel for a lock, or its shim has stopped it
//! and not killed it yet. So KILL has failed only if the same processes live for a while, and none of them runs in that
//! time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use crate::Pid;
use crate::process::wait::ready_within;
use crate::serve::worker_state::WorkerState;

use super::report::Survivor;

/// How long KILL has changed nothing, for each worker that has not ended.
pub(super) struct Unchanged {
    threshold: Duration,
    by_worker: HashMap<u64, (Look, Instant)>,
}

/// The living processes of a worker, and how often each has run.
#[derive(PartialEq)]
struct Look(HashMap<Pid, u64>);

impl Unchanged {
    /// Creates a detector that considers a worker stuck once nothing has changed for `threshold`.
    pub(super) fn for_at_least(threshold: Duration) -> Self {
        Self { threshold, by_worker: HashMap::new() }
    }

    /// Looks at these workers again. Returns whether all of them are stuck.
    pub(super) fn all_are_stuck(&mut self, workers: &[Arc<WorkerState>]) -> bool {
        let now = Instant::now();
        let mut all = true;
        for worker in workers {
            let Some(look) = look_at(worker) else {
                self.by_worker.remove(&worker.key);
                all = false;
                continue;
            };
            let (before, since) = self.by_worker.entry(worker.key).or_insert((Look(HashMap::new()), now));
            if *before != look {
                (*before, *since) = (look, now);
            }
            all &= now.duration_since(*since) >= self.threshold;
        }
        all
    }
}

/// Returns `None` in two cases: no process is visible, because the report of the worker's end is still on its way; or a
/// process is stopped. KILL ends stopped processes, too, so a stopped process has not received it yet.
fn look_at(worker: &WorkerState) -> Option<Look> {
    let living = living_of(worker);
    if living.is_empty() || living.iter().any(|process| process.state == 'T') {
        return None;
    }
    Some(Look(living.into_iter().map(|process| (process.pid, times_run(process.pid))).collect()))
}

/// Returns how often the kernel has taken a process off its core, or 0 if that cannot be read.
fn times_run(pid: Pid) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let count = |line: &str| line.split_once("ctxt_switches:")?.1.trim().parse::<u64>().ok();
    status.lines().filter_map(count).sum()
}

/// Returns the living processes of a worker: its main process and all descendants of its shim.
fn living_of(worker: &WorkerState) -> Vec<Survivor> {
    let mut pids = Vec::new();
    let mut next = vec![worker.shim];
    while let Some(parent) = next.pop() {
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
        for child in children.unwrap_or_default().split_ascii_whitespace() {
            let Some(pid) = child.parse().ok().and_then(Pid::new) else { continue };
            // The list is bounded, however many processes a hostile worker has started.
            if pids.len() < 1000 && !pids.contains(&pid) {
                pids.push(pid);
                next.push(pid);
            }
        }
    }
    let observe = |pid| Survivor::observe(pid, Some(worker.id.clone()));
    // A process that has ended is not a survivor, even if a tracer keeps it from being reaped. A process in `?` is
    // gone.
    let lives = |survivor: &Survivor| !matches!(survivor.state, 'Z' | 'X' | '?');
    let mut living: Vec<Survivor> = pids.into_iter().map(observe).filter(lives).collect();
    // Without `/proc`, only the main process is visible.
    let main_ended = ready_within(&worker.pidfd, PollFlags::IN, Duration::ZERO);
    if !main_ended && living.iter().all(|survivor| survivor.pid != worker.pid) {
        living.push(observe(worker.pid));
    }
    living
}

/// Returns the living processes of a worker, or its main process if none is visible, because its end was not reported.
pub(super) fn survivors_of(worker: &WorkerState) -> Vec<Survivor> {
    let living = living_of(worker);
    if living.is_empty() { vec![Survivor::observe(worker.pid, Some(worker.id.clone()))] } else { living }
}
