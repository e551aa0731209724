//! The handle of a loop. It carries orders to the loop and the loop's state back.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use crate::health::real_now;
use crate::{Beats, EndOrder, Heartbeat, Intake, LoopError, LoopOrders, locked};

/// The time used for a deadline that is too far away to be an `Instant`.
const FAR: Duration = Duration::from_hours(24 * 365);

tokio::task_local! {
    /// The loop whose handler runs in this task.
    static WITHIN: Control;
}

/// The handle of a loop: its name, its orders and its state. Clones share all of them.
///
/// The [`run`](crate::Runnable::run) of a loop begins with [`Control::begin`].
#[derive(Clone, Debug)]
pub struct Control(Arc<ControlState>);

/// A message that is being handled.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct InFlight {
    /// The message's id.
    pub message: String,
    /// The W3C trace context of the span that the message belongs to.
    pub trace: Option<String>,
    /// When the handler started.
    pub since: std::time::Instant,
    /// When the handler last reported progress, or else when it started.
    pub last_beat: std::time::Instant,
    /// The number of this handling. It distinguishes the handling from an earlier one of the same message.
    pub number: u64,
}

/// The function that collects the stacks of the code that handles messages.
struct StackSource(Box<dyn Fn() -> BoxFuture<'static, Option<String>> + Send + Sync>);

impl fmt::Debug for StackSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StackSource")
    }
}

#[derive(Debug, Default)]
struct ControlState {
    name: String,
    /// The group that runs the loop.
    group: Mutex<Weak<ControlState>>,
    orders: watch::Sender<LoopOrders>,
    running: watch::Sender<bool>,
    has_begun: AtomicBool,
    was_cut_short: AtomicBool,
    in_flight: AtomicUsize,
    /// The number of messages that were received but not started.
    waiting: AtomicUsize,
    /// Notified when it is possible that no message is in flight and none is waiting.
    emptied: Notify,
    handled: AtomicU64,
    failed: AtomicU64,
    held: Mutex<BTreeMap<u64, InFlight>>,
    stacks: OnceLock<StackSource>,
    heartbeat: Heartbeat,
    trouble: watch::Sender<Option<String>>,
}

impl ControlState {
    /// Reports whether no message is in flight or waiting. A started message is in flight before it stops waiting, so
    /// it always counts.
    fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0 && self.in_flight.load(Ordering::SeqCst) == 0
    }

    fn notify_if_empty(&self) {
        if self.is_empty() {
            self.emptied.notify_waiters();
        }
    }
}

impl Control {
    /// Returns the handle of a new loop.
    pub fn new(name: impl Into<String>) -> Self {
        Self(Arc::new(ControlState { name: name.into(), ..ControlState::default() }))
    }

    /// Returns the loop's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns a receiver of the orders and of every change of them.
    pub fn orders(&self) -> watch::Receiver<LoopOrders> {
        self.0.orders.subscribe()
    }

    /// Returns the current orders.
    pub fn wanted(&self) -> LoopOrders {
        *self.0.orders.borrow()
    }

    /// Tells the loop at once to finish. The future returns whether the loop ended in time and was not cut short. Of
    /// several deadlines the latest applies.
    ///
    /// The loop waits for its handlers. So inside a handler of the loop (for a group, inside a handler of one of its
    /// loops) the future returns `false` at once.
    pub fn shutdown(&self, timeout: Duration) -> BoxFuture<'static, bool> {
        let now = Instant::now();
        let deadline = now.checked_add(timeout).unwrap_or_else(|| now + FAR);
        self.0.orders.send_modify(|orders| {
            orders.end = orders.end.max(EndOrder::Finish);
            orders.deadline = orders.deadline.max(Some(deadline));
        });
        let within = WITHIN.try_with(|of_task| of_task.is_or_belongs_to(self)).unwrap_or(false);
        let state = Arc::clone(&self.0);
        Box::pin(async move {
            if within {
                return false;
            }
            let mut running = state.running.subscribe();
            let has_ended = timeout_at(deadline, running.wait_for(|running| !running)).await.is_ok();
            has_ended && !state.was_cut_short.load(Ordering::Acquire)
        })
    }

    /// Tells the loop to cancel the messages in flight, give them back, and end.
    pub fn stop_now(&self) {
        self.0.orders.send_modify(|orders| orders.end = EndOrder::Cut);
    }

    /// Pauses or resumes the intake of messages. Reports whether that was a change.
    pub fn set_intake(&self, intake: Intake) -> bool {
        self.0.orders.send_if_modified(|orders| std::mem::replace(&mut orders.intake, intake) != intake)
    }

    /// Reports whether the loop is running.
    pub fn running(&self) -> bool {
        *self.0.running.borrow()
    }

    /// Reports whether the loop has ever run.
    pub fn has_begun(&self) -> bool {
        self.0.has_begun.load(Ordering::Relaxed)
    }

    /// Waits until the loop runs.
    pub async fn until_running(&self) {
        self.until(true).await;
    }

    /// Waits until the loop does not run. Returns at once if it has not run yet.
    pub async fn until_stopped(&self) {
        self.until(false).await;
    }

    async fn until(&self, wanted: bool) {
        let mut running = self.0.running.subscribe();
        // This cannot fail, because this control holds the sender.
        let _ = running.wait_for(|running| *running == wanted).await;
    }

    /// Begins a run, which ends when the guard is dropped.
    pub fn begin(&self) -> Result<RunGuard, LoopError> {
        // The first beat comes before other code can see that the loop runs and judge it by its heartbeat.
        self.0.has_begun.store(true, Ordering::Relaxed);
        self.0.heartbeat.beat();
        let begun = self.0.running.send_if_modified(|running| !std::mem::replace(running, true));
        if !begun {
            return Err(LoopError::RunsAlready(self.0.name.clone()));
        }
        self.0.was_cut_short.store(false, Ordering::Release);
        Ok(RunGuard(self.clone()))
    }

    /// Records, before the run ends, that some work was not finished. A shutdown that waits for the end then returns
    /// `false`.
    pub fn note_cut_short(&self) {
        self.0.was_cut_short.store(true, Ordering::Release);
    }

    /// Returns the loop's heartbeat.
    pub fn heartbeat(&self) -> &Heartbeat {
        &self.0.heartbeat
    }

    /// Runs a handler of this loop in such a way that a [`Control::shutdown`] in the handler does not wait for itself.
    pub async fn within<F: Future>(&self, handler: F) -> F::Output {
        WITHIN.scope(self.clone(), handler).await
    }

    /// Makes the loop a member of this group, which does not end before the loop.
    pub(crate) fn belong_to(&self, group: &Self) {
        *locked(&self.0.group) = Arc::downgrade(&group.0);
    }

    fn is_or_belongs_to(&self, other: &Self) -> bool {
        let group_of = |control: &Self| locked(&control.0.group).upgrade().map(Self);
        std::iter::successors(Some(self.clone()), group_of).any(|control| Arc::ptr_eq(&control.0, &other.0))
    }

    /// Counts a message as in flight until the guard is dropped.
    pub fn hold(&self, message: impl Into<String>, trace: Option<String>) -> InFlightGuard {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let now = real_now();
        let held = InFlight { message: message.into(), trace, since: now, last_beat: now, number };
        locked(&self.0.held).insert(number, held);
        self.0.in_flight.fetch_add(1, Ordering::SeqCst);
        InFlightGuard { control: self.clone(), number, was_begun: true }
    }

    /// Returns the messages that are being handled, the oldest first.
    pub fn in_flight_messages(&self) -> Vec<InFlight> {
        locked(&self.0.held).values().cloned().collect()
    }

    /// Records progress of a handler, which is also a sign of life of the loop.
    pub(crate) fn note_progress(&self, number: u64) {
        self.0.heartbeat.beat();
        if let Some(held) = locked(&self.0.held).get_mut(&number) {
            held.last_beat = real_now();
        }
    }

    /// Returns how many messages are being handled.
    pub fn in_flight(&self) -> usize {
        self.0.in_flight.load(Ordering::SeqCst)
    }

    /// Returns how many messages were received but not started.
    pub fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::SeqCst)
    }

    /// Returns how many messages the loop has handled so far, with any result.
    pub fn handled(&self) -> u64 {
        self.0.handled.load(Ordering::Relaxed)
    }

    /// Returns how many of the handled messages failed. A message counts each time it fails.
    pub fn failed(&self) -> u64 {
        self.0.failed.load(Ordering::Relaxed)
    }

    /// Records that the handling of a message failed.
    pub fn note_failed(&self) {
        self.0.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Records how many messages were received but not started.
    pub fn note_waiting(&self, waiting: usize) {
        if self.0.waiting.swap(waiting, Ordering::SeqCst) != 0 {
            self.0.notify_if_empty();
        }
    }

    /// Waits until no message is in flight or waiting.
    pub async fn until_empty(&self) {
        loop {
            let emptied = self.0.emptied.notified();
            tokio::pin!(emptied);
            // Enabled before the check, so that no notification is missed.
            emptied.as_mut().enable();
            if self.0.is_empty() {
                return;
            }
            emptied.await;
        }
    }

    /// Sets the source of the stacks of the code that handles messages. Only the first source counts.
    pub fn tell_stacks(
        &self,
        source: impl Fn() -> BoxFuture<'static, Option<String>> + Send + Sync + 'static,
    ) {
        let _ = self.0.stacks.set(StackSource(Box::new(source)));
    }

    /// Returns the stacks of the code that handles messages, if there is a source.
    pub fn stacks(&self) -> BoxFuture<'static, Option<String>> {
        match self.0.stacks.get() {
            Some(source) => source.0(),
            None => Box::pin(std::future::ready(None)),
        }
    }

    /// Returns what keeps the loop from working, if anything.
    pub fn trouble(&self) -> Option<String> {
        self.0.trouble.borrow().clone()
    }

    /// Returns a receiver of what keeps the loop from working, and of every change of it.
    pub fn troubles(&self) -> watch::Receiver<Option<String>> {
        self.0.trouble.subscribe()
    }

    /// Records what keeps the loop from working, or that nothing does.
    pub fn set_trouble(&self, trouble: Option<String>) {
        self.0.trouble.send_if_modified(|known| {
            let changed = *known != trouble;
            *known = trouble;
            changed
        });
    }
}

/// The guard of a run of a loop. The run ends when the guard is dropped.
#[derive(Debug)]
#[must_use = "the run ends when this is dropped"]
pub struct RunGuard(Control);

impl Drop for RunGuard {
    fn drop(&mut self) {
        self.0.note_waiting(0);
        self.0.0.running.send_replace(false);
    }
}

/// The guard of a message that is being handled. The message is in flight until the guard is dropped.
#[derive(Debug)]
#[must_use = "the message is no longer in flight when this is dropped"]
pub struct InFlightGuard {
    control: Control,
    number: u64,
    was_begun: bool,
}

impl InFlightGuard {
    /// Ends the time in flight of a message that no worker has begun. It does not count as handled.
    pub(crate) fn end_without_handling(mut self) {
        self.was_begun = false;
    }

    /// Returns the handle with which the message's handler reports progress.
    pub fn beats(&self) -> Beats {
        Beats::new(self.control.clone(), self.number)
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        locked(&self.control.0.held).remove(&self.number);
        self.control.0.handled.fetch_add(u64::from(self.was_begun), Ordering::Relaxed);
        if self.control.0.in_flight.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.control.0.notify_if_empty();
        }
    }
}
