//! One call: what a caller asks for, and what a worker is given.
//!
//! A [`Call`] is owned by one place at a time, the queue of its pool or one worker, and answers its caller through the
//! `CallState`, which both sides share. Dropping a call without an answer answers it: the caller is told
//! that its worker is lost, and why. Knows nothing of protocols.

pub(crate) mod autopsy;
pub(crate) mod batch;
mod chain;
pub(crate) mod command;
mod credit;
mod error;
mod error_limits;
pub(crate) mod estimate;
pub(crate) mod lease;
pub(crate) mod queue_key;
mod remote_error;
pub(crate) mod state;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

pub use autopsy::{Autopsy, Verdict};
pub use chain::{Chain, Link, MAX_NESTING};
pub use command::Batching;
pub(crate) use command::PoolCommand;
pub use credit::Portion;
pub use error::CallError;
pub(crate) use error::ErrorClass;
pub(crate) use queue_key::QueueKey;
pub use remote_error::{RemoteError, RemoteErrorKind};

use crate::telemetry::TraceContext;
use crate::value::Encoded;
use batch::Batch;
use lease::{Holder, Lease};
use state::{CallEnd, CallState, Progress};

/// How often a call may come back from workers that ended before they started it.
const MAX_RETURNS: u8 = 3;

/// The number of a call, unique in its process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CallId(pub(crate) u64);

impl CallId {
    /// A new number: a call keeps it wherever it goes.
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// A number that a worker told.
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number itself, as the worker sees it.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The arguments of a call.
#[derive(Debug)]
pub enum Input {
    /// Of one call.
    One(Encoded),
    /// Of many calls of one command, which travel together and have their own outcomes.
    Many(Vec<Encoded>),
}

/// What most calls do not have.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    pub(crate) session: Option<Arc<str>>,
    /// The session does not expire while this lives.
    pub(crate) session_in_use: Option<Arc<()>>,
    pub(crate) metadata: BTreeMap<String, String>,
    /// The first credit of a stream.
    pub(crate) stream: Option<Portion>,
    pub(crate) chain: Option<Arc<Chain>>,
    /// What the caller said about its trace, as long as nobody has looked at it.
    pub(crate) trace_headers: Option<Box<TraceHeaders>>,
    pub(crate) trace: Option<Arc<TraceContext>>,
    /// Of many calls that travel together and have traces of their own: one for each.
    pub(crate) traces: Vec<Option<Arc<TraceContext>>>,
}

/// `traceparent` and `tracestate`, unchecked.
#[derive(Debug, Default)]
pub(crate) struct TraceHeaders {
    pub(crate) parent: Option<String>,
    pub(crate) state: Option<String>,
}

impl Extras {
    /// Whether there is nothing but a trace, so that the call may travel with others.
    pub(crate) fn is_only_trace(&self) -> bool {
        let Self { session, session_in_use: _, metadata, stream, chain, trace_headers: _, trace: _, traces } =
            self;
        session.is_none() && metadata.is_empty() && stream.is_none() && chain.is_none() && traces.is_empty()
    }
}

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
}

impl Call {
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
