//! One worker's life after it got ready: it serves, until it dies, breaks or is told to end.
//!
//! ```text
//! Serve ──► Retire ──(no call left)──► goodbye ──► stop ──► gone
//!   │          │                                             ▲
//!   └──────────┴──(died, broken, End)──► stop or kill ───────┴──► its calls are given up
//! ```
//!
//! What a worker holds is given up when its process is gone, not before: one that lives may still start what it was sent.
//!
//! A worker that ends alone has times of its own: [`GOODBYE`], then `cancel_grace.terminate` from TERM to KILL. When its
//! engine stops, the [`StopWindow`] takes their place, also in the middle, and KILL is the engine's.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Autopsy, Verdict, Worker, WorkerOrder, has_ended, locked};
use crate::adapter::Reason;
use crate::custody::{self, ExitStatus};
use crate::lifecycle::shutdown::ignoring_panics;
use crate::lifecycle::stop_window::StopWindow;
use crate::pool::AUTOPSY_PATIENCE;

/// How long a worker that ends alone may take to say goodbye after its last call, before TERM; and an adapter to put away one
/// that is gone.
pub(crate) const GOODBYE: Duration = Duration::from_secs(3);

/// How long a killed process may take to be gone. It is a matter of milliseconds, unless the kernel holds it.
const KILL_PATIENCE: Duration = Duration::from_secs(1);

/// How long a worker that is about to be ended may take to say where it is.
const STACK_PATIENCE: Duration = Duration::from_secs(1);

/// How a worker came to its end.
#[derive(Debug)]
pub(crate) enum WorkerEnding {
    /// It was told to.
    Told,
    /// It was not.
    Untold {
        autopsy: Arc<Autopsy>,
        /// Whether it had answered a call.
        answered: bool,
    },
}

/// How long a worker has to end.
pub(crate) struct EndTimes {
    /// Between TERM and KILL, if it ends alone.
    pub(crate) grace: Duration,
    /// The window of its engine's stop, once that has come to its workers.
    pub(crate) stopping: watch::Receiver<Option<StopWindow>>,
}

impl EndTimes {
    fn window(&self) -> Option<StopWindow> {
        *self.stopping.borrow()
    }

    /// Until `own`, or what `of_window` says as soon as the engine stops.
    async fn passed(&self, own: Instant, of_window: impl Fn(StopWindow) -> Instant) {
        let mut stopping = self.stopping.clone();
        loop {
            let until = stopping.borrow_and_update().map_or(own, &of_window);
            tokio::select! {
                () = tokio::time::sleep_until(until) => return,
                // An error is the end of the pool's supervisor: nothing changes any more.
                Ok(()) = stopping.changed() => {}
            }
        }
    }
}

/// Stays with a worker until it and all that it started are gone.
pub(crate) async fn tend(worker: Arc<Worker>, times: EndTimes, leaves: impl FnOnce()) -> WorkerEnding {
    let mut left_alone = AbandonedWorker(Some(Arc::clone(&worker)));
    let mut leaves = Some(leaves);
    let mut orders = worker.orders();
    let gone = gone(&worker);
    let halts = heed_halts(&worker);
    tokio::pin!(gone, halts);
    let ending = loop {
        let order = orders.borrow_and_update().clone();
        match order {
            WorkerOrder::Serve => tokio::select! {
                reason = &mut gone => break reason,
                _ = orders.changed() => {}
                never = &mut halts => match never {},
            },
            WorkerOrder::Retire(reason) => {
                worker.pool.retire(worker.index);
                if let Some(leaves) = leaves.take() {
                    leaves();
                }
                tokio::select! {
                    reason = &mut gone => break reason,
                    _ = orders.changed() => {}
                    () = worker.holds_at_most(0) => break reason,
                }
            }
            WorkerOrder::End(reason) => break reason,
        }
    };
    worker.pool.retire(worker.index);
    let answered = worker.has_answered();
    let outcome = match &ending {
        Reason::Stopped | Reason::Replaced(_) => {
            end_as_told(&worker, &ending, &times).await;
            WorkerEnding::Told
        }
        Reason::Died | Reason::Broken(_) | Reason::Stubborn(_) | Reason::Stuck(_) => {
            end_after_failure(&worker, &ending, &times).await;
            if matches!(ending, Reason::Stubborn(_)) {
                WorkerEnding::Told
            } else {
                let known = worker.autopsy.borrow().clone();
                let autopsy = known.unwrap_or_else(|| Arc::new(worker.first_look()));
                WorkerEnding::Untold { autopsy, answered }
            }
        }
    };
    worker.pool.scheduler().vacate(worker.index);
    left_alone.0 = None;
    outcome
}

/// A worker with which nobody stays any more, because the runtime is dropped under the engine. Its callers may live in
/// another runtime, and wait.
struct AbandonedWorker(Option<Arc<Worker>>);

impl Drop for AbandonedWorker {
    fn drop(&mut self) {
        let Some(worker) = self.0.take() else { return };
        let why = "the runtime of its engine was dropped";
        let seen = worker.first_look();
        worker.set_autopsy(Arc::new(Autopsy { fault: Some(why.into()), oom: Verdict::No, ..seen }));
        // Begun and dropped: that gives up what it holds. An end that was begun before has been dropped by now, too.
        ignoring_panics(|| {
            let _ = worker.terminate(Reason::Broken(why.into())).now_or_never();
        });
    }
}

/// Until it can serve no more.
async fn gone(worker: &Worker) -> Reason {
    tokio::select! {
        () = process_ended(worker.handle.process()) => Reason::Died,
        why = worker.handle.broken() => Reason::Broken(why),
    }
}

/// Tells the pool whenever the worker's process is stopped or goes on.
async fn heed_halts(worker: &Arc<Worker>) -> Infallible {
    let Some(process) = worker.handle.process() else { return std::future::pending().await };
    let mut known = None;
    loop {
        known = process.halt_changed(known).await;
        *locked(&worker.halted) = known.map(|_| Instant::now());
        worker.pool.note_halt(worker);
    }
}

/// Until the worker's process, and all that it started, has ended. The keeper tells within a millisecond or two.
pub(crate) async fn process_ended(process: Option<&custody::WorkerProcess>) {
    match process {
        Some(process) => drop(process.exited().await),
        None => std::future::pending().await,
    }
}

async fn end_as_told(worker: &Arc<Worker>, reason: &Reason, times: &EndTimes) {
    let had_its_time = worker.holds_calls();
    if let Some(process) = worker.handle.process().filter(|_| worker.is_halted()) {
        // One that is stopped could neither say goodbye nor heed TERM.
        let _ = process.signal(rustix::process::Signal::CONT.as_raw());
    }
    let mut goodbye = pin!(worker.terminate(reason.clone()));
    let is_said = if had_its_time {
        goodbye.as_mut().now_or_never().is_some()
    } else {
        tokio::select! {
            biased;
            () = &mut goodbye => true,
            () = times.passed(Instant::now() + GOODBYE, |window| window.term_at) => false,
        }
    };
    // Why is known now; how it ended comes later.
    publish_autopsy(worker, reason, None).await;
    if let Some(process) = worker.handle.process() {
        match times.window() {
            Some(window) => end_in_window(process, window).await,
            // If the engine stops meanwhile, its KILL ends this, too.
            None => stop_process(process, times.grace).await,
        }
    }
    publish_autopsy(worker, reason, None).await;
    // Only now is it certain which of its calls were not started, and its last answers count, too.
    if !is_said {
        let _ = tokio::time::timeout(AUTOPSY_PATIENCE, goodbye).await;
    }
}

async fn end_after_failure(worker: &Arc<Worker>, reason: &Reason, times: &EndTimes) {
    // One that we end has not told by itself where it is.
    let by_us = matches!(reason, Reason::Stubborn(_) | Reason::Stuck(_));
    let stack = if by_us {
        tokio::select! {
            stack = tokio::time::timeout(STACK_PATIENCE, worker.stacks()) => stack.ok().flatten(),
            // It is killed meanwhile if its engine stops.
            () = process_ended(worker.handle.process()) => None,
        }
    } else {
        None
    };
    // A socket that breaks is most often the first sign of a death.
    let ended = match worker.handle.process() {
        Some(process) => {
            if by_us {
                stop_process(process, times.grace).await;
            }
            tokio::time::timeout(AUTOPSY_PATIENCE / 2, process_ended(Some(process))).await.is_ok()
        }
        None => false,
    };
    // On a machine that has much to do, it may be dead for longer before the keeper has told.
    let has_died = ended || worker.handle.process().is_some_and(|process| has_ended(process.pid()));
    let reason = match reason {
        Reason::Broken(_) if has_died => &Reason::Died,
        other => other,
    };
    if let Some(process) = worker.handle.process().filter(|_| !ended) {
        // It must not start a call that another one is about to be given.
        let _ = process.kill();
        let _ = tokio::time::timeout(KILL_PATIENCE, process.exited()).await;
    }
    // The calls that it surely did not start go to others now, the rest wait for the autopsy.
    let put_away_by = Instant::now() + GOODBYE;
    tokio::select! {
        biased;
        () = worker.terminate(reason.clone()) => {}
        () = times.passed(put_away_by, |window| put_away_by.min(window.kill_at + AUTOPSY_PATIENCE)) => {}
    }
    if let Some(process) = worker.handle.process() {
        let _ = tokio::time::timeout(AUTOPSY_PATIENCE / 4, process.exited()).await;
        let _ = tokio::time::timeout(AUTOPSY_PATIENCE / 4, worker.output.complete()).await;
    }
    publish_autopsy(worker, reason, stack).await;
    if let Some(process) = worker.handle.process() {
        stop_process(process, Duration::ZERO).await;
    }
}

async fn publish_autopsy(worker: &Worker, reason: &Reason, stack: Option<String>) {
    let fault = match reason {
        Reason::Died => None,
        Reason::Stopped => Some("its pool stopped before it had answered".into()),
        Reason::Broken(why) | Reason::Replaced(why) => Some(why.clone()),
        Reason::Stubborn(call) => Some(format!("call {call} was cancelled and did not end")),
        Reason::Stuck(time) => Some(format!("it had a call and showed no sign of life for {time:?}")),
    };
    let seen = worker.first_look();
    let oom = match &fault {
        None => memory_verdict(worker, &seen).await,
        Some(_) => Verdict::No,
    };
    let autopsy = Arc::new(Autopsy { fault, oom, stack: stack.or(seen.stack.clone()), ..seen });
    // Before anybody hears of the death, so that who calls again because of it finds it in the book.
    worker.judge(reason, &autopsy);
    worker.set_autopsy(autopsy);
}

/// Whether the kernel killed it, if it was killed and not by us.
async fn memory_verdict(worker: &Worker, seen: &Autopsy) -> Verdict {
    let killed = Some(ExitStatus::Signal(rustix::process::Signal::KILL.as_raw()));
    let Some(pid) = seen.pid.filter(|_| seen.exit.map(|exit| exit.status) == killed) else { return seen.oom };
    let teller = worker.pool.oom.clone();
    let asked = tokio::task::spawn_blocking(move || teller.verdict(pid.as_raw()));
    asked.await.unwrap_or(Verdict::Unknown)
}

/// TERM, and the rest of the window until the engine's KILL.
async fn end_in_window(process: &custody::WorkerProcess, window: StopWindow) {
    if window.asks() {
        process.ask_to_end();
    }
    if tokio::time::timeout_at(window.kill_at + KILL_PATIENCE, process.exited()).await.is_err() {
        // The engine's KILL has not come, or was not enough.
        stop_process(process, Duration::ZERO).await;
    }
}

/// TERM, grace, KILL, until it and all that it started are gone.
async fn stop_process(process: &custody::WorkerProcess, grace: Duration) {
    if process.try_wait().is_none() {
        let process = process.clone();
        let _ = tokio::task::spawn_blocking(move || process.stop(grace)).await;
    }
}
