//! How a call gets its answer: the [`Call`] that a queue or a worker owns, and that tells its caller.
//!
//! A call is owned by one place at a time. Dropping a call answers its caller, too: the worker is lost.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::batch::Batch;
use super::estimate::{CHUNK_SHARE, Certainty};
use super::lease::{Holder, Lease};
use super::progress::{CallEnd, Progress};
pub(crate) use super::state::CallState;
use super::{CallError, CallId, Chain, Extras, Input, PoolCommand, Portion, QueueKey, RemoteError};
use crate::sharded::ShardRef;
use crate::telemetry::TraceContext;
use crate::value::{Encoded, EncodedItems};

/// The number of times that a call may come back from workers that ended before they started it.
pub(super) const MAX_RETURNS: u8 = 3;

/// A call that a worker or a queue holds.
///
/// Answer it with [`Call::finish`]. A dropped call fails with the end of its worker.
#[must_use = "a call that is dropped fails"]
pub struct Call {
    pub(crate) id: CallId,
    pub(crate) command: ShardRef<PoolCommand>,
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
        command: ShardRef<PoolCommand>,
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

    /// Returns the arguments.
    pub fn input(&self) -> &Input {
        &self.input
    }

    /// Reports whether this is a chunk of a map whose inputs are quick.
    pub(crate) fn is_quick_chunk(&self) -> bool {
        matches!(self.input, Input::Many(_)) && !self.command.gathers() && self.command.estimate.is_quick()
    }

    /// Returns the estimated duration of the call, in nanoseconds, as far as it counts for calls behind it.
    pub(crate) fn nanos(&self) -> u32 {
        // A stream takes as long as its reader does.
        let each = if self.stream_credit().is_some() { u32::MAX } else { self.command.estimate.nanos() };
        let all = each.saturating_mul(self.command.runs(&self.input));
        if self.is_quick_chunk() { all / CHUNK_SHARE } else { all }
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
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
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
        self.command.estimate.learn(service / self.command.runs(&self.input), Certainty::One);
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

    /// Fails the calls of a frame whose worker died after it had answered `answered` of them and started `started`.
    /// Only the call that it started last is suspected, or all of them if a batch function got them together.
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
