//! The thread that extends leases when the runtime cannot: handlers may block all threads of the runtime, and with them
//! the task of a run.
//!
//! The process has one such thread. It starts with the first run and ends with the last. The task of a run extends
//! leases once per extension period. The thread steps in after two periods without an extension. It uses real time,
//! whatever clock the runtime has.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::OptionFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::{extend_all, extension_period, retry_period};
use crate::locked;
use crate::receive::RunContext;

/// The number of extension periods without an extension after which the thread steps in.
const MISSED_PERIODS: u32 = 2;

/// All runs of the process.
static RUNS: Mutex<GuardedRuns> = Mutex::new(GuardedRuns { next: 0, runs: BTreeMap::new(), thread: None });

struct GuardedRuns {
    next: u64,
    runs: BTreeMap<u64, Arc<RunContext>>,
    /// Notified when the runs have changed. `None` while there is no thread.
    thread: Option<Arc<Notify>>,
}

impl GuardedRuns {
    fn wake_thread(&self) {
        if let Some(thread) = &self.thread {
            thread.notify_one();
        }
    }
}

/// The guard of a run, whose leases the thread watches while the guard is held.
#[derive(Debug)]
pub(crate) struct LeaseGuard(u64);

impl LeaseGuard {
    pub(crate) fn new(run: Arc<RunContext>) -> io::Result<Self> {
        let mut all = locked(&RUNS);
        if all.thread.is_none() {
            // Built here, so that the caller gets the error if this fails.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
            let changed = Arc::new(Notify::new());
            let changes = Arc::clone(&changed);
            std::thread::Builder::new()
                .name("snakepit-leases".to_owned())
                .spawn(move || runtime.block_on(watch_leases(&changes)))?;
            all.thread = Some(changed);
        }
        let number = all.next;
        all.next += 1;
        all.runs.insert(number, run);
        all.wake_thread();
        Ok(Self(number))
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        let mut all = locked(&RUNS);
        let run = all.runs.remove(&self.0);
        all.wake_thread();
        drop(all);
        // This may drop the messages of the run, which needs no lock.
        drop(run);
    }
}

/// Returns when the thread must step in, unless the leases are extended before.
fn due(run: &RunContext, now: Instant) -> Instant {
    let limit = extension_period(run.leases.visibility) * MISSED_PERIODS;
    now + limit.saturating_sub(run.leases.extended.age())
}

/// Runs the thread.
async fn watch_leases(changed: &Notify) {
    // `None` means that the leases of the run are being extended. A time means that the next attempt must not come
    // sooner.
    let mut tries: BTreeMap<u64, Option<Instant>> = BTreeMap::new();
    let mut rounds = FuturesUnordered::new();
    loop {
        let mut next: Option<Instant> = None;
        {
            let mut all = locked(&RUNS);
            if all.runs.is_empty() {
                // The next run starts another thread.
                all.thread = None;
                return;
            }
            tries.retain(|number, _| all.runs.contains_key(number));
            let now = Instant::now();
            for (number, run) in &all.runs {
                let at = match tries.get(number) {
                    Some(None) => continue,
                    Some(Some(again)) => due(run, now).max(*again),
                    None => due(run, now),
                };
                if at > now {
                    next = Some(next.map_or(at, |next| next.min(at)));
                    continue;
                }
                tries.insert(*number, None);
                let (number, run) = (*number, Arc::clone(run));
                rounds.push(async move { (number, extend_overdue(&run).await) });
            }
        }
        tokio::select! {
            () = changed.notified() => {}
            Some((number, again_in)) = rounds.next(), if !rounds.is_empty() => {
                tries.insert(number, Some(Instant::now() + again_in));
            }
            Some(()) = OptionFuture::from(next.map(sleep_until)) => {}
        }
    }
}

/// Extends the leases of a run. Returns the shortest time until the next attempt.
async fn extend_overdue(run: &RunContext) -> Duration {
    // The deadline for the run's end has passed, so its leases run out.
    if run.control.wanted().is_overdue() {
        return extension_period(run.leases.visibility);
    }
    if extend_all(run).await { Duration::ZERO } else { retry_period(run.leases.visibility) }
}
