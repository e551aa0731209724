//! The calls that one worker holds. Every adapter can use this table.
//!
//! An adapter records here each call that it gives its worker, and what it learns about the call. In return the table
//! answers four questions: which calls the worker is executing, which calls it has certainly not begun, how much of a
//! stream may follow, and what happens to each call when the worker ends.
//!
//! ```text
//!            begin                sent                started               take
//! (call) ───────────► Unsent ───────────► Sent ───────────► Started ───────────► answered
//!                        │                  │                   │
//!                        │                  └──── give_up ──────┴───► GivenUp ──► taken
//! worker ends:      given back     given back if the          lost            answered with the
//!                                  adapter knows all                          outcome passed to
//!                                  starts, else lost                          give_up
//! ```
//!
//! The table knows no protocol and has no lock of its own: the adapter keeps it behind the adapter's lock. Answering a
//! call may lead back into the adapter. Therefore release that lock before you answer or drop what [`HeldCalls::take`]
//! and [`HeldCalls::end`] return.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{AtWork, CallSettlement, CallStage, Credit, IdMap, ProtocolFault, StartKnowledge};
use crate::call::estimate::Certainty;
use crate::call::{Call, CallId, PoolCommand, Portion, RemoteError};
use crate::sharded::ShardRef;
use crate::value::Encoded;

mod end;
mod stream;

pub use end::EndedCalls;
pub use stream::ItemDelivery;

/// The result of [`HeldCalls::begin`].
#[derive(Debug)]
#[must_use = "a refused call must be given back"]
pub enum CallAdmission<'a, T> {
    /// The worker holds the call: send it now.
    ToSend(&'a mut HeldCall<T>),
    /// Nothing can be sent to the worker any more. The call is kept unsent until the worker ends. If it were given back
    /// now, the pool, which does not know yet, would choose this worker again.
    Kept,
    /// The worker takes no more calls. Release the adapter's lock, then call [`Call::give_back`].
    Refused(Call),
}

/// A call that a worker holds, with the adapter's data.
#[derive(Debug)]
pub struct HeldCall<T> {
    /// The call.
    pub call: Call,
    /// What the adapter stores with the call.
    pub data: T,
    /// The position of the call among all calls that the worker was given.
    turn: u64,
    /// When the call began. Not recorded for a call that waits behind another one at a worker of concurrency one.
    since: Option<Instant>,
    /// The stage that was reported for this call alone. [`HeldCalls::stage`] also considers the calls before and after
    /// it.
    stage: CallStage,
    streams_unasked: bool,
    /// Fields that few calls need. Boxed because a call is moved a dozen times on its way.
    rare: Option<Box<Rare>>,
}

#[derive(Debug, Default)]
struct Rare {
    /// The credit of a stream.
    credit: Option<Arc<Credit>>,
    /// The outcome of a call that was given up.
    outcome: Option<Result<Encoded, RemoteError>>,
}

impl Rare {
    fn new(first: Portion) -> Self {
        Self { credit: Some(Arc::new(Credit::new(first))), outcome: None }
    }
}

impl<T> HeldCall<T> {
    fn credit(&self) -> Option<&Arc<Credit>> {
        self.rare.as_ref()?.credit.as_ref()
    }

    /// Answers the call. The call fails if the worker streamed its answer to a caller that did not ask for a stream.
    pub fn finish(self, outcome: Result<Encoded, RemoteError>) {
        if self.streams_unasked {
            let error = RemoteError::streaming(self.call.command());
            return self.call.finish(Err(error));
        }
        self.call.finish(outcome);
    }

    /// Answers the call like [`HeldCall::finish`], and reports to the pool how long the worker took.
    pub fn finish_after(self, service: Duration, outcome: Result<Encoded, RemoteError>) {
        if self.streams_unasked {
            return self.finish(outcome);
        }
        self.call.finish_after(service, outcome);
    }

    /// Answers the call with the outcome that was passed to [`HeldCalls::give_up`]. A call that was not given up fails
    /// because its worker ended.
    pub fn conclude(mut self) {
        match self.rare.take().and_then(|rare| rare.outcome) {
            Some(outcome) => self.finish(outcome),
            None => drop(self.call),
        }
    }

    /// Does with the call what [`CallStage::at_end`] decided.
    pub fn settle(self, at_end: CallSettlement) {
        match at_end {
            CallSettlement::GiveBack => self.call.give_back(),
            CallSettlement::Lose => drop(self.call),
            CallSettlement::Conclude => self.conclude(),
        }
    }
}

/// The calls that one worker holds, with the adapter's data for each.
///
/// ```
/// use std::sync::{Mutex, PoisonError};
///
/// use snakepit::adapter::{CallAdmission, HeldCalls, StartKnowledge};
/// use snakepit::call::Call;
/// use snakepit::value::Encoded;
/// use snakepit::RemoteError;
///
/// struct Link(Mutex<HeldCalls>);
///
/// impl Link {
///     fn execute(&self, call: Call) {
///         let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
///         match calls.begin(call, ()) {
///             CallAdmission::ToSend(held) => {
///                 println!("to the worker: {} {}", held.call.id(), held.call.command());
///                 calls.all_sent();
///             }
///             CallAdmission::Kept => {}
///             CallAdmission::Refused(call) => {
///                 drop(calls);
///                 call.give_back();
///             }
///         }
///     }
///
///     fn answer(&self, id: u64, outcome: Result<Encoded, RemoteError>) {
///         let call = self.0.lock().unwrap_or_else(PoisonError::into_inner).take(id);
///         if let Some(call) = call {
///             call.finish(outcome);
///         }
///     }
///
///     fn terminate(&self) {
///         let ended = self.0.lock().unwrap_or_else(PoisonError::into_inner).end(StartKnowledge::Unknown);
///         ended.settle();
///     }
/// }
/// ```
#[derive(Debug)]
pub struct HeldCalls<T = ()> {
    calls: IdMap<HeldCall<T>>,
    /// The number of calls that the worker executes at the same time.
    concurrency: usize,
    next_turn: u64,
    /// All calls up to this turn were sent, whatever was reported for each call alone.
    sent_through: u64,
    /// Of the calls that were sent, all up to this turn were started.
    started_through: u64,
    /// Since when the worker has had work that it has not answered.
    busy_since: Option<Instant>,
    /// Whether the worker has answered all calls that were sent, and holds others that were not.
    is_dry: bool,
    /// How many calls that were sent the worker had left when it answered last.
    left: usize,
    /// Whether nothing is sent any more.
    is_closed: bool,
    /// Whether no call is accepted any more.
    is_leaving: bool,
}

impl<T> HeldCalls<T> {
    /// Creates a table for a worker that executes this many calls at the same time.
    pub fn new(concurrency: usize) -> Self {
        Self {
            calls: IdMap::default(),
            concurrency,
            next_turn: 0,
            sent_through: 0,
            started_through: 0,
            busy_since: None,
            is_dry: false,
            left: 0,
            is_closed: false,
            is_leaving: false,
        }
    }

    /// Adds a call for the worker.
    pub fn begin(&mut self, call: Call, data: T) -> CallAdmission<'_, T> {
        if self.is_leaving {
            return CallAdmission::Refused(call);
        }
        let starts_work = self.calls.is_empty();
        let since = (starts_work || self.concurrency > 1).then(Instant::now);
        if starts_work {
            self.busy_since = since;
            self.is_dry = false;
        }
        self.next_turn += 1;
        let (number, turn) = (call.id().get(), self.next_turn);
        let rare = call.stream_credit().map(|first| Box::new(Rare::new(first)));
        let held =
            HeldCall { call, data, turn, since, stage: CallStage::Unsent, streams_unasked: false, rare };
        let held = self.calls.entry(number).insert_entry(held).into_mut();
        if self.is_closed { CallAdmission::Kept } else { CallAdmission::ToSend(held) }
    }

    /// Records that this call is being sent to the worker, or was. Returns false if the call must not be sent, because
    /// the worker does not hold it or nothing is sent any more.
    pub fn sent(&mut self, number: u64) -> bool {
        let may_send = !self.is_closed;
        let Some(held) = self.calls.get_mut(&number) else { return false };
        held.stage = match held.stage {
            CallStage::Unsent if may_send => CallStage::Sent,
            unchanged @ (CallStage::Unsent | CallStage::Sent | CallStage::Started | CallStage::GivenUp) => {
                unchanged
            }
        };
        may_send
    }

    /// Records that all calls added so far are being sent to the worker. The cost does not depend on their number.
    pub fn all_sent(&mut self) {
        if !self.is_closed {
            self.sent_through = self.next_turn;
            if std::mem::take(&mut self.is_dry) {
                self.busy_since = Some(Instant::now());
            }
        }
    }

    /// Counts the calls that were sent with [`HeldCalls::all_sent`] and are not answered.
    fn unanswered(&self) -> usize {
        let unsent = usize::try_from(self.next_turn - self.sent_through).unwrap_or(usize::MAX);
        self.calls.len().saturating_sub(unsent)
    }

    /// Takes back what [`HeldCalls::sent`] has recorded: it turned out that the worker does not know of the call.
    pub fn not_sent(&mut self, number: u64) {
        if let Some(held) = self.calls.get_mut(&number) {
            held.stage = match held.stage {
                CallStage::Sent => CallStage::Unsent,
                unchanged @ (CallStage::Unsent | CallStage::Started | CallStage::GivenUp) => unchanged,
            };
        }
    }

    /// Records that the worker has begun this call, and thus all calls that were sent before: a worker begins calls in
    /// the order in which they are sent.
    pub fn started(&mut self, number: u64) {
        if let Some(held) = self.calls.get_mut(&number) {
            self.started_through = self.started_through.max(held.turn);
        }
    }

    /// Records that the worker has begun the latest call whose data satisfies the condition, and thus all calls that
    /// were sent before.
    pub fn started_where(&mut self, is_started: impl Fn(&T) -> bool) {
        let started = self.calls.values().filter(|held| is_started(&held.data)).map(|held| held.turn);
        self.started_through = self.started_through.max(started.max().unwrap_or_default());
    }

    /// Removes and returns a call whose answer has arrived, so that it can be finished.
    pub fn take(&mut self, number: u64) -> Option<HeldCall<T>> {
        let held = self.calls.remove(&number)?;
        match self.stage_of(&held) {
            CallStage::Unsent => {}
            CallStage::Sent | CallStage::Started | CallStage::GivenUp => {
                self.started_through = self.started_through.max(held.turn);
            }
        }
        Some(held)
    }

    /// Records the outcome of a call that the worker has not finished with. The call stays in the table, so that no
    /// other call gets its place, until it is taken and [concluded](HeldCall::conclude). Returns false if there is
    /// nothing to give up, because the call was not sent to the worker or was given up before.
    pub fn give_up(&mut self, number: u64, outcome: Result<Encoded, RemoteError>) -> bool {
        match self.stage(number) {
            None | Some(CallStage::Unsent | CallStage::GivenUp) => false,
            Some(CallStage::Sent | CallStage::Started) => {
                if let Some(held) = self.calls.get_mut(&number) {
                    held.stage = CallStage::GivenUp;
                    held.rare.get_or_insert_default().outcome = Some(outcome);
                }
                self.release_stream(number);
                true
            }
        }
    }

    /// Returns the stage of a call, or `None` if the worker does not hold it.
    pub fn stage(&self, number: u64) -> Option<CallStage> {
        self.calls.get(&number).map(|held| self.stage_of(held))
    }

    fn stage_of(&self, held: &HeldCall<T>) -> CallStage {
        match held.stage {
            CallStage::Unsent if held.turn > self.sent_through => CallStage::Unsent,
            CallStage::Unsent | CallStage::Sent if held.turn > self.started_through => CallStage::Sent,
            CallStage::Unsent | CallStage::Sent | CallStage::Started => CallStage::Started,
            CallStage::GivenUp => CallStage::GivenUp,
        }
    }

    /// Checks that the worker may answer this call. The error is the fault of a worker that guesses the numbers of
    /// calls. Each of its answers would free a place for another call, and the output to the worker would grow without
    /// limit.
    pub fn check_sent(&self, number: u64) -> Result<(), ProtocolFault> {
        match self.stage(number) {
            Some(CallStage::Unsent) => Err(ProtocolFault::UnsentAnswer { call: number }),
            Some(CallStage::Sent | CallStage::Started | CallStage::GivenUp) | None => Ok(()),
        }
    }

    /// Returns the calls that the worker is most likely executing now, in the order in which they began.
    pub fn at_work(&self) -> Vec<AtWork> {
        let is_kept = |held: &&HeldCall<T>| self.is_closed && self.stage_of(held) == CallStage::Unsent;
        let mut calls: Vec<&HeldCall<T>> = self.calls.values().filter(|held| !is_kept(held)).collect();
        calls.sort_unstable_by_key(|held| held.turn);
        let at_work = |held: &HeldCall<T>| {
            let since = if self.concurrency == 1 { self.busy_since } else { held.since };
            let command = Arc::clone(&held.call.command.name);
            Some(AtWork { call: held.call.id(), command, since: since? })
        };
        calls.into_iter().take(self.concurrency).filter_map(at_work).collect()
    }

    /// Returns the calls that the worker has certainly not begun by now.
    pub fn not_begun(&self, starts: StartKnowledge) -> Vec<CallId> {
        let waits = |held: &&HeldCall<T>| self.stage_of(held).at_end(starts) == CallSettlement::GiveBack;
        self.calls.values().filter(waits).map(|held| held.call.id()).collect()
    }

    /// Records that the worker has just answered and turned to its next call. Returns how long it was busy until then.
    pub fn answered(&mut self, now: Instant) -> Duration {
        self.busy_since.replace(now).map_or_else(Duration::default, |since| now - since)
    }

    /// Records that the worker has just answered these calls, which were taken, and reports to the pool how long it took
    /// for each. For an adapter that sends calls with [`HeldCalls::all_sent`].
    pub fn answered_together<'a>(
        &mut self,
        now: Instant,
        calls: impl ExactSizeIterator<Item = &'a HeldCall<T>>,
    ) where
        T: 'a,
    {
        let count = calls.len();
        let service = self.answered(now) / u32::try_from(count).unwrap_or(u32::MAX).max(1);
        let left = self.unanswered();
        let was_busy = count < std::mem::replace(&mut self.left, left);
        let certainty = match count {
            1 if was_busy || self.calls.is_empty() => Certainty::One,
            _ if was_busy => Certainty::Mean,
            _ => Certainty::AtMost,
        };
        self.is_dry = left == 0;
        let mut last: Option<&ShardRef<PoolCommand>> = None;
        for HeldCall { call, .. } in calls {
            let is_stream = call.stream_credit().is_some();
            if !is_stream && !last.is_some_and(|last| Arc::ptr_eq(last, &*call.command)) {
                call.command.estimate.learn(service / call.command.runs(&call.input), certainty);
                last = Some(&call.command);
            }
        }
    }

    /// Returns how long the worker took for a call that was just taken.
    pub fn service_time(&mut self, held: &HeldCall<T>) -> Duration {
        let now = Instant::now();
        let busy = self.answered(now);
        match held.since {
            Some(since) if self.concurrency > 1 => now - since,
            Some(_) | None => busy,
        }
    }

    /// Returns a call that the worker holds.
    pub fn get(&self, number: u64) -> Option<&HeldCall<T>> {
        self.calls.get(&number)
    }

    /// Returns a call that the worker holds.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut HeldCall<T>> {
        self.calls.get_mut(&number)
    }

    /// Returns all calls that the worker holds, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &HeldCall<T>> {
        self.calls.values()
    }

    /// Reports whether the worker holds this call.
    pub fn holds(&self, number: u64) -> bool {
        self.calls.contains_key(&number)
    }

    /// Returns the number of calls that the worker holds.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Reports whether the worker holds no calls.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Records that nothing can be sent to the worker any more. Calls that are added from now on are kept unsent until
    /// the worker ends.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Reports whether nothing can be sent to the worker any more.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Records that the worker is about to end: it takes no more calls, and finishes those that it has.
    pub fn leave(&mut self) {
        self.is_leaving = true;
    }
}
