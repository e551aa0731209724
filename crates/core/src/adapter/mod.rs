//! Adapters: how one kind of worker is started, spoken to and ended.
//!
//! The engine knows nothing of protocols; it knows this trait. `init` runs once per pool, `start_worker` once per worker
//! and returns only when that worker is ready, `execute` takes one call, `terminate` runs exactly once for each worker
//! that was started, whatever ended it. A new adapter is a page of code: see `examples/adapter.rs`. [`HeldCalls`] keeps the calls of a
//! worker that does several at a time.

mod by_number;
mod call_stage;
mod credit;
mod held_calls;
pub mod host_tools;
pub mod patience;
mod spawner;
#[cfg(test)]
pub(crate) mod testing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{self, BoxFuture};
use serde::Deserialize;

pub use by_number::ByNumber;
pub use call_stage::{AtEnd, CallStage, Starts};
pub use credit::Credit;
pub use held_calls::{Begun, EndedCalls, HeldCall, HeldCalls, Streamed};
pub use spawner::{Awaited, Spawner, StartError};

use tokio::time::Instant;

pub use crate::call::Batching;
use crate::call::{Call, CallId, Portion};
use crate::custody;
use crate::environment::Environment;

/// How one kind of worker is started.
pub trait Adapter: Send + Sync + 'static {
    /// Prepares what all workers of a pool share. Runs once, before the first one is started.
    fn init<'a>(&'a self, _spawner: &'a Spawner) -> BoxFuture<'a, Result<(), StartError>> {
        Box::pin(future::ready(Ok(())))
    }

    /// Starts one worker and waits, for a signal and never for a timer, until it is ready to serve.
    fn start_worker(&self, spawner: Spawner) -> BoxFuture<'_, Result<Arc<dyn Handle>, StartError>>;

    /// The Python environment that its workers run in, if they have one that can be made ahead.
    fn environment(&self) -> Option<&Environment> {
        None
    }

    /// Whether its workers are processes. Those that are not need no custody.
    fn starts_processes(&self) -> bool {
        true
    }
}

/// One worker that was started.
pub trait Handle: Send + Sync + 'static {
    /// Its process, as the spawner gave it; none for what is not a process.
    fn process(&self) -> Option<&custody::WorkerProcess>;

    /// What it said about itself when it got ready.
    fn introduction(&self) -> &Introduction;

    /// Takes a call. Must not block; answers through the call, now or later. [`Call::serve`] does it with a future.
    fn execute(self: Arc<Self>, call: Call);

    /// Asks it to give up a call.
    fn cancel(&self, _call: CallId, _stage: CancelStage) {}

    /// Grants a stream so much more.
    fn grant(&self, _call: CallId, _more: Portion) {}

    /// Where its threads are.
    fn stacks(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(future::ready(None))
    }

    /// Where its code is that does this call, then its threads. One that cannot tell calls apart tells everything.
    fn stacks_of(&self, _call: CallId) -> BoxFuture<'_, Option<String>> {
        self.stacks()
    }

    /// Takes the stack of its crash out of the last lines that it printed, if it wrote one there.
    fn take_crash_stack(&self, _printed: &mut Vec<String>) -> Option<String> {
        None
    }

    /// Asks it for a sign that its code can run. Must not block.
    fn ask_beat(&self) {}

    /// How often it gave such a sign; `None` if it cannot.
    fn beats(&self) -> Option<u64> {
        None
    }

    /// The calls that it is doing, those that only wait at it not among them.
    fn at_work(&self) -> Vec<AtWork> {
        Vec::new()
    }

    /// Those of its calls that it has surely not begun by now: once it is gone, they go to others.
    fn not_begun(&self) -> Vec<CallId> {
        Vec::new()
    }

    /// Ready when it can no longer be spoken to, with the reason. The end of its process need not be told here.
    fn broken(&self) -> BoxFuture<'_, String> {
        Box::pin(future::pending())
    }

    /// Ends it: gracefully if it can be, without leaving anything behind. Calls that it still holds are dropped, or given
    /// back if they were surely not started: one that lives may still start what it was sent. What remains of its process
    /// is ended by the pool, afterwards or, if it is out of patience, while this waits; then this goes on for a moment
    /// and is dropped.
    fn terminate(&self, reason: Reason) -> BoxFuture<'_, ()>;
}

/// A call that a worker is doing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AtWork {
    /// The call.
    pub call: CallId,
    /// Its command.
    pub command: Arc<str>,
    /// Since when.
    pub since: Instant,
}

/// What a worker says about itself when it gets ready.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Introduction {
    /// The commands that it serves.
    pub commands: Vec<String>,
    /// What it declares of itself, as the protocol of its adapter has it.
    #[serde(skip)]
    pub features: Vec<String>,
    /// Its language and version.
    pub language: String,
    /// The version of its SDK.
    pub sdk: String,
    /// Those of its commands that take many calls at a time, as lists.
    pub batches: BTreeMap<String, Batching>,
    /// Whether one can tell, after its death, which of its calls were started.
    #[serde(skip)]
    pub tells_what_it_started: bool,
    /// Whether many calls of one command may travel to it together ([`crate::Input::Many`]).
    #[serde(skip)]
    pub takes_many: bool,
}

/// What the names of the engine's own commands and tools begin with.
const RESERVED: &str = "snakepit.";

/// Whether a command or a tool is the engine's own.
pub fn is_reserved(name: &str) -> bool {
    name.starts_with(RESERVED)
}

impl Introduction {
    /// Whether a command is the engine's own, and the worker does not serve it: the engine asks whether the worker is well, or tells
    /// that a session is over. Answer such a call with [`Encoded::nil`](crate::value::Encoded::nil).
    pub fn ignores(&self, command: &str) -> bool {
        is_reserved(command) && !self.commands.iter().any(|known| known == command)
    }
}

/// How hard a call is cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CancelStage {
    /// A flag that the worker's code may look at.
    Ask,
    /// An exception in the call.
    Raise,
}

/// Why a worker is ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The pool stops, or gets smaller.
    Stopped,
    /// Another one takes its place: it is worn, or its code is old.
    Replaced(String),
    /// Its process has ended.
    Died,
    /// It cannot be spoken to any more.
    Broken(String),
    /// It did not give up a call that was cancelled.
    Stubborn(CallId),
    /// It has a call, and has shown no sign of life for so long.
    Stuck(Duration),
}

impl Call {
    /// Answers the call with what a future comes to: the comfortable way for an adapter that has one.
    pub fn serve<F>(self, work: F)
    where
        F: Future<Output = Result<crate::value::Encoded, crate::RemoteError>> + Send + 'static,
    {
        tokio::spawn(async move { self.finish(work.await) });
    }
}
