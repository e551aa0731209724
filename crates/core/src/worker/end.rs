//! The life of a worker after it is ready: it serves until it dies, breaks or is ordered to end.
//!
//! ```text
//! Serve ──► Retire ──(no call left)──► terminate ──► stop ──► gone
//!   │          │                                               ▲
//!   └──────────┴──(died, broken, End)──► stop or kill ─────────┴──► its calls are given up
//! ```
//!
//! A worker's calls are given up when its process is gone, not before: a living process may still start what it was
//! sent.
//!
//! A worker that ends alone has its own time limits: [`EXIT_TIMEOUT`], then `cancel_grace.terminate` from TERM to KILL.
//! When its engine stops, the [`StopWindow`] replaces them, even in the middle, and the engine sends KILL.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Autopsy, OomVerdict, StopWindow, Worker, WorkerOrder, has_ended, locked};
use crate::adapter::{ProtocolFault, Reason};
use crate::custody::{self, ExitStatus};
use crate::error_text::ignoring_panics;

/// How long a worker that ends alone may take to exit by itself after its last call, before it gets TERM. Also the time
/// that an adapter has to clean up after a worker that is gone.
pub(crate) const EXIT_TIMEOUT: Duration = Duration::from_secs(3);

/// The longest time that the error of a lost call waits for the worker's autopsy.
pub const AUTOPSY_PATIENCE: Duration = Duration::from_millis(40);

/// How long a killed process may take to be gone. This takes milliseconds, unless the kernel holds the process.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a worker that is about to be ended may take to report its stacks.
const STACK_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the death of a worker may take to be reported after its connection broke.
const DEATH_NOTICE: Duration = Duration::from_millis(20);

/// How long callers wait for the exit status of a dead worker before they get the error without it.
const EXIT_NOTICE: Duration = Duration::from_millis(10);

/// How long callers wait for the last output of a dead worker before they get the error without it.
const LAST_OUTPUT: Duration = Duration::from_millis(10);

/// Callers wait no longer than this for the autopsy.
const _: () = assert!(
    DEATH_NOTICE.as_millis() + EXIT_NOTICE.as_millis() + LAST_OUTPUT.as_millis()
        <= AUTOPSY_PATIENCE.as_millis()
);

/// How a worker ended.
#[derive(Debug)]
pub(crate) enum WorkerEnding {
    /// The worker was ordered to end, or did not end a cancelled call.
    Ordered,
    /// The worker died, broke or was stuck.
    Failed {
        autopsy: Arc<Autopsy>,
        /// Whether the worker had answered a call.
        answered: bool,
    },
}

/// The time limits for a worker's end.
pub(crate) struct EndTimes {
    /// The time between TERM and KILL, if the worker ends alone.
    pub(crate) grace: Duration,
    /// The stop window of the engine, once the stop has reached its workers.
    pub(crate) stopping: watch::Receiver<Option<StopWindow>>,
}

impl EndTimes {
    fn window(&self) -> Option<StopWindow> {
        *self.stopping.borrow()
    }

    /// Waits until `own`, or until the time that `of_window` returns once the engine stops.
    async fn passed(&self, own: Instant, of_window: impl Fn(StopWindow) -> Instant) {
        let mut stopping = self.stopping.clone();
        loop {
            let until = stopping.borrow_and_update().map_or(own, &of_window);
            tokio::select! {
                () = tokio::time::sleep_until(until) => return,
                // An error means that the pool's supervisor has ended: nothing changes any more.
                Ok(()) = stopping.changed() => {}
            }
        }
    }
}

/// Manages a worker until it and all processes that it started are gone. Calls `leaves` when the worker retires.
pub(crate) async fn tend(worker: Arc<Worker>, times: EndTimes, leaves: impl FnOnce()) -> WorkerEnding {
    let mut abandoned = AbandonedWorker(Some(Arc::clone(&worker)));
    let mut leaves = Some(leaves);
    let mut orders = worker.orders();
    let gone = gone(&worker);
    let halts = watch_halts(&worker);
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
                Arc::clone(&worker.queue).retire(worker.index);
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
    Arc::clone(&worker.queue).retire(worker.index);
    let answered = worker.has_answered();
    let outcome = match &ending {
        Reason::Stopped | Reason::Replaced(_) => {
            end_as_ordered(&worker, &ending, &times).await;
            WorkerEnding::Ordered
        }
        Reason::Died | Reason::Broken(_) | Reason::CancelIgnored(_) | Reason::Stuck(_) => {
            end_after_failure(&worker, &ending, &times).await;
            if matches!(ending, Reason::CancelIgnored(_)) {
                WorkerEnding::Ordered
            } else {
                let known = worker.autopsy.borrow().clone();
                let autopsy = known.unwrap_or_else(|| Arc::new(worker.first_look()));
                WorkerEnding::Failed { autopsy, answered }
            }
        }
    };
    worker.queue.vacate(worker.index);
    abandoned.0 = None;
    outcome
}

/// A guard for a worker whose task is dropped because the engine's runtime is dropped. Callers may live in another
/// runtime and still wait for their calls.
struct AbandonedWorker(Option<Arc<Worker>>);

impl Drop for AbandonedWorker {
    fn drop(&mut self) {
        let Some(worker) = self.0.take() else { return };
        let why = ProtocolFault::RuntimeDropped;
        let seen = worker.first_look();
        worker.set_autopsy(Arc::new(Autopsy { fault: Some(why.to_string()), oom: OomVerdict::No, ..seen }));
        // Polling the termination once and dropping it gives up the held calls. If it was begun before, that future has
        // been dropped by now, too.
        ignoring_panics(|| {
            let _ = worker.terminate(Reason::Broken(why)).now_or_never();
        });
    }
}

/// Waits until the worker can serve no more.
async fn gone(worker: &Worker) -> Reason {
    tokio::select! {
        () = process_ended(worker.handle.process()) => Reason::Died,
        why = worker.handle.broken() => Reason::Broken(why),
    }
}

/// Notifies the pool whenever the worker's process is stopped or continues.
async fn watch_halts(worker: &Arc<Worker>) -> Infallible {
    let Some(process) = worker.handle.process() else { return std::future::pending().await };
    let mut known = None;
    loop {
        known = process.halt_changed(known).await;
        *locked(&worker.halted) = known.map(|_| Instant::now());
        Arc::clone(&worker.queue).note_halt(worker);
    }
}

/// Waits until the worker's process and all processes that it started have ended. The keeper reports this within a
/// millisecond or two.
pub(crate) async fn process_ended(process: Option<&custody::WorkerProcess>) {
    match process {
        Some(process) => drop(process.exited().await),
        None => std::future::pending().await,
    }
}

async fn end_as_ordered(worker: &Arc<Worker>, reason: &Reason, times: &EndTimes) {
    let holds_calls = worker.holds_calls();
    if let Some(process) = worker.handle.process().filter(|_| worker.is_halted()) {
        // A stopped process can neither exit by itself nor react to TERM.
        let _ = process.signal(rustix::process::Signal::CONT.as_raw());
    }
    let mut termination = pin!(worker.terminate(reason.clone()));
    let is_complete = if holds_calls {
        termination.as_mut().now_or_never().is_some()
    } else {
        tokio::select! {
            biased;
            () = &mut termination => true,
            () = times.passed(Instant::now() + EXIT_TIMEOUT, |window| window.term_at) => false,
        }
    };
    // The reason is known now. How the process ended follows later.
    publish_autopsy(worker, reason, None).await;
    if let Some(process) = worker.handle.process() {
        match times.window() {
            Some(window) => end_in_window(process, window).await,
            // If the engine stops meanwhile, its KILL ends this process, too.
            None => stop_process(process, times.grace).await,
        }
    }
    publish_autopsy(worker, reason, None).await;
    // Only now is it certain which calls were not started, and the worker's last answers count, too.
    if !is_complete {
        let _ = tokio::time::timeout(AUTOPSY_PATIENCE, termination).await;
    }
}

async fn end_after_failure(worker: &Arc<Worker>, reason: &Reason, times: &EndTimes) {
    // A worker that the pool ends has not reported its stacks yet.
    let by_us = matches!(reason, Reason::CancelIgnored(_) | Reason::Stuck(_));
    let stack = if by_us {
        tokio::select! {
            stack = tokio::time::timeout(STACK_TIMEOUT, worker.stacks()) => stack.ok().flatten(),
            // If the engine stops meanwhile, it kills the worker.
            () = process_ended(worker.handle.process()) => None,
        }
    } else {
        None
    };
    // A broken socket is most often the first sign of a death.
    let ended = match worker.handle.process() {
        Some(process) => {
            if by_us {
                stop_process(process, times.grace).await;
            }
            tokio::time::timeout(DEATH_NOTICE, process_ended(Some(process))).await.is_ok()
        }
        None => false,
    };
    // On a busy machine, the process may be dead for longer before the keeper reports it.
    let has_died = ended || worker.handle.process().is_some_and(|process| has_ended(process.pid()));
    let reason = match reason {
        Reason::Broken(_) if has_died => &Reason::Died,
        other => other,
    };
    if let Some(process) = worker.handle.process().filter(|_| !ended) {
        // The worker must not start a call that another worker is about to get.
        let _ = process.kill();
        let _ = tokio::time::timeout(KILL_TIMEOUT, process.exited()).await;
    }
    // Calls that were certainly not started go to other workers now. The rest wait for the autopsy.
    let clean_up_by = Instant::now() + EXIT_TIMEOUT;
    tokio::select! {
        biased;
        () = worker.terminate(reason.clone()) => {}
        () = times.passed(clean_up_by, |window| clean_up_by.min(window.kill_at + AUTOPSY_PATIENCE)) => {}
    }
    if let Some(process) = worker.handle.process() {
        let _ = tokio::time::timeout(EXIT_NOTICE, process.exited()).await;
        let _ = tokio::time::timeout(LAST_OUTPUT, worker.output.complete()).await;
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
        Reason::Broken(fault) => Some(fault.to_string()),
        Reason::Replaced(why) => Some(why.to_string()),
        Reason::CancelIgnored(call) => Some(format!("call {call} was cancelled and did not end")),
        Reason::Stuck(time) => Some(format!("it had a call and showed no sign of life for {time:?}")),
    };
    let seen = worker.first_look();
    let oom = match &fault {
        None => memory_verdict(worker, &seen).await,
        Some(_) => OomVerdict::No,
    };
    let autopsy = Arc::new(Autopsy { fault, oom, stack: stack.or(seen.stack.clone()), ..seen });
    // Before the death becomes known, so that a caller who repeats the call finds it among the suspects.
    worker.judge(reason, &autopsy);
    worker.set_autopsy(autopsy);
}

/// Returns whether the kernel killed the worker for lack of memory. Asks only if SIGKILL ended the worker.
async fn memory_verdict(worker: &Worker, seen: &Autopsy) -> OomVerdict {
    let killed = Some(ExitStatus::Signal(rustix::process::Signal::KILL.as_raw()));
    let Some(pid) = seen.pid.filter(|_| seen.exit.map(|exit| exit.status) == killed) else { return seen.oom };
    let oom = worker.queue.oom().clone();
    let asked = tokio::task::spawn_blocking(move || oom.verdict(pid.as_raw()));
    asked.await.unwrap_or(OomVerdict::Unknown)
}

/// Sends TERM, and waits for the rest of the window until the engine's KILL.
async fn end_in_window(process: &custody::WorkerProcess, window: StopWindow) {
    if window.asks() {
        process.ask_to_end();
    }
    if tokio::time::timeout_at(window.kill_at + KILL_TIMEOUT, process.exited()).await.is_err() {
        // The engine's KILL has not come, or was not enough.
        stop_process(process, Duration::ZERO).await;
    }
}

/// Sends TERM, waits for `grace`, sends KILL, and waits until the worker and all processes that it started are gone.
async fn stop_process(process: &custody::WorkerProcess, grace: Duration) {
    if process.try_wait().is_none() {
        let process = process.clone();
        let _ = tokio::task::spawn_blocking(move || process.stop(grace)).await;
    }
}
