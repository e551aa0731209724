//! The runs of this process, and the end of all of them at once.
//!
//! Owns the list of open runs; it keeps none of them alive. For a way out that has no handle at hand: a second signal
//! while the runtime is blocked, or the last step of an exit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::run::Inner;
use crate::{RunId, StopReport};

static RUNS: Mutex<Vec<Weak<Inner>>> = Mutex::new(Vec::new());

fn runs() -> MutexGuard<'static, Vec<Weak<Inner>>> {
    RUNS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A run is open.
pub(crate) fn enter(run: &Arc<Inner>) {
    let mut runs = runs();
    runs.retain(|run| run.strong_count() > 0);
    runs.push(Arc::downgrade(run));
}

/// A run has been stopped.
pub(crate) fn leave(run: &Inner) {
    runs().retain(|other| !std::ptr::eq(other.as_ptr(), run));
}

/// The stop barrier over every open run of this process, all at the same time; later spawns of theirs are refused, as
/// after [`Run::stop`](crate::Run::stop).
///
/// For an emergency: it needs no handle and no runtime, may be called on any thread and as often as one likes, and
/// takes no longer than the longest of the runs. A stop that is under way with more patience is cut short. Runs that
/// the process has inherited as a forked copy are left alone.
pub fn end_all(grace: Duration) -> Vec<(RunId, StopReport)> {
    end_each(|_| grace)
}

/// As [`end_all`], with the time that each run is configured with.
pub fn stop_all() -> Vec<(RunId, StopReport)> {
    end_each(|run| run.config.grace())
}

fn end_each(grace: impl Fn(&Inner) -> Duration + Sync) -> Vec<(RunId, StopReport)> {
    let open: Vec<_> = runs().iter().filter_map(Weak::upgrade).filter(|run| run.is_owner()).collect();
    let end = |run: &Inner| (run.id, run.end(grace(run)));
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
            // Without a thread, or with one that panicked, it is done here: what counts is that it is done.
            let report = thread.ok().and_then(|thread| thread.join().ok());
            reports.push(report.unwrap_or_else(|| end(run)));
        }
        reports
    })
}
