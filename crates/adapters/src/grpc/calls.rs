//! The calls that a worker holds, from the RPC to the answer.
//!
//! A cancelled call loses its RPC at once, and with it the channel that would report its end. The call stays held
//! until the worker reports its end through [`super::link`] or, without a link, proves that it can serve: a worker
//! that still runs the call is not free.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;

use super::messages::{CallReply, Value, call_reply, unreadable};
use crate::adapter::{CallAdmission, CallStage, HeldCall, HeldCalls, StartKnowledge};
use crate::call::{Call, RemoteError, RemoteErrorKind};
use crate::json::Integers;
use crate::telemetry;
use crate::transport::{are_heard, event_of};
use crate::value::Encoded;
use snakepit_protocol::message::WorkerSpan;

/// The state of a call's RPC.
#[derive(Default)]
pub(super) struct RpcState {
    /// `None` if the RPC was never started, because the connection was already closed.
    task: Option<AbortHandle>,
    /// The number of messages of the call that have arrived through the link. `said` is the number that must arrive
    /// before the call is answered.
    heard: u32,
    said: u32,
    /// Whether the answer has arrived and waits for those messages.
    is_answered: bool,
}

/// The calls that a worker holds.
pub(super) struct GrpcCalls {
    held: Mutex<HeldCalls<RpcState>>,
    integers: Integers,
}

impl GrpcCalls {
    pub(super) fn new(concurrency: usize, integers: Integers) -> Self {
        Self { held: Mutex::new(HeldCalls::new(concurrency)), integers }
    }

    /// Locks the table of the calls.
    pub(super) fn held(&self) -> MutexGuard<'_, HeldCalls<RpcState>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call and starts its RPC, unless the call was abandoned. `rpc` returns `None` if the connection is
    /// closed.
    pub(super) fn begin(&self, call: Call, rpc: impl FnOnce(&Call) -> Option<AbortHandle>) {
        let number = call.id().get();
        let mut held = self.held();
        match held.begin(call, RpcState::default()) {
            CallAdmission::ToSend(begun) if begun.call.is_abandoned() => {
                // The caller abandoned the call before it arrived here, when the worker could not be asked to cancel
                // it.
                let taken = held.take(number);
                drop(held);
                if let Some(taken) = taken {
                    taken.finish(Err(cancelled()));
                }
            }
            // The lock is held, so the RPC's task finds the call here, however fast it is.
            CallAdmission::ToSend(begun) => match rpc(&begun.call) {
                None => held.close(),
                Some(task) => {
                    begun.data.task = Some(task);
                    held.all_sent();
                }
            },
            CallAdmission::Kept => {}
            CallAdmission::Refused(call) => {
                // The call was assigned to this worker before the worker's end was known.
                drop(held);
                call.give_back();
            }
        }
    }

    /// Handles the answer to a call.
    pub(super) fn answer(&self, id: u64, reply: CallReply) {
        let CallReply { outcome, telemetry, said } = reply;
        self.tell_telemetry(id, telemetry);
        let outcome = match outcome {
            Some(call_reply::Outcome::Value(value)) => {
                value.read(self.integers).map_err(|error| unreadable(&error))
            }
            Some(call_reply::Outcome::Error(error)) => Err(error.into()),
            None => Err(RemoteError::new(
                RemoteErrorKind::BadPayload,
                "the worker's reply has neither a value nor an error",
            )),
        };
        self.expect(id, said);
        self.finish(id, outcome);
    }

    /// Handles one item of a stream. An error ends the stream.
    pub(super) fn item(&self, id: u64, reply: CallReply) -> Result<(), RemoteError> {
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
        self.held().item(id, item);
        Ok(())
    }

    fn expect(&self, id: u64, said: u32) {
        if said > 0
            && let Some(held) = self.held().get_mut(id)
        {
            held.data.said = said;
        }
    }

    /// Finishes a call, once all messages that the worker sent before the answer have arrived.
    pub(super) fn finish(&self, id: u64, outcome: Result<Encoded, RemoteError>) {
        let mut held = self.held();
        let Some(HeldCall { data: rpc, .. }) = held.get_mut(id) else { return };
        if rpc.heard < rpc.said {
            rpc.is_answered = true;
            held.give_up(id, outcome);
            return;
        }
        let Some(taken) = held.take(id) else { return };
        let service = held.service_time(&taken);
        drop(held);
        match taken.call.stream_credit() {
            None => taken.finish_after(service, outcome),
            Some(_) => taken.finish(outcome),
        }
    }

    /// Counts a message of a call that has arrived through the link.
    pub(super) fn heard(&self, id: u64) {
        let mut held = self.held();
        let Some(HeldCall { data: rpc, .. }) = held.get_mut(id) else { return };
        rpc.heard = rpc.heard.saturating_add(1);
        if rpc.heard >= rpc.said && rpc.is_answered {
            conclude(held, id);
        }
    }

    /// Gives up a call whose RPC ended without an answer. The caller receives `error`. Returns whether the worker
    /// must be asked to report the end of the call.
    pub(super) fn give_up_rpc(&self, id: u64, error: RemoteError) -> bool {
        let mut held = self.held();
        if held.get(id).is_some_and(|held| held.data.is_answered) {
            conclude(held, id);
            return false;
        }
        let is_given_up = held.give_up(id, Err(error));
        if is_given_up && let Some(task) = held.get(id).and_then(|held| held.data.task.as_ref()) {
            task.abort();
        }
        is_given_up
    }

    /// Finishes a call whose RPC has ended before.
    pub(super) fn ended(&self, id: u64) {
        let held = self.held();
        if held.stage(id) == Some(CallStage::GivenUp) {
            conclude(held, id);
        }
    }

    /// Applies a function to a call, if the worker holds it.
    pub(super) fn with<T>(&self, id: u64, look: impl FnOnce(&Call) -> T) -> Option<T> {
        self.held().get(id).map(|held| look(&held.call))
    }

    fn tell_telemetry(&self, id: u64, told: Vec<Value>) {
        for value in told.into_iter().filter(|_| are_heard()) {
            let span = value.read(self.integers).ok().and_then(|value| WorkerSpan::decode(&value));
            let Some(span) = span else { continue };
            // Emitted without the lock, because a listener may do anything.
            let event = self.held().get(id).and_then(|held| event_of(*span, &held.call));
            event.into_iter().for_each(telemetry::emit);
        }
    }

    /// Gives up all calls. Unsent calls go back to the pool; the others are lost.
    pub(super) fn give_up(&self) {
        let ended = self.held().end(StartKnowledge::Unknown);
        for (at_end, held) in ended {
            held.data.task.iter().for_each(AbortHandle::abort);
            held.settle(at_end);
        }
    }
}

/// Finishes a call with the outcome that it was given up with.
fn conclude(mut held: MutexGuard<'_, HeldCalls<RpcState>>, id: u64) {
    let taken = held.take(id);
    // Finished without the lock, because the receiver of the answer may call again.
    drop(held);
    if let Some(taken) = taken {
        taken.conclude();
    }
}

/// Returns the error of a cancelled call.
pub(super) fn cancelled() -> RemoteError {
    RemoteError::new(RemoteErrorKind::Cancelled, "the caller has cancelled this call")
}
