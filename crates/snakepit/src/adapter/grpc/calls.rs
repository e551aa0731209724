//! The calls that a worker holds, from the RPC to the answer.
//!
//! A call that is cancelled loses its RPC at once, and with it the way on which its end could be heard. It stays held until
//! the worker tells its end through [`super::link`], or shows that it can serve if it has none: a worker that is still at it is
//! not free.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::AbortHandle;
use tokio::time::Instant;

use super::messages::{CallReply, Value, call_reply, unreadable};
use crate::adapter::AtWork;
use crate::adapter::json::Integers;
use crate::call::{Call, CallId, Portion, RemoteError};
use crate::telemetry;
use crate::transport::{Credit, read_span};
use crate::value::Encoded;

/// What becomes of a call.
enum Fate {
    /// Its RPC is under way.
    Asked(AbortHandle),
    /// Its RPC is over, and its end is to be told; then this is its answer.
    Given(RemoteError),
    /// It is answered, but not all that was said before is heard.
    Answered(Result<Encoded, RemoteError>),
    /// It was never sent: the connection was closed already.
    Unsent,
}

struct Held {
    call: Call,
    fate: Fate,
    since: Instant,
    credit: Option<Arc<Credit>>,
    /// How many messages of it have come through the link, and how many must have before its answer.
    heard: u32,
    said: u32,
}

#[derive(Default)]
struct State {
    calls: HashMap<u64, Held>,
    /// The worker is about to end, and takes no more calls.
    leaving: bool,
}

/// See the module.
pub(super) struct Calls {
    state: Mutex<State>,
    integers: Integers,
}

impl Calls {
    pub(super) fn new(integers: Integers) -> Self {
        Self { state: Mutex::default(), integers }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a call, and starts its RPC unless nobody wants it any more.
    pub(super) fn begin(
        &self,
        call: Call,
        credit: Option<Arc<Credit>>,
        rpc: impl FnOnce(&Call) -> Option<AbortHandle>,
    ) {
        let mut state = self.state();
        if state.leaving {
            // It was chosen for this worker before the worker's end was known.
            drop(state);
            return call.give_back();
        }
        if call.is_abandoned() {
            // Its caller went away before it was here, and could not ask the worker.
            drop(state);
            return call.finish(Err(cancelled()));
        }
        // Under the lock: the RPC's task finds the call here, however quick it is.
        let fate = rpc(&call).map_or(Fate::Unsent, Fate::Asked);
        let held = Held { call, fate, since: Instant::now(), credit, heard: 0, said: 0 };
        state.calls.insert(held.call.id().get(), held);
    }

    /// The answer to a call has come.
    pub(super) fn answer(&self, id: u64, reply: CallReply) {
        let CallReply { outcome, telemetry, said } = reply;
        self.tell_telemetry(id, telemetry);
        let outcome = match outcome {
            Some(call_reply::Outcome::Value(value)) => {
                value.read(self.integers).map_err(|error| unreadable(&error))
            }
            Some(call_reply::Outcome::Error(error)) => Err(error.into()),
            None => {
                Err(RemoteError::new("bad_payload", "the worker's reply has neither a value nor an error"))
            }
        };
        self.expect(id, said);
        self.finish(id, outcome);
    }

    /// One value of a stream has come. The error ends the stream.
    pub(super) fn item(&self, id: u64, reply: CallReply, credit: &Credit) -> Result<(), RemoteError> {
        let CallReply { outcome, telemetry, said } = reply;
        self.tell_telemetry(id, telemetry);
        self.expect(id, said);
        let item = match outcome {
            Some(call_reply::Outcome::Value(value)) => {
                value.read(self.integers).map_err(|error| unreadable(&error))?
            }
            Some(call_reply::Outcome::Error(error)) => return Err(error.into()),
            None => return Ok(()),
        };
        credit.spend(item.payload_len());
        self.with(id, |call| call.send_item(item));
        Ok(())
    }

    fn expect(&self, id: u64, said: u32) {
        if said > 0
            && let Some(held) = self.state().calls.get_mut(&id)
        {
            held.said = said;
        }
    }

    /// A call has its end, and its caller is told once all that was said before is heard.
    pub(super) fn finish(&self, id: u64, outcome: Result<Encoded, RemoteError>) {
        let mut state = self.state();
        let Some(held) = state.calls.get_mut(&id) else { return };
        if held.heard < held.said {
            held.fate = Fate::Answered(outcome);
            return;
        }
        let held = state.calls.remove(&id);
        drop(state);
        if let Some(Held { call, since, .. }) = held {
            match call.stream_credit() {
                None => call.finish_after(since.elapsed(), outcome),
                Some(_) => call.finish(outcome),
            }
        }
    }

    /// A message of a call has come through the link.
    pub(super) fn heard(&self, id: u64) {
        let mut state = self.state();
        let Some(held) = state.calls.get_mut(&id) else { return };
        held.heard = held.heard.saturating_add(1);
        if held.heard < held.said || !matches!(held.fate, Fate::Answered(_)) {
            return;
        }
        let held = state.calls.remove(&id);
        drop(state);
        held.into_iter().for_each(Held::end);
    }

    /// The RPC of a call is over without an answer; the error is what its caller hears. Says whether the worker is to be asked
    /// for its end.
    pub(super) fn give_up_rpc(&self, id: u64, error: RemoteError) -> bool {
        let mut state = self.state();
        let Some(held) = state.calls.get_mut(&id) else { return false };
        match &held.fate {
            Fate::Asked(rpc) => rpc.abort(),
            Fate::Given(_) | Fate::Unsent => return false,
            Fate::Answered(_) => {
                let held = state.calls.remove(&id);
                drop(state);
                held.into_iter().for_each(Held::end);
                return false;
            }
        }
        held.fate = Fate::Given(error);
        true
    }

    /// A call is over whose RPC was before.
    pub(super) fn ended(&self, id: u64) {
        let mut state = self.state();
        let Some(Held { fate: Fate::Given(_), .. }) = state.calls.get(&id) else { return };
        let held = state.calls.remove(&id);
        drop(state);
        held.into_iter().for_each(Held::end);
    }

    pub(super) fn holds(&self, id: u64) -> bool {
        self.state().calls.contains_key(&id)
    }

    /// Lets a stream send so much more.
    pub(super) fn grant(&self, call: CallId, more: Portion) {
        let state = self.state();
        if let Some(credit) = state.calls.get(&call.get()).and_then(|held| held.credit.as_ref()) {
            credit.add(more);
        }
    }

    /// Does something with a call, if the worker holds it.
    pub(super) fn with<T>(&self, id: u64, look: impl FnOnce(&Call) -> T) -> Option<T> {
        self.state().calls.get(&id).map(|held| look(&held.call))
    }

    fn tell_telemetry(&self, id: u64, told: Vec<Value>) {
        for value in told {
            let Some(span) = value.read(self.integers).ok().and_then(|value| read_span(&value)) else {
                continue;
            };
            // Told without the lock: whoever listens may do anything.
            let event = self.state().calls.get(&id).and_then(|held| span.told_of(&held.call));
            event.into_iter().for_each(telemetry::emit);
        }
    }

    pub(super) fn at_work(&self, concurrency: usize) -> Vec<AtWork> {
        let state = self.state();
        let mut sent: Vec<&Held> =
            state.calls.values().filter(|held| !matches!(held.fate, Fate::Unsent)).collect();
        sent.sort_unstable_by_key(|held| held.since);
        let at_work = |held: &Held| AtWork {
            call: held.call.id(),
            command: Arc::clone(&held.call.command.name),
            since: held.since,
        };
        sent.into_iter().take(concurrency).map(at_work).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state().calls.is_empty()
    }

    /// It takes no more calls.
    pub(super) fn leave(&self) {
        self.state().leaving = true;
    }

    /// Gives up all calls: those that were not sent go back to the pool, the others are lost.
    pub(super) fn give_up(&self) {
        let mut state = self.state();
        state.leaving = true;
        let mut calls: Vec<Held> = state.calls.drain().map(|(_, held)| held).collect();
        drop(state);
        calls.sort_unstable_by_key(|held| held.since);
        calls.into_iter().for_each(Held::end);
    }
}

impl Held {
    /// As far as it has come.
    fn end(self) {
        match self.fate {
            Fate::Unsent => self.call.give_back(),
            Fate::Given(error) => self.call.finish(Err(error)),
            Fate::Answered(outcome) => self.call.finish(outcome),
            Fate::Asked(rpc) => {
                rpc.abort();
                drop(self.call);
            }
        }
    }
}

/// The error of a call that was cancelled.
pub(super) fn cancelled() -> RemoteError {
    RemoteError::new("cancelled", "the caller has cancelled this call")
}
