//! The thread that extends leases when the runtime does not: a handler may block each of its threads, and then the task that turns
//! the loop does not run. What is in hand stays with those who handle it.
//!
//! There is one for the process. It is started with the first run and ends with the last. A run's own task extends leases every
//! third of their time; the thread looks after two thirds and does what was not done by then. It goes by the real clock, whatever
//! clock the runtime has.

use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::extending::{extend_all, period};
use super::handling::Shared;

/// All runs of the process.
static RUNS: Mutex<Registry> = Mutex::new(Registry { next: 0, runs: BTreeMap::new(), thread: None });

struct Registry {
    next: u64,
    runs: BTreeMap<u64, Arc<Shared>>,
    /// Rings when the runs have changed; none while there is no thread.
    thread: Option<Arc<Notify>>,
}

fn runs() -> MutexGuard<'static, Registry> {
    RUNS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A run whose leases the thread looks after, for as long as this is held.
#[derive(Debug)]
pub(super) struct Guarded(u64);

impl Guarded {
    pub(super) fn new(shared: Arc<Shared>) -> io::Result<Self> {
        let mut all = runs();
        if all.thread.is_none() {
            // Made here, so that whoever cannot have it hears of it.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
            let changed = Arc::new(Notify::new());
            let hears = Arc::clone(&changed);
            std::thread::Builder::new()
                .name("snakepit-leases".to_owned())
                .spawn(move || runtime.block_on(look_after(&hears)))?;
            all.thread = Some(changed);
        }
        let number = all.next;
        all.next += 1;
        all.runs.insert(number, shared);
        if let Some(thread) = &all.thread {
            thread.notify_one();
        }
        Ok(Self(number))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let mut all = runs();
        let shared = all.runs.remove(&self.0);
        if let Some(thread) = &all.thread {
            thread.notify_one();
        }
        drop(all);
        // It may be the last to hold the messages, which is no matter for the lock.
        drop(shared);
    }
}

/// When the leases of a run are to be looked at, unless that was done meanwhile.
fn due(shared: &Shared, now: Instant) -> Instant {
    now + (shared.leases.visibility * 2 / 3).saturating_sub(shared.leases.extended.age())
}

/// The life of the thread.
async fn look_after(changed: &Notify) {
    // Those whose leases are being extended, and those for which that has failed, which have to wait.
    let mut waits: BTreeMap<u64, Option<Instant>> = BTreeMap::new();
    let mut rounds = FuturesUnordered::new();
    loop {
        let mut next: Option<Instant> = None;
        {
            let mut all = runs();
            if all.runs.is_empty() {
                // Whoever comes now starts another thread.
                all.thread = None;
                return;
            }
            waits.retain(|number, _| all.runs.contains_key(number));
            let now = Instant::now();
            for (number, shared) in &all.runs {
                let at = match waits.get(number) {
                    Some(None) => continue,
                    Some(Some(again)) => due(shared, now).max(*again),
                    None => due(shared, now),
                };
                if at > now {
                    next = Some(next.map_or(at, |next| next.min(at)));
                    continue;
                }
                waits.insert(*number, None);
                let (number, shared) = (*number, Arc::clone(shared));
                rounds.push(async move { (number, round(&shared).await) });
            }
        }
        tokio::select! {
            () = changed.notified() => {}
            Some((number, again_in)) = rounds.next(), if !rounds.is_empty() => {
                waits.insert(number, Some(Instant::now() + again_in));
            }
            () = until(next) => {}
        }
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

/// Extends the leases of a run; gives the least time until the next look.
async fn round(shared: &Shared) -> Duration {
    let period = period(shared.leases.visibility);
    // Nobody waits for its end any more: its leases are to run out.
    if shared.control.wanted().is_overdue() {
        return period;
    }
    if extend_all(shared).await { Duration::ZERO } else { period / 3 }
}
