//! The calls that one worker holds, for every adapter.
//!
//! An adapter notes here each call that it gives its worker, and what it learns of the call. In return the table answers four
//! questions: which calls the worker is at, which calls it has surely not begun, how much of a stream may follow, and what becomes
//! of each call when the worker ends.
//!
//! ```text
//!            begin                sent                started               take
//! (call) ───────────► Unsent ───────────► Sent ───────────► Started ───────────► answered
//!                        │                  │                   │
//!                        │                  └──── give_up ──────┴───► GivenUp ──► taken
//! worker ends:      given back     given back if the          lost            answered with what
//!                                  adapter knows all                          give_up was told
//!                                  starts, else lost
//! ```
//!
//! The table knows no protocol and takes no lock: it stands behind the lock of its adapter. Answering a call may lead back to the
//! adapter, so release that lock before you answer or drop what [`HeldCalls::take`] and [`HeldCalls::end`] return.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{AtEnd, AtWork, ByNumber, CallStage, Credit, Starts};
use crate::call::{Call, CallId, Portion, RemoteError};
use crate::value::Encoded;

/// What [`HeldCalls::begin`] did with a call.
#[derive(Debug)]
#[must_use = "a refused call is to be given back"]
pub enum Begun<'a, T> {
    /// The worker holds it: send it now.
    ToSend(&'a mut HeldCall<T>),
    /// The worker cannot be spoken to any more. The call is kept, unsent, until the worker's end: the pool does not know yet, and
    /// would choose this worker again.
    Kept,
    /// The worker takes no more calls: release the adapter's lock, then [`Call::give_back`].
    Refused(Call),
}

/// What [`HeldCalls::item`] did with an item of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Streamed {
    /// The caller has it; so much waited to be read before it.
    Passed {
        /// Once this reaches the call's credit, the worker has sent more than it may.
        unread: Portion,
    },
    /// The caller asked for no stream, and this is the first item: cancel the call, which fails when it is finished.
    Unasked,
    /// Nobody wants it.
    Dropped,
}

/// A call that a worker holds, and what its adapter keeps with it.
#[derive(Debug)]
pub struct HeldCall<T> {
    /// The call.
    pub call: Call,
    /// What the adapter keeps with it.
    pub data: T,
    /// Its turn among all calls that the worker was given.
    turn: u64,
    /// When it began; not noted for a call that waits behind another at a worker that does one at a time.
    since: Option<Instant>,
    /// As far as it was told of this call alone; [`HeldCalls::stage`] knows more.
    stage: CallStage,
    streams_unasked: bool,
    /// What few calls have. In a box: a call is moved a dozen times on its way.
    rare: Option<Box<Rare>>,
}

#[derive(Debug, Default)]
struct Rare {
    /// Of a stream.
    credit: Option<Arc<Credit>>,
    /// Of a call that was given up.
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

    /// Answers the call. A call that streamed its answer to a caller who asked for no stream fails.
    pub fn finish(self, outcome: Result<Encoded, RemoteError>) {
        if self.streams_unasked {
            let error = RemoteError::streaming(self.call.command());
            return self.call.finish(Err(error));
        }
        self.call.finish(outcome);
    }

    /// As [`HeldCall::finish`], and tells the pool how long the worker took.
    pub fn finish_after(self, service: Duration, outcome: Result<Encoded, RemoteError>) {
        if self.streams_unasked {
            return self.finish(outcome);
        }
        self.call.finish_after(service, outcome);
    }

    /// Answers the call with what [`HeldCalls::give_up`] was told. A call that was not given up fails with its worker's end.
    pub fn conclude(mut self) {
        match self.rare.take().and_then(|rare| rare.outcome) {
            Some(outcome) => self.finish(outcome),
            None => drop(self.call),
        }
    }

    /// Does what its worker's end means for the call.
    pub fn settle(self, at_end: AtEnd) {
        match at_end {
            AtEnd::GiveBack => self.call.give_back(),
            AtEnd::Lose => drop(self.call),
            AtEnd::Conclude => self.conclude(),
        }
    }
}

/// The calls that one worker holds, and what its adapter keeps with each.
///
/// ```
/// use std::sync::{Mutex, PoisonError};
///
/// use snakepit::adapter::{Begun, HeldCalls, Starts};
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
///             Begun::ToSend(held) => {
///                 println!("to the worker: {} {}", held.call.id(), held.call.command());
///                 calls.all_sent();
///             }
///             Begun::Kept => {}
///             Begun::Refused(call) => {
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
///         let ended = self.0.lock().unwrap_or_else(PoisonError::into_inner).end(Starts::Unknown);
///         ended.settle();
///     }
/// }
/// ```
#[derive(Debug)]
pub struct HeldCalls<T = ()> {
    calls: ByNumber<HeldCall<T>>,
    /// How many calls the worker does at the same time.
    concurrency: usize,
    next_turn: u64,
    /// Calls up to this turn were sent, whatever was told of each alone.
    sent_through: u64,
    /// Of the calls that were sent, those up to this turn were started.
    started_through: u64,
    /// Since when the worker has had something to do that it has not answered.
    busy_since: Option<Instant>,
    /// Nothing is sent any more.
    is_closed: bool,
    /// No call is taken any more.
    is_leaving: bool,
}

impl<T> HeldCalls<T> {
    /// For a worker that does so many calls at the same time.
    pub fn new(concurrency: usize) -> Self {
        Self {
            calls: ByNumber::default(),
            concurrency,
            next_turn: 0,
            sent_through: 0,
            started_through: 0,
            busy_since: None,
            is_closed: false,
            is_leaving: false,
        }
    }

    /// Takes a call for the worker.
    pub fn begin(&mut self, call: Call, data: T) -> Begun<'_, T> {
        if self.is_leaving {
            return Begun::Refused(call);
        }
        let starts_work = self.calls.is_empty();
        let since = (starts_work || self.concurrency > 1).then(Instant::now);
        if starts_work {
            self.busy_since = since;
        }
        self.next_turn += 1;
        let (number, turn) = (call.id().get(), self.next_turn);
        let rare = call.stream_credit().map(|first| Box::new(Rare::new(first)));
        let held =
            HeldCall { call, data, turn, since, stage: CallStage::Unsent, streams_unasked: false, rare };
        let held = self.calls.entry(number).insert_entry(held).into_mut();
        if self.is_closed { Begun::Kept } else { Begun::ToSend(held) }
    }

    /// The worker is being sent this call, or was. Returns false for a call that the worker does not hold: do not send it.
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

    /// The worker is being sent all calls that began so far. Costs the same for any number of them.
    pub fn all_sent(&mut self) {
        if !self.is_closed {
            self.sent_through = self.next_turn;
        }
    }

    /// The worker turned out not to know of a call that [`HeldCalls::sent`] was told of.
    pub fn not_sent(&mut self, number: u64) {
        if let Some(held) = self.calls.get_mut(&number) {
            held.stage = match held.stage {
                CallStage::Sent => CallStage::Unsent,
                unchanged @ (CallStage::Unsent | CallStage::Started | CallStage::GivenUp) => unchanged,
            };
        }
    }

    /// The worker has begun this call, and with it all that were sent before: it begins calls in the order in which they are sent.
    pub fn started(&mut self, number: u64) {
        if let Some(held) = self.calls.get_mut(&number) {
            self.started_through = self.started_through.max(held.turn);
        }
    }

    /// As [`HeldCalls::started`], of the latest of those calls whose data this is true for.
    pub fn started_where(&mut self, is_started: impl Fn(&T) -> bool) {
        let started = self.calls.values().filter(|held| is_started(&held.data)).map(|held| held.turn);
        self.started_through = self.started_through.max(started.max().unwrap_or_default());
    }

    /// The answer to a call has come: takes the call, to be finished.
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

    /// The outcome of a call is known, but its worker is not done with it. The call stays held, so that no other call gets its
    /// place, until it is taken and [concluded](HeldCall::conclude). Returns false where there is nothing to give up: the worker was
    /// not sent the call, or the call was given up before.
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

    /// How far a call has come; none if the worker does not hold it.
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

    /// Checks that something may be heard of a call. The error is the fault of a worker that answers by guessing: each answer would
    /// free a place for the next call, and what is to be sent would grow without end.
    pub fn check_sent(&self, number: u64) -> Result<(), String> {
        match self.stage(number) {
            Some(CallStage::Unsent) => Err(format!("it answered call {number} before it was sent")),
            Some(CallStage::Sent | CallStage::Started | CallStage::GivenUp) | None => Ok(()),
        }
    }

    /// Passes an item of a stream on to the caller, and pays for it with the call's credit.
    pub fn item(&mut self, number: u64, item: Encoded) -> Streamed {
        let Some(held) = self.calls.get_mut(&number) else { return Streamed::Dropped };
        if held.call.stream_credit().is_none() {
            // The caller's mistake costs this call alone.
            let is_first = !std::mem::replace(&mut held.streams_unasked, true);
            return if is_first { Streamed::Unasked } else { Streamed::Dropped };
        }
        if let Some(credit) = held.credit() {
            credit.spend(item.payload_len());
        }
        Streamed::Passed { unread: held.call.send_item(item) }
    }

    /// How much of a call's stream may follow, for an adapter that holds the stream back itself; none if the caller asked for no
    /// stream.
    pub fn credit(&self, number: u64) -> Option<Arc<Credit>> {
        self.calls.get(&number)?.credit().map(Arc::clone)
    }

    /// The reader of a stream allows so much more. Returns whether the worker holds the call.
    pub fn grant(&mut self, number: u64, more: Portion) -> bool {
        let held = self.calls.get(&number);
        if let Some(credit) = held.and_then(HeldCall::credit) {
            credit.grant(more);
        }
        held.is_some()
    }

    /// Nobody reads the stream of a call any more: it is not held back.
    pub fn release_stream(&self, number: u64) {
        if let Some(credit) = self.calls.get(&number).and_then(HeldCall::credit) {
            credit.release();
        }
    }

    /// As [`HeldCalls::release_stream`], of all calls.
    pub fn release_streams(&self) {
        self.calls.values().filter_map(HeldCall::credit).for_each(|credit| credit.release());
    }

    /// The calls that the worker is most likely doing now, in the order in which they began.
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

    /// The calls that the worker has surely not begun by now.
    pub fn not_begun(&self, starts: Starts) -> Vec<CallId> {
        let waits = |held: &&HeldCall<T>| self.stage_of(held).at_end(starts) == AtEnd::GiveBack;
        self.calls.values().filter(waits).map(|held| held.call.id()).collect()
    }

    /// The worker has answered something at this time, and is at its next call since then. Returns how long it had been at work.
    pub fn answered(&mut self, now: Instant) -> Duration {
        self.busy_since.replace(now).map_or_else(Duration::default, |since| now - since)
    }

    /// How long the worker took for a call that was just taken.
    pub fn service_time(&mut self, held: &HeldCall<T>) -> Duration {
        let now = Instant::now();
        let busy = self.answered(now);
        match held.since {
            Some(since) if self.concurrency > 1 => now - since,
            Some(_) | None => busy,
        }
    }

    /// A call that the worker holds.
    pub fn get(&self, number: u64) -> Option<&HeldCall<T>> {
        self.calls.get(&number)
    }

    /// A call that the worker holds.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut HeldCall<T>> {
        self.calls.get_mut(&number)
    }

    /// All calls that the worker holds, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &HeldCall<T>> {
        self.calls.values()
    }

    /// Whether the worker holds this call.
    pub fn holds(&self, number: u64) -> bool {
        self.calls.contains_key(&number)
    }

    /// How many calls the worker holds.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether the worker holds no call.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// The worker can no longer be spoken to: calls that come are kept, unsent, until its end.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Whether the worker can no longer be spoken to.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// The worker is about to end: it takes no more calls, and finishes what it has.
    pub fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// The worker has ended: takes all calls, and says what becomes of each.
    pub fn end(&mut self, starts: Starts) -> EndedCalls<T> {
        (self.is_closed, self.is_leaving) = (true, true);
        self.release_streams();
        let calls = std::mem::take(&mut self.calls);
        let mut calls: Vec<_> =
            calls.into_values().map(|held| (self.stage_of(&held).at_end(starts), held)).collect();
        calls.sort_unstable_by_key(|(_, held)| held.turn);
        EndedCalls(calls.into_iter())
    }
}

/// The calls of a worker that has ended, in the order in which they began, and what becomes of each.
#[derive(Debug)]
#[must_use = "these calls are to be settled, without the adapter's lock"]
pub struct EndedCalls<T>(std::vec::IntoIter<(AtEnd, HeldCall<T>)>);

impl<T> EndedCalls<T> {
    /// Does with each call what its worker's end means for it.
    pub fn settle(self) {
        self.for_each(|(at_end, held)| held.settle(at_end));
    }
}

impl<T> Iterator for EndedCalls<T> {
    type Item = (AtEnd, HeldCall<T>);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}
