//! A worker in its pool's eyes: who it is, what it printed, and how it ended.
//!
//! Knows workers only through [`Handle`]: no adapter, no protocol.

mod cancel;
mod end;
mod holder;
mod lines;
mod output;
mod output_tail;
mod suspects;
mod vitals;
mod watch;
mod watched;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::Signal;
use tokio::sync::{Notify, watch as channel};
use tokio::time::Instant;

pub(crate) use crate::call::{Autopsy, Verdict};
pub(crate) use cancel::abandon;
pub(crate) use end::{EndTimes, GOODBYE, WorkerEnding, process_ended, tend};
pub use lines::Lines;
pub use output::{OpenStream, Output, OutputLine};
pub use vitals::family_of;
use vitals::is_stopped;
pub(crate) use vitals::{OomDetector, Pss, has_ended};
pub(crate) use watch::Watch;
#[doc(hidden)]
pub use watched::WatchedWorker;

use crate::adapter::{Handle, Reason};
use crate::call::CallId;
use crate::call::state::CallState;
use crate::custody::{self, ExitStatus, WorkerId};
use crate::pool;
use snakepit_policy::limit::{AdaptiveLimit, LatencyOutcome};
use snakepit_policy::recycling::Term;

/// Signals that a process gets for its own fault.
const CRASHES: [Signal; 6] =
    [Signal::SEGV, Signal::ABORT, Signal::BUS, Signal::ILL, Signal::FPE, Signal::SYS];

/// A worker's place in its pool, from ready to gone.
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) id: WorkerId,
    pub(crate) pool: Arc<pool::PoolInner>,
    pub(crate) handle: Arc<dyn Handle>,
    pub(crate) output: Arc<Output>,
    pub(crate) tells_what_it_started: bool,
    /// Of which version of the pool's code and settings it is.
    pub(crate) generation: u64,
    /// How many calls it was started to do at the same time.
    pub(crate) concurrency: usize,
    /// Calls that it was given so far.
    calls: AtomicU64,
    /// Calls beyond the first of each batch that it was given.
    batched_calls: AtomicU64,
    /// How long it may serve.
    pub(crate) term: Term,
    /// How many calls it gets at a time, where that is found out.
    pub(crate) limit: Option<Mutex<AdaptiveLimit>>,
    /// Calls by command since the last look, where memory is watched.
    counts: Option<Mutex<HashMap<Arc<str>, u64>>>,
    /// It is gone after its first call.
    pub(crate) serves_one: bool,
    pub(crate) slot: usize,
    pub(crate) device: Option<Arc<str>>,
    pub(crate) began_at: Instant,
    pub(crate) ready_at: Instant,
    in_hand: AtomicUsize,
    /// Calls beyond the first of each batch that it has.
    pub(crate) batched: AtomicUsize,
    /// Calls of these that were cancelled and do not end.
    stubborn: Mutex<Vec<CallId>>,
    /// Whether somebody waits for it to put calls down.
    watched: AtomicBool,
    put_down: Notify,
    orders: channel::Sender<WorkerOrder>,
    autopsy: channel::Sender<Option<Arc<Autopsy>>>,
    /// What the last look saw of its memory, in bytes; 0 before the first.
    seen_rss: AtomicU64,
    /// Since when its process is stopped, if it is.
    halted: Mutex<Option<Instant>>,
    terminated: AtomicBool,
    suspects: Mutex<suspects::Suspects>,
}

/// How a worker was made.
pub(crate) struct WorkerSpec {
    pub(crate) generation: u64,
    pub(crate) concurrency: usize,
    pub(crate) serves_one: bool,
    pub(crate) slot: usize,
    pub(crate) device: Option<Arc<str>>,
    pub(crate) term: Term,
    /// The fewest calls that it gets at a time, if the number is found out.
    pub(crate) fewest: Option<usize>,
    pub(crate) counts_commands: bool,
    pub(crate) began_at: Instant,
}

/// What one more call has made of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallWear {
    No,
    /// It has had as many calls as it was to have.
    Due,
    /// It has had twice as many.
    Twice,
}

/// What a worker is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum WorkerOrder {
    Serve,
    /// Finish what it has, then end.
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
        pool: Arc<pool::PoolInner>,
        made: WorkerSpec,
        handle: Arc<dyn Handle>,
        output: Arc<Output>,
    ) -> Self {
        Self {
            index,
            id,
            pool,
            generation: made.generation,
            concurrency: made.concurrency,
            serves_one: made.serves_one,
            slot: made.slot,
            device: made.device,
            term: made.term,
            limit: made.fewest.map(|fewest| Mutex::new(AdaptiveLimit::new(fewest, made.concurrency))),
            counts: made.counts_commands.then(Mutex::default),
            // Nothing is sent ahead to one that serves a single call, or no more than it should do at a time.
            tells_what_it_started: handle.introduction().tells_what_it_started
                && !made.serves_one
                && made.fewest.is_none(),
            handle,
            output,
            calls: AtomicU64::new(0),
            batched_calls: AtomicU64::new(0),
            began_at: made.began_at,
            ready_at: Instant::now(),
            in_hand: AtomicUsize::new(0),
            batched: AtomicUsize::new(0),
            stubborn: Mutex::default(),
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

    /// How many calls it was given so far.
    pub(crate) fn calls_given(&self) -> u64 {
        self.calls.load(Ordering::Relaxed) + self.batched_calls.load(Ordering::Relaxed)
    }

    /// A call is about to be given to it, for so many callers. Says how worn it is by that.
    pub(crate) fn count(&self, command: &Arc<str>, callers: u64) -> CallWear {
        if let Some(counts) = &self.counts {
            *locked(counts).entry(Arc::clone(command)).or_default() += callers;
        }
        if callers > 1 {
            self.batched_calls.fetch_add(callers - 1, Ordering::Relaxed);
        }
        let given =
            self.calls.fetch_add(1, Ordering::Relaxed) + 1 + self.batched_calls.load(Ordering::Relaxed);
        let reaches = |limit: u64| given >= limit && given - callers < limit;
        if reaches(self.term.calls()) {
            CallWear::Due
        } else if reaches(self.term.calls().saturating_mul(2)) {
            CallWear::Twice
        } else {
            CallWear::No
        }
    }

    /// How often each command was called since this was asked last.
    pub(crate) fn take_counts(&self) -> HashMap<Arc<str>, u64> {
        let take = |counts: &Mutex<HashMap<_, _>>| std::mem::take(&mut *locked(counts));
        self.counts.as_ref().map_or_else(HashMap::new, take)
    }

    /// How many calls it gets at a time.
    pub(crate) fn places(&self) -> usize {
        self.limit.as_ref().map_or(self.concurrency, |limit| locked(limit).limit())
    }

    /// A call that it was given then, as one of so many, ends. Says how many it gets at a time if that changes.
    pub(crate) fn learn_limit(&self, since: Instant, beside: usize) -> Option<usize> {
        let mut limit = locked(self.limit.as_ref()?);
        let (before, now) = (limit.limit(), Instant::now());
        let beside = beside.max(self.in_hand.load(Ordering::Relaxed));
        limit.sample(now.saturating_duration_since(since), beside, LatencyOutcome::Answered, now);
        Some(limit.limit()).filter(|after| *after != before)
    }

    /// A call was given to it: how many it has now.
    pub(crate) fn takes(&self) -> usize {
        self.in_hand.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A call has left it.
    pub(crate) fn puts_down(&self) {
        self.in_hand.fetch_sub(1, Ordering::SeqCst);
        if self.watched.load(Ordering::SeqCst) {
            self.put_down.notify_waiters();
        }
    }

    /// Whether it has answered a call. Those that it loses in the end look like answered ones afterwards.
    pub(crate) fn has_answered(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > self.in_hand.load(Ordering::SeqCst) as u64
    }

    /// Whether it has a call.
    pub(crate) fn holds_calls(&self) -> bool {
        self.in_hand.load(Ordering::SeqCst) > 0
    }

    /// How many calls it has.
    pub(crate) fn calls_in_hand(&self) -> usize {
        self.in_hand.load(Ordering::SeqCst) + self.batched.load(Ordering::Relaxed)
    }

    /// Until it holds no more than so many calls.
    pub(crate) async fn holds_at_most(&self, calls: usize) {
        self.watched.store(true, Ordering::SeqCst);
        loop {
            let put_down = self.put_down.notified();
            if self.in_hand.load(Ordering::SeqCst) <= calls {
                return;
            }
            put_down.await;
        }
    }

    /// Until the neighbours of a call that does not end have finished, unless they do not end either. Each has a deadline
    /// of its own. Those that the worker has not begun are not waited for: they are given to others. Of one that does one call at
    /// a time, that is all the others.
    pub(crate) async fn only_stubborn_ones_left(&self, id: CallId, call: &CallState) {
        if self.concurrency == 1 {
            return;
        }
        self.watched.store(true, Ordering::SeqCst);
        locked(&self.stubborn).push(id);
        self.put_down.notify_waiters();
        loop {
            let put_down = self.put_down.notified();
            if call.has_ended() || !self.has_begun_others() {
                break;
            }
            put_down.await;
        }
        locked(&self.stubborn).retain(|stubborn| *stubborn != id);
    }

    /// Whether it is at a call that was not cancelled in vain.
    fn has_begun_others(&self) -> bool {
        let waiting = self.handle.not_begun();
        let begun = self.in_hand.load(Ordering::SeqCst).saturating_sub(waiting.len());
        let stubborn = locked(&self.stubborn).iter().filter(|call| !waiting.contains(call)).count();
        begun > stubborn
    }

    /// Since when its process is stopped by a signal, if it is.
    pub(crate) fn halted_since(&self) -> Option<Instant> {
        *locked(&self.halted)
    }

    /// Whether its process is stopped now, also if nobody was told yet.
    pub(crate) fn is_halted(&self) -> bool {
        self.halted_since().is_some()
            || self.handle.process().is_some_and(|process| is_stopped(process.pid()))
    }

    /// Where its threads are. One that is stopped could not say before it goes on, and is not asked.
    pub(crate) async fn stacks(&self) -> Option<String> {
        if self.is_halted() { None } else { self.handle.stacks().await }
    }

    /// Tells it what to do; an order never gets milder.
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

    /// Whether its calls are being given up, or were.
    fn is_ending(&self) -> bool {
        self.terminated.load(Ordering::Acquire)
    }

    /// Ends the handle, the first time this is asked.
    pub(crate) async fn terminate(&self, reason: Reason) {
        if !self.terminated.swap(true, Ordering::AcqRel) {
            self.handle.terminate(reason).await;
        }
    }

    /// What can be said about its end before more is known.
    pub(crate) fn first_look(&self) -> Autopsy {
        let process = self.handle.process();
        let exit = process.and_then(custody::WorkerProcess::try_wait);
        let signal = signal_of(exit);
        let oom = match (exit, signal) {
            (None, _) | (_, Some(Signal::KILL)) => Verdict::Unknown,
            (Some(_), _) => Verdict::No,
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

    /// What an error shows of the lines after so many, and the stack of the crash that its signal tells of.
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

    /// What an error shows of the lines that it printed while it was at a call.
    pub(crate) fn printed_in(&self, call: &CallState) -> Vec<String> {
        let begun = if self.concurrency == 1 { self.output.begun() } else { 0 };
        self.printed_since(begun.max(call.printed()), None).0
    }

    /// An autopsy tells what was printed since the worker was idle. One call of several may have begun later.
    pub(crate) fn show_lines_of(&self, call: &CallState, autopsy: &mut Autopsy) {
        if self.concurrency > 1 {
            autopsy.output = self.printed_since(call.printed(), signal_of(autopsy.exit)).0;
        }
    }

    /// What a look saw of its memory.
    pub(crate) fn note_rss(&self, bytes: u64) {
        self.seen_rss.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn set_autopsy(&self, autopsy: Arc<Autopsy>) {
        self.autopsy.send_replace(Some(autopsy));
    }

    /// What is known about its end, as soon as it is known.
    pub(crate) async fn autopsy(&self) -> Option<Arc<Autopsy>> {
        let mut autopsy = self.autopsy.subscribe();
        let known = autopsy.wait_for(Option::is_some).await.ok()?;
        known.clone()
    }
}

/// The signal that a process ended of.
fn signal_of(exit: Option<custody::Exit>) -> Option<Signal> {
    match exit.map(|exit| exit.status) {
        Some(ExitStatus::Signal(signal)) => Signal::from_named_raw(signal),
        Some(ExitStatus::Code(_) | ExitStatus::Lost | ExitStatus::ShimKilled) | None => None,
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
