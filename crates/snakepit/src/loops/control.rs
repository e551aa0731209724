//! What is wanted of a loop, and how it stands with it.
//!
//! Owns both, and the deadline of a shutdown. It knows no mailbox and no handler: a loop of any kind holds one, and its
//! [`run`](super::Runnable::run) begins with [`Control::begin`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use super::{Beats, Heartbeat, LoopError};

/// A time that is farther away than anybody waits.
const FAR: Duration = Duration::from_hours(24 * 365);

tokio::task_local! {
    /// The loop whose handler the task is.
    static WITHIN: Control;
}

/// Whether a loop takes new messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Intake {
    /// It does.
    #[default]
    Open,
    /// Not for now: it finishes what it has, and waits.
    Paused,
}

/// Whether a loop is to end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It is not.
    #[default]
    Not,
    /// What is in flight completes, what is not started is given back.
    Finish,
    /// What is in flight is cancelled and given back, too.
    Cut,
}

/// What is wanted of a loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Orders {
    /// Whether it takes new messages.
    pub intake: Intake,
    /// Whether it is to end; never taken back.
    pub end: End,
    /// Until when somebody waits for its end. Leases are not extended after that.
    pub deadline: Option<Instant>,
}

impl Orders {
    /// Whether new messages are wanted.
    pub fn receives(&self) -> bool {
        self.end == End::Not && self.intake == Intake::Open
    }

    /// Whether nobody waits for its end any more.
    pub fn is_overdue(&self) -> bool {
        self.end == End::Cut || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// The handle of a loop: its name, what is wanted of it, and how it stands. Clones are the same.
#[derive(Clone, Debug)]
pub struct Control(Arc<Inner>);

/// A message that is being handled, for those who watch.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct InHand {
    /// Its id.
    pub message: String,
    /// The W3C trace context of the span that it belongs to.
    pub trace: Option<String>,
    /// Since when.
    pub since: std::time::Instant,
    /// When its handler last told that it makes progress; its start unless it has.
    pub last_beat: std::time::Instant,
    /// Told apart from an earlier handling of the same message.
    pub number: u64,
}

/// Who can tell where the code is that handles messages.
struct StackSource(Box<dyn Fn() -> BoxFuture<'static, Option<String>> + Send + Sync>);

impl fmt::Debug for StackSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StackSource")
    }
}

#[derive(Debug)]
struct Inner {
    name: String,
    /// The group that runs it.
    group: Mutex<Weak<Inner>>,
    orders: watch::Sender<Orders>,
    running: watch::Sender<bool>,
    has_begun: AtomicBool,
    was_cut_short: AtomicBool,
    in_flight: AtomicUsize,
    /// Received, but not started.
    waiting: AtomicUsize,
    /// Rings when there may be nothing left in flight, and nothing that waits.
    emptied: Notify,
    handled: AtomicU64,
    failed: AtomicU64,
    held: Mutex<BTreeMap<u64, InHand>>,
    stacks: OnceLock<StackSource>,
    heartbeat: Heartbeat,
    trouble: watch::Sender<Option<String>>,
}

impl Inner {
    /// A message that is started is in flight before it no longer waits, so it is never in neither.
    fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0 && self.in_flight.load(Ordering::SeqCst) == 0
    }

    fn ring_if_empty(&self) {
        if self.is_empty() {
            self.emptied.notify_waiters();
        }
    }
}

impl Control {
    /// Of a loop of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            name: name.into(),
            group: Mutex::default(),
            orders: watch::Sender::default(),
            running: watch::Sender::new(false),
            has_begun: AtomicBool::new(false),
            was_cut_short: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            emptied: Notify::new(),
            handled: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            held: Mutex::default(),
            stacks: OnceLock::new(),
            heartbeat: Heartbeat::default(),
            trouble: watch::Sender::new(None),
        }))
    }

    /// The loop's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What is wanted, and every change of it.
    pub fn orders(&self) -> watch::Receiver<Orders> {
        self.0.orders.subscribe()
    }

    /// What is wanted now.
    pub fn wanted(&self) -> Orders {
        *self.0.orders.borrow()
    }

    /// Tells it to finish, at once; the future says whether it has ended in time, and
    /// was not cut short. If a deadline was set before, the later
    /// one holds. Inside one of the loop's own handlers, and for a group inside those of its loops, it only begins, and says
    /// `false`: the loop waits for that handler.
    pub fn shutdown(&self, timeout: Duration) -> BoxFuture<'static, bool> {
        let now = Instant::now();
        let deadline = now.checked_add(timeout).unwrap_or_else(|| now + FAR);
        self.0.orders.send_modify(|orders| {
            orders.end = orders.end.max(End::Finish);
            orders.deadline = orders.deadline.max(Some(deadline));
        });
        let within = WITHIN.try_with(|of_task| of_task.is_or_belongs_to(self)).unwrap_or(false);
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            if within {
                return false;
            }
            let mut running = inner.running.subscribe();
            let has_ended = timeout_at(deadline, running.wait_for(|running| !running)).await.is_ok();
            has_ended && !inner.was_cut_short.load(Ordering::Acquire)
        })
    }

    /// Tells it to cancel what is in flight, give it back, and end.
    pub fn stop_now(&self) {
        self.0.orders.send_modify(|orders| orders.end = End::Cut);
    }

    /// Stops, or goes on with, taking messages; says whether that was a change.
    pub fn set_intake(&self, intake: Intake) -> bool {
        self.0.orders.send_if_modified(|orders| std::mem::replace(&mut orders.intake, intake) != intake)
    }

    /// Whether it runs.
    pub fn running(&self) -> bool {
        *self.0.running.borrow()
    }

    /// Whether it has ever run.
    pub fn has_begun(&self) -> bool {
        self.0.has_begun.load(Ordering::Relaxed)
    }

    /// Until it runs, or does not.
    pub async fn until_running(&self, wanted: bool) {
        let mut running = self.0.running.subscribe();
        // It cannot fail: the sender is ours.
        let _ = running.wait_for(|running| *running == wanted).await;
    }

    /// The begin of a run; its end is the drop of what this gives.
    pub fn begin(&self) -> Result<Run, LoopError> {
        // Before anybody can see that it runs, and judges it.
        self.0.has_begun.store(true, Ordering::Relaxed);
        self.0.heartbeat.beat();
        let begun = self.0.running.send_if_modified(|running| !std::mem::replace(running, true));
        if !begun {
            return Err(LoopError::RunsAlready(self.0.name.clone()));
        }
        self.0.was_cut_short.store(false, Ordering::Release);
        Ok(Run(self.clone()))
    }

    /// Says, before its run ends, that not all was finished: a shutdown that waits for that says `false`.
    pub fn note_cut_short(&self) {
        self.0.was_cut_short.store(true, Ordering::Release);
    }

    /// When it last turned.
    pub fn heartbeat(&self) -> &Heartbeat {
        &self.0.heartbeat
    }

    /// Runs a handler of this loop, so that a [`Control::shutdown`] in it does not wait for itself.
    pub async fn within<F: Future>(&self, handler: F) -> F::Output {
        WITHIN.scope(self.clone(), handler).await
    }

    /// From now on it is a loop of this group, which does not end before it.
    pub(super) fn belong_to(&self, group: &Self) {
        *self.group() = Arc::downgrade(&group.0);
    }

    fn is_or_belongs_to(&self, other: &Self) -> bool {
        let mut at = Some(self.clone());
        while let Some(control) = at {
            if Arc::ptr_eq(&control.0, &other.0) {
                return true;
            }
            at = control.group().upgrade().map(Self);
        }
        false
    }

    fn group(&self) -> MutexGuard<'_, Weak<Inner>> {
        self.0.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message is being handled, for as long as what this gives is held.
    pub fn hold(&self, message: impl Into<String>, trace: Option<String>) -> Holding {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let now = std::time::Instant::now();
        let held = InHand { message: message.into(), trace, since: now, last_beat: now, number };
        self.held().insert(number, held);
        self.0.in_flight.fetch_add(1, Ordering::SeqCst);
        Holding { control: self.clone(), number }
    }

    /// The messages that are being handled, the oldest first.
    pub fn in_hand(&self) -> Vec<InHand> {
        self.held().values().cloned().collect()
    }

    /// The handler of a message tells that it makes progress, which shows that the loop lives, too.
    pub(super) fn note_progress(&self, number: u64) {
        self.0.heartbeat.beat();
        if let Some(held) = self.held().get_mut(&number) {
            held.last_beat = std::time::Instant::now();
        }
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<u64, InHand>> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many messages are being handled.
    pub fn in_flight(&self) -> usize {
        self.0.in_flight.load(Ordering::SeqCst)
    }

    /// How many were received and are not started.
    pub fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::SeqCst)
    }

    /// How many were handled since the loop was made, however that ended.
    pub fn handled(&self) -> u64 {
        self.0.handled.load(Ordering::Relaxed)
    }

    /// How many of these failed; the same message each time that it does.
    pub fn failed(&self) -> u64 {
        self.0.failed.load(Ordering::Relaxed)
    }

    /// Says that the handling of a message has failed.
    pub fn note_failed(&self) {
        self.0.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Says how many messages were received and are not started.
    pub fn note_waiting(&self, waiting: usize) {
        if self.0.waiting.swap(waiting, Ordering::SeqCst) != 0 {
            self.0.ring_if_empty();
        }
    }

    /// Until there is no message in its hands.
    pub async fn until_empty(&self) {
        loop {
            let emptied = self.0.emptied.notified();
            tokio::pin!(emptied);
            // Before it looks, so that a ring in between is heard.
            emptied.as_mut().enable();
            if self.0.is_empty() {
                return;
            }
            emptied.await;
        }
    }

    /// Names who can tell where the code is that handles messages; the first who is named stays.
    pub fn tell_stacks(
        &self,
        source: impl Fn() -> BoxFuture<'static, Option<String>> + Send + Sync + 'static,
    ) {
        // The second is not needed.
        let _ = self.0.stacks.set(StackSource(Box::new(source)));
    }

    /// Where the code is that handles messages, if somebody can tell.
    pub fn stacks(&self) -> BoxFuture<'static, Option<String>> {
        match self.0.stacks.get() {
            Some(source) => source.0(),
            None => Box::pin(std::future::ready(None)),
        }
    }

    /// What keeps it from its work, if something does, for a person.
    pub fn trouble(&self) -> Option<String> {
        self.0.trouble.borrow().clone()
    }

    /// The same, and every change of it.
    pub fn troubles(&self) -> watch::Receiver<Option<String>> {
        self.0.trouble.subscribe()
    }

    /// Says what keeps it from its work, or that nothing does any more.
    pub fn set_trouble(&self, trouble: Option<String>) {
        self.0.trouble.send_if_modified(|known| {
            let changed = *known != trouble;
            *known = trouble;
            changed
        });
    }
}

/// A loop that runs, for as long as this is held.
#[derive(Debug)]
#[must_use = "the run ends when this is dropped"]
pub struct Run(Control);

impl Drop for Run {
    fn drop(&mut self) {
        self.0.note_waiting(0);
        self.0.0.running.send_replace(false);
    }
}

/// A message that is being handled, for as long as this is held.
#[derive(Debug)]
#[must_use = "the message is no longer in hand when this is dropped"]
pub struct Holding {
    control: Control,
    number: u64,
}

impl Holding {
    /// How its handler tells that it makes progress.
    pub fn beats(&self) -> Beats {
        Beats::new(self.control.clone(), self.number)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.control.held().remove(&self.number);
        self.control.0.handled.fetch_add(1, Ordering::Relaxed);
        if self.control.0.in_flight.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.control.0.ring_if_empty();
        }
    }
}
