//! How a call gets its answer: the [`Call`] that a queue or a worker owns, and the state that it shares with its caller.
//!
//! A call is owned by one place at a time. Dropping a call answers its caller, too: the worker is lost. The state is
//! one allocation per call, and each event takes one short lock. The first end counts, and later ones are ignored.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use super::batch::Batch;
use super::lease::{Holder, Lease};
use super::progress::{CallEnd, CallPlace, Progress};
use super::{CallError, CallId, Chain, Extras, Input, PoolCommand, Portion, QueueKey, RemoteError};
use crate::telemetry::{Level, TraceContext, is_heard};
use crate::value::{Encoded, EncodedItems};

/// The number of times that a call may come back from workers that ended before they started it.
pub(super) const MAX_RETURNS: u8 = 3;

/// A call that a worker or a queue holds.
///
/// Answer it with [`Call::finish`]. A dropped call fails with the end of its worker.
#[must_use = "a call that is dropped fails"]
pub struct Call {
    pub(crate) id: CallId,
    pub(crate) command: Arc<PoolCommand>,
    pub(crate) input: Input,
    pub(crate) deadline: Option<Instant>,
    pub(crate) extras: Option<Box<Extras>>,
    pub(crate) state: Arc<CallState>,
    /// The position in the queue. A call that comes back keeps it.
    pub(crate) key: QueueKey,
    /// The place that the call takes up at a worker, once it has one.
    pub(crate) lease: Option<Lease>,
    /// The time since which the call has waited, if it had to wait.
    pub(crate) queued_at: Option<Instant>,
    /// The number of times that the call came back from a worker that had not started it.
    pub(crate) returns: u8,
    /// Whether the call has ended and its caller was told.
    pub(crate) is_over: bool,
    /// Whether the call needs a worker that has no other call, for example because workers died that had it.
    pub(crate) alone: bool,
    /// The calls that travel with this one, if it is a batch.
    pub(crate) batch: Option<Box<Batch>>,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("id", &self.id).field("command", &self.command()).finish_non_exhaustive()
    }
}

impl Call {
    /// Creates a call that has no worker yet.
    pub(crate) fn new(
        id: CallId,
        command: Arc<PoolCommand>,
        input: Input,
        state: Arc<CallState>,
        key: QueueKey,
    ) -> Self {
        Self {
            id,
            command,
            input,
            deadline: None,
            extras: None,
            state,
            key,
            lease: None,
            queued_at: None,
            returns: 0,
            is_over: false,
            alone: false,
            batch: None,
        }
    }

    /// Returns the number of the call.
    pub fn id(&self) -> CallId {
        self.id
    }

    /// Returns the name of the command.
    pub fn command(&self) -> &str {
        &self.command.name
    }

    /// Returns the name of the command as a shared string.
    pub fn shared_command(&self) -> Arc<str> {
        Arc::clone(&self.command.name)
    }

    /// Returns the arguments.
    pub fn input(&self) -> &Input {
        &self.input
    }

    /// Reports whether this is a chunk of a map whose inputs are quick.
    pub(crate) fn is_quick_chunk(&self) -> bool {
        matches!(self.input, Input::Many(_)) && !self.command.gathers() && self.command.estimate.is_quick()
    }

    /// Returns what is left of the caller's time.
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Returns the session that the call belongs to.
    pub fn session(&self) -> Option<&str> {
        self.extras.as_ref()?.session.as_deref()
    }

    /// Iterates over the metadata that the caller set.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &str)> {
        self.extras
            .iter()
            .flat_map(|extras| extras.metadata.iter().map(|(key, value)| (key.as_str(), value.as_str())))
    }

    /// Returns how much of a stream may be sent before the caller grants more. `None` if the caller takes no stream.
    pub fn stream_credit(&self) -> Option<Portion> {
        self.extras.as_ref()?.stream
    }

    /// Returns the trace that the call belongs to.
    pub fn trace(&self) -> Option<&TraceContext> {
        self.extras.as_ref()?.trace.as_deref()
    }

    /// Returns one trace for each of several calls that travel together. Empty if none of them has a trace of its own.
    pub fn traces(&self) -> &[Option<Arc<TraceContext>>] {
        self.extras.as_ref().map_or(&[], |extras| &extras.traces)
    }

    /// Reports whether the call has more than a command, arguments and a deadline.
    pub fn has_options(&self) -> bool {
        self.extras.is_some()
    }

    /// Returns the names of the pool and of the worker that has the call.
    pub fn served_by(&self) -> Option<(Arc<str>, Arc<str>)> {
        Some(self.lease.as_ref()?.holder().names())
    }

    /// Returns the calls that wait for this one, if a tool of the host made it.
    pub fn chain(&self) -> Option<&Arc<Chain>> {
        self.extras.as_ref()?.chain.as_ref()
    }

    /// Reports whether the caller has gone away.
    pub fn is_abandoned(&self) -> bool {
        self.state.is_abandoned()
    }

    /// Sends one item of a stream. Returns how much was unread before this item. Once that reaches the credit, the
    /// worker has sent more than it may.
    pub fn send_item(&self, item: Encoded) -> Portion {
        self.state.items(EncodedItems::one(item))
    }

    /// Sends several items of a stream, like [`Call::send_item`].
    pub fn send_items(&self, items: EncodedItems) -> Portion {
        self.state.items(items)
    }

    /// Reports the progress of the call.
    pub fn progress(&self, fraction: Option<f64>, text: Option<String>) {
        let progress = Progress { fraction, text };
        if let Some(batch) = &self.batch {
            batch.tell(&progress);
        }
        self.state.progress(progress);
    }

    /// Answers the call. For a stream, `Ok` is the end of the stream, and its value is not sent.
    pub fn finish(self, outcome: Result<Encoded, RemoteError>) {
        if let Some(lease) = &self.lease {
            lease.holder().answered(&self, outcome.is_err());
        }
        let end = match outcome {
            Ok(value) => CallEnd::Value(value),
            Err(error) => CallEnd::Failed(CallError::Remote(Box::new(error))),
        };
        self.end(end);
    }

    /// Like [`Call::finish`], but also records how long the worker took, so that the pool learns which commands are
    /// short.
    pub fn finish_after(self, service: Duration, outcome: Result<Encoded, RemoteError>) {
        self.command.estimate.learn(service / self.command.runs(&self.input));
        self.finish(outcome);
    }

    /// Fails the call with an error of the engine.
    pub fn fail(self, error: CallError) {
        self.end(CallEnd::Failed(error));
    }

    pub(crate) fn end(mut self, end: CallEnd) {
        // Before the answer: a caller that has its answer may call again at once, and must find the place free.
        drop(self.lease.take());
        match self.batch.take() {
            None => self.state.end(end),
            Some(batch) => batch.end(&self.state, end),
        }
        self.is_over = true;
    }

    /// Gives back a call that its worker never started. Another worker gets it.
    ///
    /// A call that keeps coming back is probably the reason why its workers end. It then fails with the last worker.
    pub fn give_back(mut self) {
        if let Some(batch) = self.batch.take_if(|batch| batch.has_members())
            && let Some(lease) = self.lease.take()
        {
            let holder = Arc::clone(lease.holder());
            drop(lease);
            batch.give_back(&self.state, &holder);
            return;
        }
        if self.returns == MAX_RETURNS {
            return;
        }
        self.returns += 1;
        drop(self.batch.take());
        if let Some(lease) = self.lease.take() {
            let holder = Arc::clone(lease.holder());
            drop(lease);
            holder.give_to_another(self);
        }
    }

    /// Fails calls that travelled together, because their worker is gone. `started` is how many of them it had started.
    pub fn lose_after(self, started: usize) {
        self.lose_between(0, started);
    }

    /// Like [`Call::lose_after`], for a worker that had answered some of the calls. It died of the call that it had
    /// started last.
    pub fn lose_between(mut self, answered: usize, started: usize) {
        let Some(lease) = &self.lease else { return };
        let holder = lease.holder();
        if let Input::Many(inputs) = &mut self.input {
            holder.clear(&self.command, &inputs[..answered.min(inputs.len())]);
            // A function that got the whole list may have died of any entry, not only of the last one.
            let together = inputs.len() > 1 && self.command.gathers();
            if !together {
                let last = started.checked_sub(1).filter(|last| *last >= answered && *last < inputs.len());
                *inputs = last.map(|last| inputs.swap_remove(last)).into_iter().collect();
            }
        }
        self.state.end(CallEnd::Lost { holder: Arc::clone(holder), started: Some(started) });
    }

    /// Fails a call whose worker is gone and had started another call since. A worker that does one call at a time had
    /// finished this one, so only the answer is lost.
    pub fn lose_before_others(mut self) {
        if self.lease.as_ref().is_some_and(|lease| lease.holder().is_serial()) {
            self.input = Input::Many(Vec::new());
        }
    }

    /// Records that a worker may have died of the arguments. If there are several and it is unknown how many were
    /// started, none is suspected, because nearly all of them would be bystanders.
    fn suspect(&mut self, holder: &dyn Holder) {
        match std::mem::replace(&mut self.input, Input::Many(Vec::new())) {
            Input::One(input) => holder.suspect(&self.command, Some(input)),
            Input::Many(mut inputs) => match (inputs.pop(), inputs.is_empty()) {
                (Some(input), true) => holder.suspect(&self.command, Some(input)),
                (Some(_), false) => holder.suspect(&self.command, None),
                (None, _) => {}
            },
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let lease = self.lease.take();
        let end = match &lease {
            Some(lease) => {
                // An answered call is not suspected: the answer took the lease before.
                self.suspect(&**lease.holder());
                CallEnd::Lost { holder: Arc::clone(lease.holder()), started: None }
            }
            // The call was dropped from the queue of a pool that is gone.
            None => CallEnd::Failed(CallError::Stopped),
        };
        match self.batch.take() {
            None => self.state.end(end),
            Some(batch) => {
                drop(lease);
                batch.end(&self.state, end);
            }
        }
    }
}

#[derive(Debug, Default)]
enum EndState {
    #[default]
    Open,
    Ended(CallEnd),
    Taken,
}

#[derive(Debug, Default)]
struct Inner {
    place: Option<CallPlace>,
    /// The time since which a worker has the call. Set only if debug events are listened to.
    placed_at: Option<Instant>,
    /// The number of lines that the worker had printed when it got the call.
    printed: u64,
    items: VecDeque<EncodedItems>,
    /// The amount of the items that the caller has not said it has read.
    unread: Portion,
    progress: Option<Progress>,
    outcome: EndState,
    abandoned: bool,
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
pub(crate) struct CallState {
    inner: Mutex<Inner>,
    /// Whether the caller was told that the call takes long.
    is_late: AtomicBool,
}

impl CallState {
    fn state(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the caller that the call takes long, so that it looks at its deadline.
    pub(crate) fn tell_late(&self) {
        self.is_late.store(true, Ordering::SeqCst);
        wake(self.state());
    }

    pub(crate) fn is_late(&self) -> bool {
        self.is_late.load(Ordering::SeqCst)
    }

    pub(crate) fn set_place(&self, place: CallPlace) {
        let printed = match &place {
            CallPlace::With(holder) => holder.printed(),
            CallPlace::InBatch(batched) => batched.holder.printed(),
            CallPlace::Queued(_) => 0,
        };
        let placed_at = match &place {
            CallPlace::With(_) | CallPlace::InBatch(_) if is_heard(Level::Debug) => Some(Instant::now()),
            CallPlace::With(_) | CallPlace::InBatch(_) | CallPlace::Queued(_) => None,
        };
        let mut state = self.state();
        state.place = Some(place);
        state.printed = printed;
        state.placed_at = placed_at;
    }

    pub(crate) fn place(&self) -> Option<CallPlace> {
        self.state().place.clone()
    }

    /// Returns the time since which a worker has the call. `None` if no worker has it, or if nothing listened to debug
    /// events when the worker got it.
    pub(crate) fn placed_at(&self) -> Option<Instant> {
        self.state().placed_at
    }

    pub(crate) fn holder(&self) -> Option<Arc<dyn Holder>> {
        match self.place()? {
            CallPlace::With(holder) => Some(holder),
            CallPlace::InBatch(batched) => Some(Arc::clone(&batched.holder)),
            CallPlace::Queued(_) => None,
        }
    }

    /// Returns the number under which the worker knows the call. A member of a batch has the number of the carrier.
    pub(crate) fn sent_as(&self, own: CallId) -> CallId {
        match self.place() {
            Some(CallPlace::InBatch(batched)) => batched.carrier,
            Some(CallPlace::With(_) | CallPlace::Queued(_)) | None => own,
        }
    }

    /// Returns how many lines the host had read from the worker when the worker got the call.
    pub(crate) fn printed(&self) -> u64 {
        self.state().printed
    }

    pub(crate) fn end(&self, end: CallEnd) {
        let mut state = self.state();
        if matches!(state.outcome, EndState::Open) {
            state.outcome = EndState::Ended(end);
            wake(state);
        } else {
            // Drop `end` after the lock is released: what it holds may lead back here.
            drop(state);
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        !matches!(self.state().outcome, EndState::Open)
    }

    /// Adds items. Returns how much was unread before them.
    pub(crate) fn items(&self, items: EncodedItems) -> Portion {
        let mut state = self.state();
        let before = state.unread;
        if state.abandoned {
            return before;
        }
        state.unread.add(Portion { items: items.len(), bytes: items.payload_len() as u64 });
        let is_first = state.items.is_empty();
        state.items.push_back(items);
        if is_first {
            wake(state);
        }
        before
    }

    /// Records that the caller has read so many of the items that it has polled for.
    pub(crate) fn has_read(&self, amount: Portion) {
        self.state().unread.remove(amount);
    }

    /// Removes and returns the items that were not polled for.
    pub(crate) fn take_items(&self) -> VecDeque<EncodedItems> {
        std::mem::take(&mut self.state().items)
    }

    pub(crate) fn progress(&self, progress: Progress) {
        let mut state = self.state();
        state.progress = Some(progress);
        wake(state);
    }

    /// Returns the latest progress, if it is new since the last call of this function.
    pub(crate) fn take_progress(&self) -> Option<Progress> {
        self.state().progress.take()
    }

    pub(crate) fn abandon(&self) {
        let mut state = self.state();
        state.abandoned = true;
        state.unread = Portion::default();
        let items = std::mem::take(&mut state.items);
        drop(state);
        drop(items);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.state().abandoned
    }

    pub(crate) fn poll_end(&self, context: &mut Context<'_>) -> Poll<CallEnd> {
        self.poll(context, |state| match std::mem::replace(&mut state.outcome, EndState::Taken) {
            EndState::Ended(end) => Poll::Ready(end),
            other => {
                state.outcome = other;
                Poll::Pending
            }
        })
    }

    /// Polls for the next items, which came together, or for the end once there are no more.
    pub(crate) fn poll_next(&self, context: &mut Context<'_>) -> Poll<Result<EncodedItems, CallEnd>> {
        self.poll(context, |state| match state.items.pop_front() {
            Some(items) => Poll::Ready(Ok(items)),
            None => match std::mem::replace(&mut state.outcome, EndState::Taken) {
                EndState::Ended(end) => Poll::Ready(Err(end)),
                other => {
                    state.outcome = other;
                    Poll::Pending
                }
            },
        })
    }

    /// Polls until the call has ended, without taking the end.
    pub(crate) fn poll_ended(&self, context: &mut Context<'_>) -> Poll<()> {
        self.poll(context, |state| match state.outcome {
            EndState::Open => Poll::Pending,
            EndState::Ended(_) | EndState::Taken => Poll::Ready(()),
        })
    }

    fn poll<T>(&self, context: &mut Context<'_>, look: impl FnOnce(&mut Inner) -> Poll<T>) -> Poll<T> {
        let mut state = self.state();
        let seen = look(&mut state);
        if seen.is_pending() {
            match &mut state.waker {
                Some(waker) => waker.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            }
        }
        seen
    }
}

fn wake(mut state: MutexGuard<'_, Inner>) {
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}
