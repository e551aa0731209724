//! Calls that travel together: one frame to one worker, and each has its own end.
//!
//! The call that the worker holds (the *van*) owns the others, its members, so that each is still owned by one place and
//! whoever drops the van answers them. A member whose caller goes away gets its own end at once; the van is cancelled
//! when the last one has gone.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::Instant;

use super::ticket::{End, Place, Progress, Ticket};
use super::{Call, CallError, CallId, Extras, Input, RemoteError};
use crate::pool::{self, Command, Otherwise, QueueKey};
use crate::value::Encoded;
use crate::worker::Berth;

/// A batch with a worker. When it is dropped, the next one may go.
pub(crate) struct Underway {
    berth: Arc<Berth>,
    command: Arc<Command>,
    calls: usize,
    /// How many of them are counted beside the one that the worker holds.
    beside: usize,
}

impl Underway {
    pub(crate) fn new(berth: Arc<Berth>, command: Arc<Command>, calls: usize) -> Self {
        let beside = calls.saturating_sub(1);
        berth.aboard.fetch_add(beside, Ordering::Relaxed);
        berth.pool.aboard.fetch_add(beside, Ordering::Relaxed);
        Self { berth, command, calls, beside }
    }

    /// They are about to be answered, and count no more.
    fn put_down(&mut self) {
        let beside = std::mem::take(&mut self.beside);
        self.berth.aboard.fetch_sub(beside, Ordering::Relaxed);
        self.berth.pool.aboard.fetch_sub(beside, Ordering::Relaxed);
    }

    fn pool(&self) -> &Arc<pool::Shared> {
        &self.berth.pool
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.put_down();
        self.berth.pool.lands(&self.command, self.calls);
    }
}

/// What a call carries that is a batch.
pub(crate) struct Batch {
    /// None: the call itself is all of it.
    members: Vec<Call>,
    underway: Underway,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Batch").field(&self.members.len()).finish()
    }
}

/// The batch that a member is a part of, as its caller can reach it.
#[derive(Debug)]
pub(crate) struct Aboard {
    pub(crate) van: CallId,
    pub(crate) ticket: Arc<Ticket>,
    pub(crate) berth: Arc<Berth>,
    left: AtomicUsize,
}

impl Aboard {
    /// A member's caller has gone away; whether it was the last one.
    pub(crate) fn leave(&self) -> bool {
        self.left.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

impl Call {
    /// An empty van for calls of a command. The scheduler loads it when it has a place.
    pub(crate) fn van(command: Arc<Command>, key: QueueKey, queued_at: Option<Instant>) -> Self {
        Self {
            id: pool::next_call_id(),
            command,
            input: Input::Many(Vec::new()),
            deadline: None,
            extras: None,
            ticket: Arc::new(Ticket::default()),
            key,
            slot: None,
            queued_at,
            returns: 0,
            is_over: false,
            alone: false,
            batch: None,
        }
    }

    /// Whether it waits in the queue to be loaded. No other call has no inputs.
    pub(crate) fn is_empty_van(&self) -> bool {
        matches!(&self.input, Input::Many(inputs) if inputs.is_empty())
    }

    /// Loads a van. Its time is over when the last of its members' is.
    pub(crate) fn board(&mut self, members: Vec<Self>, berth: &Arc<Berth>, underway: Underway) {
        let aboard = Arc::new(Aboard {
            van: self.id,
            ticket: Arc::clone(&self.ticket),
            berth: Arc::clone(berth),
            left: AtomicUsize::new(members.len()),
        });
        let mut inputs = Vec::with_capacity(members.len());
        for member in &members {
            member.ticket.set_place(Place::Aboard(Arc::clone(&aboard)));
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

    /// How many callers wait for it.
    pub(crate) fn callers(&self) -> u64 {
        self.batch.as_ref().map_or(1, |batch| batch.members.len().max(1) as u64)
    }

    /// It is lost with a worker that is gone.
    pub(crate) fn lose_with(self, berth: Arc<Berth>) {
        self.ticket.end(End::Lost { berth, started: None });
    }
}

impl Batch {
    /// The batch of a call that travels alone.
    pub(crate) fn of_one(underway: Underway) -> Self {
        Self { members: Vec::new(), underway }
    }

    pub(super) fn tell(&self, progress: &Progress) {
        self.members.iter().for_each(|member| member.ticket.progress(progress.clone()));
    }

    /// Ends the call that carries it, and each member in its own way.
    pub(super) fn end(self, van: &Ticket, end: End) {
        let Self { members, mut underway } = self;
        underway.put_down();
        if members.is_empty() {
            // First: whoever has the answer may call again at once.
            drop(underway);
            van.end(end);
            return;
        }
        let mut parts = van.take_items();
        // Nobody waits for the van itself but those who cancel it.
        van.end(End::Failed(CallError::Cancelled));
        let mut members = members.into_iter();
        let end = match end {
            End::Value(last) => {
                parts.push_back(last);
                None
            }
            other => Some(other),
        };
        for part in parts {
            let outcomes = split(&part, &underway.command, members.len());
            for (outcome, member) in outcomes.into_iter().zip(members.by_ref()) {
                member.end(outcome);
            }
        }
        for member in members {
            match &end {
                None | Some(End::Value(_)) => member.finish(Err(no_outcome())),
                Some(End::Failed(error @ CallError::Remote(_))) => {
                    underway.pool().make_alone(member, Otherwise::Failed(error.clone()));
                }
                Some(End::Failed(error)) => member.fail(error.clone()),
                Some(End::Lost { berth, .. }) => {
                    underway.pool().make_alone(member, Otherwise::Lost(Arc::clone(berth)));
                }
            }
        }
    }

    /// A worker that did not start it is gone: its members wait again. The rest: the call itself is all of it.
    pub(super) fn give_back(self, van: &Ticket, berth: &Arc<Berth>) {
        let Self { members, mut underway } = self;
        underway.put_down();
        van.end(End::Failed(CallError::Cancelled));
        for mut member in members {
            if member.returns == super::MAX_RETURNS {
                member.lose_with(Arc::clone(berth));
            } else {
                member.returns += 1;
                underway.pool().gather_again(member);
            }
        }
    }

    pub(super) fn has_members(&self) -> bool {
        !self.members.is_empty()
    }
}

/// The ends in one part of an answer, of which `most` are wanted.
fn split(part: &Encoded, command: &Command, most: usize) -> Vec<End> {
    let ends = part.flagged(|well, value| {
        if well {
            return Ok(End::Value(value));
        }
        Ok(End::Failed(CallError::Remote(Box::new(RemoteError::read(&value)))))
    });
    match ends {
        Ok(ends) => ends,
        Err(source) => {
            let expected = part.list_len().map_or(most, |entries| entries.min(most));
            let wrong = || CallError::Result { command: command.name.to_string(), source: source.clone() };
            (0..expected).map(|_| End::Failed(wrong())).collect()
        }
    }
}

/// The error of a call that was left out of the answer to many.
pub(super) fn no_outcome() -> RemoteError {
    RemoteError::new("bad_payload", "the worker sent no outcome for it")
}
