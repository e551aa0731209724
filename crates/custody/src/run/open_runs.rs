//! The open runs of this process, and the end of all of them at once.
//!
//! Owns the list of open runs, and keeps none of them alive. It serves callers without a handle, for example when a
//! second signal comes while the runtime is blocked, or as the last step of an exit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::run::shared_state::RunInner;
use crate::{RunId, StopReport};

static RUNS: Mutex<Vec<Weak<RunInner>>> = Mutex::new(Vec::new());

fn runs() -> MutexGuard<'static, Vec<Weak<RunInner>>> {
    RUNS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds an open run.
pub(crate) fn add(run: &Arc<RunInner>) {
    let mut runs = runs();
    runs.retain(|run| run.strong_count() > 0);
    runs.push(Arc::downgrade(run));
}

/// Removes a run that was stopped.
pub(crate) fn remove(run: &RunInner) {
    runs().retain(|other| !std::ptr::eq(other.as_ptr(), run));
}

/// A run that was stopped.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoppedRun {
    /// The run.
    pub run: RunId,
    /// What became of its workers.
    pub report: StopReport,
}

/// Stops every open run of this process at the same time. Later spawns are refused, as after
/// [`Run::stop`](crate::Run::stop).
///
/// For emergencies: the function needs no handle and no runtime, may be called on any thread and any number of times,
/// and takes no longer than the slowest run. It shortens stops with a longer grace that are in progress. Runs that a
/// forked process inherited are left alone.
pub fn end_all(grace: Duration) -> Vec<StoppedRun> {
    end_each(|_| grace)
}

/// Like [`end_all`], with the configured grace of each run.
pub fn stop_all() -> Vec<StoppedRun> {
    end_each(|run| run.config.grace())
}

fn end_each(grace: impl Fn(&RunInner) -> Duration + Sync) -> Vec<StoppedRun> {
    let open: Vec<_> = runs().iter().filter_map(Weak::upgrade).filter(|run| run.is_owner()).collect();
    let end = |run: &RunInner| StoppedRun { run: run.id, report: run.end(grace(run)) };
    let Some((first, others)) = open.split_first() else { return Vec::new() };
    std::thread::scope(|scope| {
        let begun: Vec<_> = others
            .iter()
            .map(|run| {
                let thread = std::thread::Builder::new().name("snakepit-end".to_owned());
                (run, thread.spawn_scoped(scope, move || end(run)))
            })
            .collect();
        let mut reports = vec![end(first)];
        for (run, thread) in begun {
            // If the thread could not be started or panicked, the run is stopped here.
            let report = thread.ok().and_then(|thread| thread.join().ok());
            reports.push(report.unwrap_or_else(|| end(run)));
        }
        reports
    })
}
