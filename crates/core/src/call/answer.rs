//! How a call gets its answer: the [`Call`] that a queue or a worker owns, and the state that it shares with its caller.
//!
//! A call is owned by one place at a time. A dropped call answers its caller, too: its worker is lost. The state is one
//! allocation for each call, with one short lock for each event. The first end counts; later ones are ignored.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use super::batch::{Batch, BatchMember};
use super::lease::{Holder, Lease};
use super::{CallError, CallId, Chain, Extras, Input, PoolCommand, Portion, QueueKey, RemoteError};
use crate::telemetry::{Level, TraceContext, is_heard};
use crate::value::Encoded;

/// How often a call may come back from workers that ended before they started it.
pub(super) const MAX_RETURNS: u8 = 3;

/// A call in the hands of a worker (or of the queue that it waits in).
///
/// Answer it with [`Call::finish`]; a call that is dropped fails with the end of its worker.
#[must_use = "a call that is dropped fails"]
pub struct Call {
    pub(crate) id: CallId,
    pub(crate) command: Arc<PoolCommand>,
    pub(crate) input: Input,
    pub(crate) deadline: Option<Instant>,
    pub(crate) extras: Option<Box<Extras>>,
    pub(crate) state: Arc<CallState>,
    /// Its place in the queue, kept so that a call that comes back stands where it stood.
    pub(crate) key: QueueKey,
    /// The place at a worker that it takes up, once it has one.
    pub(crate) lease: Option<Lease>,
    /// Since when it has waited, if it had to.
    pub(crate) queued_at: Option<Instant>,
    /// How often it came back from a worker that had not started it.
    pub(crate) returns: u8,
    /// It has its end, and its caller was told.
    pub(crate) is_over: bool,
    /// Workers died that had it: it is on trial, and is done by a worker that has no other call.
    pub(crate) alone: bool,
    /// The calls that travel with it, if it is a batch.
    pub(crate) batch: Option<Box<Batch>>,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("id", &self.id).field("command", &self.command()).finish_non_exhaustive()
    }
}

impl Call {
    /// A call that has no worker yet.
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

    /// Its number.
    pub fn id(&self) -> CallId {
        self.id
    }

    /// The command's name.
    pub fn command(&self) -> &str {
        &self.command.name
    }

    /// The command's name, to be kept.
    pub fn shared_command(&self) -> Arc<str> {
        Arc::clone(&self.command.name)
    }

    /// The arguments.
    pub fn input(&self) -> &Input {
        &self.input
    }

    /// What is left of the caller's time.
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// The session it belongs to.
    pub fn session(&self) -> Option<&str> {
        self.extras.as_ref()?.session.as_deref()
    }

    /// What the caller sent along.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &str)> {
        self.extras
            .iter()
            .flat_map(|extras| extras.metadata.iter().map(|(key, value)| (key.as_str(), value.as_str())))
    }

    /// If the caller takes a stream: how much may be sent before it grants more.
    pub fn stream_credit(&self) -> Option<Portion> {
        self.extras.as_ref()?.stream
    }

    /// The trace that it belongs to.
    pub fn trace(&self) -> Option<&TraceContext> {
        self.extras.as_ref()?.trace.as_deref()
    }

    /// Of many calls that travel together and have traces of their own: one for each.
    pub fn traces(&self) -> &[Option<Arc<TraceContext>>] {
        self.extras.as_ref().map_or(&[], |extras| &extras.traces)
    }

    /// Whether there is anything beside the command, its arguments and the deadline.
    pub fn has_options(&self) -> bool {
        self.extras.is_some()
    }

    /// The names of its pool and of the worker that has it.
    pub fn served_by(&self) -> Option<(Arc<str>, Arc<str>)> {
        Some(self.lease.as_ref()?.holder().names())
    }

    /// The calls that wait for this one, if a tool of the host made it.
    pub fn chain(&self) -> Option<&Arc<Chain>> {
        self.extras.as_ref()?.chain.as_ref()
    }

    /// Whether the caller has gone away.
    pub fn is_abandoned(&self) -> bool {
        self.state.is_abandoned()
    }

    /// Sends one item of a stream. Gives what waited to be read before this item: once that reaches the credit,
    /// the worker has sent more than it may.
    pub fn send_item(&self, item: Encoded) -> Portion {
        self.state.item(item)
    }

    /// Tells how far the call is.
    pub fn progress(&self, fraction: Option<f64>, text: Option<String>) {
        let progress = Progress { fraction, text };
        if let Some(batch) = &self.batch {
            batch.tell(&progress);
        }
        self.state.progress(progress);
    }

    /// Answers it. For a stream, `Ok` is the stream's end and its value is not sent.
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

    /// As [`Call::finish`], and says how long the worker took, so that the pool learns which commands are short.
    pub fn finish_after(self, service: Duration, outcome: Result<Encoded, RemoteError>) {
        self.command.estimate.learn(service / self.command.runs(&self.input));
        self.finish(outcome);
    }

    /// Fails it with an error of the engine.
    pub fn fail(self, error: CallError) {
        self.end(CallEnd::Failed(error));
    }

    pub(crate) fn end(mut self, end: CallEnd) {
        // First: whoever has the answer may call again at once, and finds the place free.
        drop(self.lease.take());
        match self.batch.take() {
            None => self.state.end(end),
            Some(batch) => batch.end(&self.state, end),
        }
        self.is_over = true;
    }

    /// Hands back a call that its worker never started, to be given to another one.
    ///
    /// One that comes back again and again is most likely why its workers end: then it fails with the last one.
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

    /// Many calls that travelled together are lost with their worker, which had started so many of them.
    pub fn lose_after(self, started: usize) {
        self.lose_between(0, started);
    }

    /// As [`Call::lose_after`], if it had answered some: it died of the one that it had started last.
    pub fn lose_between(mut self, answered: usize, started: usize) {
        let Some(lease) = &self.lease else { return };
        let holder = lease.holder();
        if let Input::Many(inputs) = &mut self.input {
            holder.clear(&self.command, &inputs[..answered.min(inputs.len())]);
            // Of a list that was given to a function as a whole, the last one is no more to blame than the others.
            let together = inputs.len() > 1 && self.command.gathers();
            if !together {
                let last = started.checked_sub(1).filter(|last| *last >= answered && *last < inputs.len());
                *inputs = last.map(|last| inputs.swap_remove(last)).into_iter().collect();
            }
        }
        self.state.end(CallEnd::Lost { holder: Arc::clone(holder), started: Some(started) });
    }

    /// Lost with a worker that has started another one since. If it does one at a time, this one was done, and only its
    /// answer is lost.
    pub fn lose_before_others(mut self) {
        if self.lease.as_ref().is_some_and(|lease| lease.holder().is_serial()) {
            self.input = Input::Many(Vec::new());
        }
    }

    /// A worker may have died of its arguments. Of many, when nobody knows how far they came, none is suspected: that would
    /// be a thousand bystanders.
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
                // Nobody is suspected of a call that has its end: an answer has taken the lease before.
                self.suspect(&**lease.holder());
                CallEnd::Lost { holder: Arc::clone(lease.holder()), started: None }
            }
            // Dropped out of a queue whose pool is gone.
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

/// How far a call is, as its worker tells.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct Progress {
    /// Between 0 and 1, if it can be said.
    pub fraction: Option<f64>,
    /// For a person.
    pub text: Option<String>,
}

/// Where a call is.
#[derive(Clone, Debug)]
pub(crate) enum CallPlace {
    Queued(QueueKey),
    With(Arc<dyn Holder>),
    /// At a worker, together with others.
    InBatch(Arc<BatchMember>),
}

/// How a call ended.
#[derive(Debug)]
pub(crate) enum CallEnd {
    /// Its value; of a stream, the mark that it is complete.
    Value(Encoded),
    Failed(CallError),
    /// Its worker is gone; the autopsy says why. Of many calls that travelled together: how many were started.
    Lost {
        holder: Arc<dyn Holder>,
        started: Option<usize>,
    },
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
    /// Since when a worker has it, if anybody wants to know.
    placed_at: Option<Instant>,
    /// How many lines its worker had printed when it got the call.
    printed: u64,
    items: VecDeque<Encoded>,
    /// How much the items are.
    unread: Portion,
    progress: Option<Progress>,
    outcome: EndState,
    abandoned: bool,
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
pub(crate) struct CallState(Mutex<Inner>);

impl CallState {
    fn state(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Since when a worker has it; none if it has not, or if nobody listened when it got it.
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

    /// The number under which its worker knows it: together with others, it has theirs.
    pub(crate) fn sent_as(&self, own: CallId) -> CallId {
        match self.place() {
            Some(CallPlace::InBatch(batched)) => batched.carrier,
            Some(CallPlace::With(_) | CallPlace::Queued(_)) | None => own,
        }
    }

    /// How many lines its worker had printed when it got the call, as far as they were read.
    pub(crate) fn printed(&self) -> u64 {
        self.state().printed
    }

    pub(crate) fn end(&self, end: CallEnd) {
        let mut state = self.state();
        if matches!(state.outcome, EndState::Open) {
            state.outcome = EndState::Ended(end);
            wake(state);
        } else {
            // Dropped after the lock: what an end holds may lead back here.
            drop(state);
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        !matches!(self.state().outcome, EndState::Open)
    }

    /// Adds an item. Gives what waited before it.
    pub(crate) fn item(&self, item: Encoded) -> Portion {
        let mut state = self.state();
        let before = state.unread;
        if state.abandoned {
            return before;
        }
        state.unread.add_item(item.payload_len());
        state.items.push_back(item);
        if before.items == 0 {
            wake(state);
        }
        before
    }

    /// What has come and was not read.
    pub(crate) fn take_items(&self) -> VecDeque<Encoded> {
        std::mem::take(&mut self.state().items)
    }

    pub(crate) fn progress(&self, progress: Progress) {
        let mut state = self.state();
        state.progress = Some(progress);
        wake(state);
    }

    /// The latest progress since this was asked last.
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

    /// The next item, or the end once all items are read.
    pub(crate) fn poll_next(&self, context: &mut Context<'_>) -> Poll<Result<Encoded, CallEnd>> {
        self.poll(context, |state| match state.items.pop_front() {
            Some(item) => {
                state.unread.remove_item(item.payload_len());
                Poll::Ready(Ok(item))
            }
            None => match std::mem::replace(&mut state.outcome, EndState::Taken) {
                EndState::Ended(end) => Poll::Ready(Err(end)),
                other => {
                    state.outcome = other;
                    Poll::Pending
                }
            },
        })
    }

    /// Ready once the call has ended, whoever takes the end.
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
