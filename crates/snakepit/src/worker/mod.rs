//! A worker in its pool's eyes: who it is, what it printed, and how it ended.
//!
//! Knows workers only through [`Handle`]: no adapter, no protocol.

mod autopsy;
mod cancel;
mod output;
mod tend;
#[cfg_attr(not(test), expect(dead_code, reason = "the crew reads them once it looks at its workers"))]
mod vitals;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

pub use autopsy::Autopsy;
pub(crate) use cancel::abandon;
pub(crate) use output::Output;
pub use output::OutputLine;
pub(crate) use tend::{Ending, process_ended, tend};
pub(crate) use vitals::{Pss, Vitals};

use crate::adapter::{Handle, Reason};
use crate::call::ticket::Ticket;
use crate::custody::{self, WorkerId};
use crate::pool;
use crate::supervision::limit::{AdaptiveLimit, Outcome};
use crate::supervision::recycling::Term;

/// A worker's place in its pool, from ready to gone.
pub(crate) struct Berth {
    pub(crate) post: usize,
    pub(crate) id: WorkerId,
    pub(crate) pool: Arc<pool::Shared>,
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
    calls_aboard: AtomicU64,
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
    pub(crate) aboard: AtomicUsize,
    /// Calls of these that were cancelled and do not end.
    stubborn: AtomicUsize,
    /// Whether somebody waits for it to put calls down.
    watched: AtomicBool,
    put_down: Notify,
    orders: watch::Sender<Order>,
    autopsy: watch::Sender<Option<Arc<Autopsy>>>,
    terminated: AtomicBool,
}

/// How a worker was made.
pub(crate) struct Made {
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

/// What a worker is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    Serve,
    /// Finish what it has, then end.
    Retire(Reason),
    /// End now.
    End(Reason),
}

impl fmt::Debug for Berth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Berth").field("id", &self.id).field("post", &self.post).finish_non_exhaustive()
    }
}

impl Berth {
    pub(crate) fn new(
        post: usize,
        id: WorkerId,
        pool: Arc<pool::Shared>,
        made: Made,
        handle: Arc<dyn Handle>,
        output: Arc<Output>,
    ) -> Self {
        Self {
            post,
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
            calls_aboard: AtomicU64::new(0),
            began_at: made.began_at,
            ready_at: Instant::now(),
            in_hand: AtomicUsize::new(0),
            aboard: AtomicUsize::new(0),
            stubborn: AtomicUsize::new(0),
            watched: AtomicBool::new(false),
            put_down: Notify::new(),
            orders: watch::Sender::new(Order::Serve),
            autopsy: watch::Sender::new(None),
            terminated: AtomicBool::new(false),
        }
    }

    /// How many calls it was given so far.
    pub(crate) fn calls_given(&self) -> u64 {
        self.calls.load(Ordering::Relaxed) + self.calls_aboard.load(Ordering::Relaxed)
    }

    /// A call is about to be given to it, for so many callers. Says whether it is worn by that.
    pub(crate) fn count(&self, command: &Arc<str>, callers: u64) -> bool {
        if let Some(counts) = &self.counts {
            *locked(counts).entry(Arc::clone(command)).or_default() += callers;
        }
        if callers > 1 {
            self.calls_aboard.fetch_add(callers - 1, Ordering::Relaxed);
        }
        let given =
            self.calls.fetch_add(1, Ordering::Relaxed) + 1 + self.calls_aboard.load(Ordering::Relaxed);
        given == self.term.calls() || callers > 1 && given > self.term.calls()
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
        limit.sample(now.saturating_duration_since(since), beside, Outcome::Answered, now);
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
        self.in_hand.load(Ordering::SeqCst) + self.aboard.load(Ordering::Relaxed)
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
    /// of its own. A worker that does one call at a time has none: those behind it are given to others.
    pub(crate) async fn only_stubborn_ones_left(&self, call: &Ticket) {
        if self.concurrency == 1 {
            return;
        }
        self.watched.store(true, Ordering::SeqCst);
        self.stubborn.fetch_add(1, Ordering::SeqCst);
        self.put_down.notify_waiters();
        loop {
            let put_down = self.put_down.notified();
            if call.has_ended() || self.in_hand.load(Ordering::SeqCst) <= self.stubborn.load(Ordering::SeqCst)
            {
                break;
            }
            put_down.await;
        }
        self.stubborn.fetch_sub(1, Ordering::SeqCst);
    }

    /// Tells it what to do; an order never gets milder.
    pub(crate) fn order(&self, order: Order) {
        self.orders.send_if_modified(|current| match (&*current, &order) {
            (Order::Serve, _) | (Order::Retire(_), Order::End(_)) => {
                *current = order;
                true
            }
            (Order::Retire(_) | Order::End(_), _) => false,
        });
    }

    pub(crate) fn orders(&self) -> watch::Receiver<Order> {
        self.orders.subscribe()
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
        Autopsy {
            worker: self.id.clone(),
            pid: process.map(custody::Worker::pid),
            exit: process.and_then(custody::Worker::try_wait),
            fault: None,
            age: self.ready_at.elapsed(),
            calls: self.calls_given(),
            output: self.output.last_lines(),
        }
    }

    pub(crate) fn set_autopsy(&self, autopsy: Autopsy) {
        self.autopsy.send_replace(Some(Arc::new(autopsy)));
    }

    /// What is known about its end, as soon as it is known.
    pub(crate) async fn autopsy(&self) -> Option<Arc<Autopsy>> {
        let mut autopsy = self.autopsy.subscribe();
        let known = autopsy.wait_for(Option::is_some).await.ok()?;
        known.clone()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
