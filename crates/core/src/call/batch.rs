//! Calls that travel together in one frame to one worker. Each has its own outcome.
//!
//! The call that the worker holds (the *carrier*) owns the others, its members. So each member is owned by one place,
//! and dropping the carrier answers its members. A member whose caller goes away ends at once. The carrier is cancelled
//! when the callers of all members have gone.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::Instant;

use super::answer::CallState;
use super::lease::Holder;
use super::progress::{CallEnd, CallPlace, Progress};
use super::{Call, CallError, CallId, Extras, Input, PoolCommand, QueueKey, RemoteError, RemoteErrorKind};
use crate::sharded::ShardRef;
use crate::value::{Encoded, EncodedItems};

/// A batch that a worker has. Dropping this value lets the next batch go.
pub(crate) struct Underway {
    holder: Arc<dyn Holder>,
    command: ShardRef<PoolCommand>,
    calls: usize,
    /// The number of calls that are counted in addition to the one that the worker holds.
    beside: usize,
}

impl Underway {
    pub(crate) fn new(holder: Arc<dyn Holder>, command: ShardRef<PoolCommand>, calls: usize) -> Self {
        let beside = calls.saturating_sub(1);
        holder.take_batch(beside);
        Self { holder, command, calls, beside }
    }

    /// Stops counting the calls, which are about to be answered.
    fn put_down(&mut self) {
        self.holder.put_batch_down(std::mem::take(&mut self.beside));
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.put_down();
        self.holder.batch_ended(&self.command, self.calls);
    }
}

/// The part of a call that makes it a batch.
pub(crate) struct Batch {
    /// Empty if the call is the whole batch.
    members: Vec<Call>,
    underway: Underway,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Batch").field(&self.members.len()).finish()
    }
}

/// The batch of a member, as the member's caller sees it.
#[derive(Debug)]
pub(crate) struct BatchMember {
    pub(crate) carrier: CallId,
    pub(crate) state: Arc<CallState>,
    pub(crate) holder: Arc<dyn Holder>,
    left: AtomicUsize,
}

impl BatchMember {
    /// Records that the caller of a member has gone away. Returns whether it was the last one.
    pub(crate) fn leave(&self) -> bool {
        self.left.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

impl Call {
    /// Creates an empty carrier for calls of a command. The scheduler loads the carrier when a worker has a place for
    /// it.
    pub(crate) fn carrier(command: ShardRef<PoolCommand>, key: QueueKey, queued_at: Option<Instant>) -> Self {
        let (inputs, state) = (Input::Many(Vec::new()), Arc::default());
        let mut carrier = Self::new(CallId::next(), command, inputs, state, key);
        carrier.queued_at = queued_at;
        carrier
    }

    /// Reports whether the call is a carrier that waits to be loaded. Only such a call has no inputs.
    pub(crate) fn is_empty_carrier(&self) -> bool {
        matches!(&self.input, Input::Many(inputs) if inputs.is_empty())
    }

    /// Loads members into the carrier, whose deadline becomes the latest of their deadlines.
    pub(crate) fn load_members(&mut self, members: Vec<Self>, underway: Underway) {
        let batched = Arc::new(BatchMember {
            carrier: self.id,
            state: Arc::clone(&self.state),
            holder: Arc::clone(&underway.holder),
            left: AtomicUsize::new(members.len()),
        });
        let mut inputs = Vec::with_capacity(members.len());
        for member in &members {
            member.state.set_place(CallPlace::InBatch(Arc::clone(&batched)));
            if let Input::One(input) = &member.input {
                inputs.push(input.clone());
            }
            self.deadline = self.deadline.max(member.deadline);
        }
        self.input = Input::Many(inputs);
        if members.iter().any(|member| member.trace().is_some()) {
            let trace = |member: &Self| member.extras.as_ref()?.trace.clone();
            let traces = members.iter().map(trace).collect();
            self.extras = Some(Box::new(Extras { traces, ..Extras::default() }));
        }
        self.batch = Some(Box::new(Batch { members, underway }));
    }

    /// Returns how many callers wait for the call.
    pub(crate) fn callers(&self) -> u64 {
        self.batch.as_ref().map_or(1, |batch| batch.members.len().max(1) as u64)
    }
}

impl Batch {
    /// Creates the batch of a call that travels alone.
    pub(crate) fn of_one(underway: Underway) -> Self {
        Self { members: Vec::new(), underway }
    }

    pub(super) fn tell(&self, progress: &Progress) {
        self.members.iter().for_each(|member| member.state.progress(progress.clone()));
    }

    /// Ends the carrier, and ends each member with its own outcome.
    pub(super) fn end(self, carrier: &CallState, end: CallEnd) {
        let Self { members, mut underway } = self;
        underway.put_down();
        if members.is_empty() {
            // Before the answer: a caller that has its answer may call again at once.
            drop(underway);
            carrier.end(end);
            return;
        }
        let mut parts: Vec<Encoded> =
            carrier.take_items().into_iter().map(EncodedItems::into_payload).collect();
        // Only a cancel waits for the end of the carrier itself.
        carrier.end(CallEnd::Failed(CallError::Cancelled));
        let mut members = members.into_iter();
        let end = match end {
            CallEnd::Value(last) => {
                parts.push(last);
                None
            }
            other => Some(other),
        };
        for part in parts {
            let outcomes = split(&part, &underway.command, members.len());
            for (outcome, member) in outcomes.into_iter().zip(members.by_ref()) {
                member.end(outcome.map_or_else(CallEnd::Failed, CallEnd::Value));
            }
        }
        for member in members {
            match &end {
                None | Some(CallEnd::Value(_)) => member.finish(Err(no_outcome())),
                Some(CallEnd::Failed(error @ CallError::Remote(_))) => {
                    underway.holder.make_alone(member, CallEnd::Failed(error.clone()));
                }
                Some(CallEnd::Failed(error)) => member.fail(error.clone()),
                Some(CallEnd::Lost { holder, .. }) => {
                    let lost = CallEnd::Lost { holder: Arc::clone(holder), started: None };
                    underway.holder.make_alone(member, lost);
                }
            }
        }
    }

    /// Queues the members again, because their worker ended before it started the batch.
    pub(super) fn give_back(self, carrier: &CallState, holder: &Arc<dyn Holder>) {
        let Self { members, mut underway } = self;
        underway.put_down();
        carrier.end(CallEnd::Failed(CallError::Cancelled));
        for mut member in members {
            if member.returns == super::answer::MAX_RETURNS {
                member.end(CallEnd::Lost { holder: Arc::clone(holder), started: None });
            } else {
                member.returns += 1;
                underway.holder.gather_again(member);
            }
        }
    }

    pub(super) fn has_members(&self) -> bool {
        !self.members.is_empty()
    }
}

/// Splits one part of an answer into the outcomes of its calls. `most` is the number of calls that still wait for one.
pub(crate) fn split(part: &Encoded, command: &PoolCommand, most: usize) -> Vec<Result<Encoded, CallError>> {
    let outcomes = part.flagged(|well, value| {
        Ok(if well { Ok(value) } else { Err(CallError::Remote(Box::new(RemoteError::read(&value)))) })
    });
    outcomes.unwrap_or_else(|source| {
        let expected = part.list_len().map_or(most, |entries| entries.min(most));
        vec![Err(CallError::Result { command: command.name.to_string(), source }); expected]
    })
}

/// Returns the error of a call that is missing from the answer to its batch.
pub(crate) fn no_outcome() -> RemoteError {
    RemoteError::new(RemoteErrorKind::BadPayload, "the worker sent no outcome for it")
}
