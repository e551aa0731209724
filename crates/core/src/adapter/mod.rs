//! Adapters: how one kind of worker is started, called and ended.
//!
//! The engine knows nothing of protocols; it knows this trait. `init` runs once per pool. `start_worker` runs once per
//! worker and returns when the worker is ready. `execute` takes one call. `terminate` runs exactly once for each worker
//! that was started, however the worker ended. A new adapter is a page of code: see `examples/adapter.rs`.
//! [`HeldCalls`] keeps the calls of a worker that executes several at a time.

mod call_stage;
mod credit;
mod held_calls;
pub mod host_tools;
mod id_map;
mod protocol_fault;
mod spawner;
#[cfg(test)]
pub(crate) mod testing;
pub mod timeouts;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{self, BoxFuture};
use serde::{Deserialize, Serialize, Serializer};

pub use call_stage::{CallSettlement, CallStage, StartKnowledge};
pub use credit::Credit;
pub use held_calls::{CallAdmission, EndedCalls, HeldCall, HeldCalls, ItemDelivery};
pub use id_map::IdMap;
pub use protocol_fault::{BadHeader, CreditUnit, FrameKind, ProtocolFault, WorkerChannel};
pub use spawner::{ReadinessHint, Spawner, StartError};

use tokio::time::Instant;

pub use crate::call::{Batching, answer_together, is_reserved};
use crate::call::{Call, CallId, Portion};
use crate::custody;
use crate::environment::Environment;
use snakepit_policy::recycling::RecycleReason;

/// A way to start one kind of worker.
///
/// ```
/// use std::sync::Arc;
///
/// use futures_util::future::BoxFuture;
/// use snakepit::adapter::{Adapter, Handle, Spawner, StartError};
/// # type MyHandle = Arc<dyn Handle>;
/// # async fn connect(_: Spawner) -> Result<MyHandle, StartError> { std::future::pending().await }
///
/// struct MyAdapter;
///
/// impl Adapter for MyAdapter {
///     fn start_worker(&self, spawner: Spawner) -> BoxFuture<'_, Result<Arc<dyn Handle>, StartError>> {
///         // Starts the process with `spawner.spawn`, connects to it, and waits until it is ready.
///         Box::pin(connect(spawner))
///     }
/// }
///
/// let pool = snakepit::PoolOptions::new("mine", MyAdapter).workers(2);
/// ```
pub trait Adapter: Send + Sync + 'static {
    /// Prepares what all workers of a pool share. Runs once, before the first worker is started.
    fn init<'a>(&'a self, _spawner: &'a Spawner) -> BoxFuture<'a, Result<(), StartError>> {
        Box::pin(future::ready(Ok(())))
    }

    /// Starts one worker and waits until it is ready to serve. Waits for a signal of the worker, never for a fixed
    /// time.
    fn start_worker(&self, spawner: Spawner) -> BoxFuture<'_, Result<Arc<dyn Handle>, StartError>>;

    /// Returns the Python environment of the workers, if they have one that can be built ahead.
    fn environment(&self) -> Option<&Environment> {
        None
    }

    /// Reports whether the workers are processes. Other workers need no custody.
    fn starts_processes(&self) -> bool {
        true
    }
}

/// A worker that was started.
///
/// ```
/// use std::sync::Arc;
///
/// use futures_util::future::{BoxFuture, ready};
/// use snakepit::adapter::{Handle, Introduction, Reason};
/// use snakepit::call::Call;
/// use snakepit::custody::WorkerProcess;
/// use snakepit::value::Encoded;
///
/// struct Echo(Introduction);
///
/// impl Handle for Echo {
///     fn process(&self) -> Option<&WorkerProcess> {
///         None
///     }
///
///     fn introduction(&self) -> &Introduction {
///         &self.0
///     }
///
///     fn execute(self: Arc<Self>, call: Call) {
///         let answer = Encoded::encode(call.command()).expect("a text");
///         call.finish(Ok(answer));
///     }
///
///     fn terminate(&self, _reason: Reason) -> BoxFuture<'_, ()> {
///         Box::pin(ready(()))
///     }
/// }
/// ```
pub trait Handle: Send + Sync + 'static {
    /// Returns the worker's process, as the spawner returned it. Returns `None` if the worker is not a process.
    fn process(&self) -> Option<&custody::WorkerProcess>;

    /// Returns what the worker declared about itself when it became ready.
    fn introduction(&self) -> &Introduction;

    /// Takes a call. Must not block. Answers through the call, now or later; [`Call::serve`] does so with a future.
    fn execute(self: Arc<Self>, call: Call);

    /// Asks the worker to give up a call.
    fn cancel(&self, _call: CallId, _stage: CancelStage) {}

    /// Adds to the credit of a stream.
    fn grant(&self, _call: CallId, _more: Portion) {}

    /// Returns the stacks of the worker's threads.
    fn stacks(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(future::ready(None))
    }

    /// Returns the stack of the code that executes this call, followed by the stacks of the threads. A worker that
    /// cannot tell its calls apart returns all stacks.
    fn stacks_of(&self, _call: CallId) -> BoxFuture<'_, Option<String>> {
        self.stacks()
    }

    /// Removes and returns the stack of a crash from the last lines that the worker printed, if they contain one.
    fn take_crash_stack(&self, _printed: &mut Vec<String>) -> Option<String> {
        None
    }

    /// Asks the worker for a heartbeat, which shows that its code can run. Must not block.
    fn ask_beat(&self) {}

    /// Returns the number of heartbeats so far, or `None` if the worker sends none.
    fn beats(&self) -> Option<u64> {
        None
    }

    /// Returns the calls that the worker is executing, without those that wait at the worker.
    fn at_work(&self) -> Vec<AtWork> {
        Vec::new()
    }

    /// Returns the calls that the worker has certainly not begun by now. Once the worker is gone, other workers get
    /// them.
    fn not_begun(&self) -> Vec<CallId> {
        Vec::new()
    }

    /// Completes with the reason when the worker can no longer be called. The end of its process need not be reported
    /// here.
    fn broken(&self) -> BoxFuture<'_, ProtocolFault> {
        Box::pin(future::pending())
    }

    /// Ends the worker, gracefully if possible, and leaves nothing behind. Calls that the worker still holds are
    /// dropped, or given back if they were certainly not started: a worker that lives may still start what it was sent.
    /// The pool ends what remains of the process, afterwards or, when its time limit is reached, while this future still
    /// waits. In the second case the future is polled a moment longer and then dropped.
    fn terminate(&self, reason: Reason) -> BoxFuture<'_, ()>;
}

/// A call that a worker is executing.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct AtWork {
    /// The call.
    pub call: CallId,
    /// Its command.
    pub command: Arc<str>,
    /// When the worker began it.
    pub since: Instant,
}

/// What a worker declares about itself when it becomes ready.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Introduction {
    /// The commands that it serves.
    pub commands: Vec<String>,
    /// The features that it declares, as defined by the protocol of its adapter.
    #[serde(skip)]
    pub features: Vec<String>,
    /// Its language and version.
    pub language: String,
    /// The version of its SDK.
    pub sdk: String,
    /// The commands that take many calls at a time, as lists.
    pub batches: BTreeMap<String, Batching>,
    /// Whether it is known, after the worker's death, which of its calls were started.
    #[serde(skip)]
    pub tells_what_it_started: bool,
    /// Whether many calls of one command may be sent to it together ([`crate::Input::Many`]).
    #[serde(skip)]
    pub takes_many: bool,
}

impl AtWork {
    /// Creates the entry of a call that a worker began at this time.
    pub fn new(call: CallId, command: impl Into<Arc<str>>, since: Instant) -> Self {
        Self { call, command: command.into(), since }
    }
}

impl Introduction {
    /// Creates the introduction of a worker that serves these commands.
    pub fn new(commands: Vec<String>) -> Self {
        Self { commands, ..Self::default() }
    }

    /// Sets the language and its version.
    pub fn language(mut self, language: impl Into<String>) -> Self {
        self.language = language.into();
        self
    }

    /// Sets the version of the SDK.
    pub fn sdk(mut self, version: impl Into<String>) -> Self {
        self.sdk = version.into();
        self
    }

    /// Sets the features, as defined by the protocol of the adapter.
    pub fn features(mut self, features: Vec<String>) -> Self {
        self.features = features;
        self
    }

    /// Reports whether a command belongs to the engine and is not served by the worker. With such commands, the engine
    /// checks whether the worker is healthy, or reports the end of a session. Answer such a call with
    /// [`Encoded::nil`](crate::value::Encoded::nil).
    pub fn ignores(&self, command: &str) -> bool {
        is_reserved(command) && !self.commands.iter().any(|known| known == command)
    }
}

/// The means by which a call is cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CancelStage {
    /// A flag that the worker's code may check.
    Ask,
    /// An exception that is raised in the call.
    Raise,
}

/// Why another worker takes a worker's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplaceReason {
    /// The worker is worn, or somebody asked for its replacement.
    #[error("{0}")]
    Recycled(RecycleReason),
    /// The pool's code or settings have changed.
    #[error("the pool was reloaded")]
    Reloaded,
    /// The worker has the new code or settings of a reload that was given up.
    #[error("the reload was given up")]
    ReloadGivenUp,
    /// The worker had its only call.
    #[error("each call gets a worker of its own")]
    OneCallEach,
}

impl Serialize for ReplaceReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The reason why a worker is ended.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// The pool stops or shrinks.
    Stopped,
    /// Another worker takes its place.
    Replaced(ReplaceReason),
    /// Its process has ended.
    Died,
    /// It can no longer be called.
    Broken(ProtocolFault),
    /// It did not give up a call that was cancelled.
    CancelIgnored(CallId),
    /// It has a call, and has shown no sign of life for this time.
    Stuck(Duration),
}

impl Call {
    /// Answers the call with the output of a future, for adapters that have one.
    pub fn serve<F>(self, work: F)
    where
        F: Future<Output = Result<crate::value::Encoded, crate::RemoteError>> + Send + 'static,
    {
        tokio::spawn(async move { self.finish(work.await) });
    }
}
