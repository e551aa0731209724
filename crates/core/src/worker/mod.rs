//! A worker as its pool sees it: its identity, its output, and how it ended.
//!
//! Knows workers only through [`Handle`]: no adapter, no protocol.

mod end;
mod holder;
mod places;
mod queue;
mod stop_window;
mod suspected_calls;
mod tool_call;
mod watch;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::Signal;
use tokio::sync::{Notify, watch as channel};
use tokio::time::Instant;

pub(crate) use crate::call::{Autopsy, OomVerdict};
pub use end::AUTOPSY_PATIENCE;
pub(crate) use end::{EXIT_TIMEOUT, EndTimes, WorkerEnding, process_ended, tend};
pub(crate) use places::{FreedPlace, OpenPlaces, WorkerPlaces};
pub(crate) use queue::WorkerQueue;
pub use snakepit_process_stats::family_of;
use snakepit_process_stats::is_stopped;
pub(crate) use snakepit_process_stats::{OomDetector, Pss, has_ended};
pub use stop_window::StopWindow;
pub(crate) use watch::Watch;

use crate::adapter::{Handle, Reason};
use crate::call::CallId;
use crate::call::answer::CallState;
use crate::custody::{self, ExitStatus, WorkerId};
pub use crate::output::{Lines, OpenStream, Output, OutputLine, OutputStream, WorkerOutput};
use snakepit_policy::limit::{AdaptiveLimit, LatencyOutcome};
use snakepit_policy::recycling::Term;

/// Signals that a process gets for a fault of its own.
const CRASHES: [Signal; 6] =
    [Signal::SEGV, Signal::ABORT, Signal::BUS, Signal::ILL, Signal::FPE, Signal::SYS];

/// A worker of a pool, from ready to gone.
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) id: WorkerId,
    /// The queue that gives the worker its calls.
    pub(crate) queue: Arc<dyn WorkerQueue>,
    pub(crate) handle: Arc<dyn Handle>,
    pub(crate) output: Arc<Output>,
    pub(crate) tells_what_it_started: bool,
    /// The generation of the pool that started this worker.
    pub(crate) generation: u64,
    /// How many calls the worker was started to run at the same time.
    pub(crate) concurrency: usize,
    /// The number of calls beyond the first of each batch that the worker was given.
    batched_calls: AtomicU64,
    /// How long the worker may serve.
    pub(crate) term: Term,
    /// How many calls the worker gets at a time, if that number is adaptive.
    pub(crate) limit: Option<Mutex<AdaptiveLimit>>,
    /// Calls by command since the last look, if memory is limited.
    counts: Option<Mutex<HashMap<Arc<str>, u64>>>,
    /// Whether the worker ends after its first call.
    pub(crate) serves_one: bool,
    pub(crate) slot: usize,
    pub(crate) device: Option<Arc<str>>,
    pub(crate) began_at: Instant,
    pub(crate) ready_at: Instant,
    /// How many calls the worker has, and who may give it more.
    pub(crate) places: Arc<WorkerPlaces>,
    /// Held calls that were cancelled and do not end.
    uncancellable: Mutex<Vec<CallId>>,
    /// Whether a task waits for calls to leave the worker.
    watched: AtomicBool,
    put_down: Notify,
    orders: channel::Sender<WorkerOrder>,
    autopsy: channel::Sender<Option<Arc<Autopsy>>>,
    /// The memory that the last look measured, in bytes; 0 before the first look.
    seen_rss: AtomicU64,
    /// When the worker's process was stopped, if it is stopped.
    halted: Mutex<Option<Instant>>,
    terminated: AtomicBool,
    suspects: Mutex<suspected_calls::Suspects>,
}

/// The parameters that a worker was started with.
pub(crate) struct WorkerSpec {
    pub(crate) generation: u64,
    pub(crate) concurrency: usize,
    pub(crate) serves_one: bool,
    pub(crate) slot: usize,
    pub(crate) device: Option<Arc<str>>,
    pub(crate) term: Term,
    /// The lower limit of calls at a time, if that number is adaptive.
    pub(crate) fewest: Option<usize>,
    pub(crate) counts_commands: bool,
    pub(crate) began_at: Instant,
}

/// What one more call means for a worker's term.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallWear {
    No,
    /// The worker has had as many calls as its term allows.
    Due,
    /// The worker has had twice as many calls as its term allows.
    Twice,
}

/// An order to a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum WorkerOrder {
    Serve,
    /// Finish the held calls, then end.
    Retire(Reason),
    /// End now.
    End(Reason),
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("id", &self.id).field("index", &self.index).finish_non_exhaustive()
    }
}

impl Worker {
    pub(crate) fn new(
        index: usize,
        id: WorkerId,
        queue: Arc<dyn WorkerQueue>,
        made: WorkerSpec,
        handle: Arc<dyn Handle>,
        output: Arc<Output>,
    ) -> Self {
        let limit = made.fewest.map(|fewest| AdaptiveLimit::new(fewest, made.concurrency));
        let places = limit.as_ref().map_or(made.concurrency, AdaptiveLimit::limit);
        Self {
            index,
            id,
            queue,
            places: Arc::new(WorkerPlaces::new(places)),
            generation: made.generation,
            concurrency: made.concurrency,
            serves_one: made.serves_one,
            slot: made.slot,
            device: made.device,
            term: made.term,
            limit: limit.map(Mutex::new),
            counts: made.counts_commands.then(Mutex::default),
            // A worker that serves a single call, or an adaptive number of calls, is not sent calls ahead.
            tells_what_it_started: handle.introduction().tells_what_it_started
                && !made.serves_one
                && made.fewest.is_none(),
            handle,
            output,
            batched_calls: AtomicU64::new(0),
            began_at: made.began_at,
            ready_at: Instant::now(),
            uncancellable: Mutex::default(),
            watched: AtomicBool::new(false),
            put_down: Notify::new(),
            orders: channel::Sender::new(WorkerOrder::Serve),
            autopsy: channel::Sender::new(None),
            seen_rss: AtomicU64::new(0),
            halted: Mutex::default(),
            terminated: AtomicBool::new(false),
            suspects: Mutex::default(),
        }
    }

    /// Returns how many calls the worker was given so far.
    pub(crate) fn calls_given(&self) -> u64 {
        self.places.given.load(Ordering::Relaxed) + self.batched_calls.load(Ordering::Relaxed)
    }

    /// Counts a call of `callers` callers that is about to be given to the worker. Returns what it means for the
    /// worker's term.
    pub(crate) fn count(&self, command: &Arc<str>, callers: u64) -> CallWear {
        if let Some(counts) = &self.counts {
            *locked(counts).entry(Arc::clone(command)).or_default() += callers;
        }
        if callers > 1 {
            self.batched_calls.fetch_add(callers - 1, Ordering::Relaxed);
        }
        let given = self.places.given.fetch_add(1, Ordering::Relaxed)
            + 1
            + self.batched_calls.load(Ordering::Relaxed);
        let reaches = |limit: u64| given >= limit && given - callers < limit;
        if reaches(self.term.calls()) {
            CallWear::Due
        } else if reaches(self.term.calls().saturating_mul(2)) {
            CallWear::Twice
        } else {
            CallWear::No
        }
    }

    /// Returns how often each command was called, and resets the counts.
    pub(crate) fn take_counts(&self) -> HashMap<Arc<str>, u64> {
        let take = |counts: &Mutex<HashMap<_, _>>| std::mem::take(&mut *locked(counts));
        self.counts.as_ref().map_or_else(HashMap::new, take)
    }

    /// Adapts the limit when a call ends. `since` is when the worker got the call, `beside` how many calls it held
    /// then. Returns the new limit if it has changed.
    pub(crate) fn learn_limit(&self, since: Instant, beside: usize) -> Option<usize> {
        let mut limit = locked(self.limit.as_ref()?);
        let (before, now) = (limit.limit(), Instant::now());
        let beside = beside.max(self.places.calls());
        limit.sample(now.saturating_duration_since(since), beside, LatencyOutcome::Answered, now);
        Some(limit.limit()).filter(|after| *after != before)
    }

    /// Reports whether the worker has answered a call. Calls that are lost at the worker's end look answered
    /// afterwards.
    pub(crate) fn has_answered(&self) -> bool {
        self.places.given.load(Ordering::Relaxed) > self.places.calls() as u64
    }

    /// Reports whether the worker holds a call.
    pub(crate) fn holds_calls(&self) -> bool {
        self.places.calls() > 0
    }

    /// Waits until the worker holds at most `calls` calls.
    pub(crate) async fn holds_at_most(&self, calls: usize) {
        self.watched.store(true, Ordering::SeqCst);
        loop {
            let put_down = self.put_down.notified();
            if self.places.calls() <= calls {
                return;
            }
            put_down.await;
        }
    }

    /// Waits until the worker has finished the other calls that it has begun, except those that do not end either. Each
    /// of them has a deadline of its own. Calls that the worker has not begun are not waited for: other workers get
    /// them. A worker that runs one call at a time has begun no other call.
    pub(crate) async fn only_uncancellable_calls_left(&self, id: CallId, call: &CallState) {
        if self.concurrency == 1 {
            return;
        }
        self.watched.store(true, Ordering::SeqCst);
        locked(&self.uncancellable).push(id);
        self.put_down.notify_waiters();
        loop {
            let put_down = self.put_down.notified();
            if call.has_ended() || !self.has_begun_others() {
                break;
            }
            put_down.await;
        }
        locked(&self.uncancellable).retain(|other| *other != id);
    }

    /// Reports whether the worker runs a call other than those that were cancelled in vain.
    fn has_begun_others(&self) -> bool {
        let waiting = self.handle.not_begun();
        let begun = self.places.calls().saturating_sub(waiting.len());
        let uncancellable = locked(&self.uncancellable).iter().filter(|call| !waiting.contains(call)).count();
        begun > uncancellable
    }

    /// Returns when the worker's process was stopped by a signal, if it is stopped.
    pub(crate) fn halted_since(&self) -> Option<Instant> {
        *locked(&self.halted)
    }

    /// Reports whether the worker's process is stopped now, even if that was not reported yet.
    pub(crate) fn is_halted(&self) -> bool {
        self.halted_since().is_some()
            || self.handle.process().is_some_and(|process| is_stopped(process.pid()))
    }

    /// Returns the stacks of the worker's threads. A stopped worker cannot answer, so it is not asked.
    pub(crate) async fn stacks(&self) -> Option<String> {
        if self.is_halted() { None } else { self.handle.stacks().await }
    }

    /// Gives the worker an order. An order never becomes milder.
    pub(crate) fn order(&self, order: WorkerOrder) {
        self.orders.send_if_modified(|current| match (&*current, &order) {
            (WorkerOrder::Serve, _) | (WorkerOrder::Retire(_), WorkerOrder::End(_)) => {
                *current = order;
                true
            }
            (WorkerOrder::Retire(_) | WorkerOrder::End(_), _) => false,
        });
    }

    pub(crate) fn orders(&self) -> channel::Receiver<WorkerOrder> {
        self.orders.subscribe()
    }

    /// Reports whether the worker's calls are being given up, or were given up.
    fn is_ending(&self) -> bool {
        self.terminated.load(Ordering::Acquire)
    }

    /// Terminates the handle. Does nothing after the first call.
    pub(crate) async fn terminate(&self, reason: Reason) {
        if !self.terminated.swap(true, Ordering::AcqRel) {
            self.handle.terminate(reason).await;
        }
    }

    /// Returns what is known about the worker's end so far.
    pub(crate) fn first_look(&self) -> Autopsy {
        let process = self.handle.process();
        let exit = process.and_then(custody::WorkerProcess::try_wait);
        let signal = signal_of(exit);
        let oom = match (exit, signal) {
            (None, _) | (_, Some(Signal::KILL)) => OomVerdict::Unknown,
            (Some(_), _) => OomVerdict::No,
        };
        let (output, stack) = self.printed_since(self.output.begun(), signal);
        let most = exit.map_or(0, |exit| exit.max_rss_kib * 1024);
        let rss = if most > 0 { most } else { self.seen_rss.load(Ordering::Relaxed) };
        Autopsy {
            worker: self.id.clone(),
            pid: process.map(custody::WorkerProcess::pid),
            exit,
            fault: None,
            oom,
            rss: (rss > 0).then_some(rss),
            age: self.ready_at.elapsed(),
            calls: self.calls_given(),
            output,
            stack,
        }
    }

    /// Returns what an error shows of the output after line `since`, and the stack if `signal` means a crash.
    fn printed_since(&self, since: u64, signal: Option<Signal>) -> (Vec<String>, Option<String>) {
        let crashed = signal.is_some_and(|signal| CRASHES.contains(&signal));
        let take =
            |printed: &mut Vec<String>| if crashed { self.handle.take_crash_stack(printed) } else { None };
        let (mut shown, stack) = self.output.shown_without(since, take);
        if self.concurrency > 1 && !shown.is_empty() {
            shown.insert(0, format!("(of all calls since, up to {} at a time:)", self.concurrency));
        }
        (shown, stack)
    }

    /// Returns what an error shows of the lines that the worker printed during a call.
    pub(crate) fn printed_in(&self, call: &CallState) -> Vec<String> {
        let begun = if self.concurrency == 1 { self.output.begun() } else { 0 };
        self.printed_since(begun.max(call.printed()), None).0
    }

    /// Limits the output in an autopsy to the lines since `call` began. An autopsy has the output since the worker was
    /// idle, but one of several concurrent calls may have begun later.
    pub(crate) fn show_lines_of(&self, call: &CallState, autopsy: &mut Autopsy) {
        if self.concurrency > 1 {
            autopsy.output = self.printed_since(call.printed(), signal_of(autopsy.exit)).0;
        }
    }

    /// Records the memory that a look has measured.
    pub(crate) fn note_rss(&self, bytes: u64) {
        self.seen_rss.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn set_autopsy(&self, autopsy: Arc<Autopsy>) {
        self.autopsy.send_replace(Some(autopsy));
    }

    /// Waits until the worker's end is known, and returns the autopsy.
    pub(crate) async fn autopsy(&self) -> Option<Arc<Autopsy>> {
        let mut autopsy = self.autopsy.subscribe();
        let known = autopsy.wait_for(Option::is_some).await.ok()?;
        known.clone()
    }
}

/// Returns the signal that ended a process.
fn signal_of(exit: Option<custody::Exit>) -> Option<Signal> {
    match exit.map(|exit| exit.status) {
        Some(ExitStatus::Signal(signal)) => Signal::from_named_raw(signal),
        Some(ExitStatus::Code(_) | ExitStatus::Lost | ExitStatus::ShimKilled) | None => None,
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
