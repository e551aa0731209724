//! Workers that are Rust closures, for the tests of programs that use this library: no process, no Python, the same
//! pool.
//!
//! ```
//! use snakepit::adapter::Mock;
//! use snakepit::{Snakepit, args};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mock = Mock::new().command("add", |args| async move {
//!     let (a, b) = (args.get("a").and_then(|a| a.as_i64()), args.get("b").and_then(|b| b.as_i64()));
//!     a.zip(b).map(|(a, b)| (a + b).into()).ok_or_else(|| "a and b are integers".into())
//! });
//! let pit = Snakepit::builder().pool(snakepit::mock(mock).workers(2)).start().await?;
//! let sum: i64 = pit.call("add", args! { a: 1, b: 2 }).await?;
//! assert_eq!(sum, 3);
//! # pit.stop().await; Ok(()) }
//! ```

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_core::Stream;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::BoxStream;
use tokio::task::AbortHandle;

use super::{
    Adapter, CallAdmission, CancelStage, Credit, Handle, HeldCalls, Introduction, ItemDelivery,
    ProtocolFault, Reason, Spawner, StartError, StartKnowledge,
};
use crate::call::{Call, CallId, Input, Portion, RemoteError, RemoteErrorKind};
use crate::transport::Closed;
use crate::value::{Encoded, Value};
use snakepit_core::PoolOptions;

use crate::custody;

/// The error of a mock's command.
pub type MockError = Box<dyn std::error::Error + Send + Sync>;
type MockCommands = HashMap<String, Box<dyn Fn(Value) -> MockAnswer + Send + Sync>>;

/// The kind of answer of a command.
enum MockAnswer {
    One(BoxFuture<'static, Result<Value, MockError>>),
    Many(BoxStream<'static, Result<Value, MockError>>),
}

/// Commands for a mock worker.
///
/// ```
/// use snakepit::adapter::Mock;
/// use snakepit::{Snakepit, args};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mock = Mock::new()
///     .command("greet", |_| async { Ok("hello".into()) })
///     .command("fail", |_| async { Err("told to".into()) });
/// let pit = Snakepit::builder().pool(snakepit::mock(mock)).start().await?;
/// let greeting: String = pit.call("greet", args! {}).await?;
/// assert_eq!(greeting, "hello");
/// assert!(pit.call::<String>("fail", args! {}).await.is_err());
/// # Ok(()) }
/// ```
#[derive(Default)]
#[must_use]
pub struct Mock {
    commands: MockCommands,
}

impl Mock {
    /// Creates a mock without commands.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a command. `Ok` returns a value to the caller. `Err` arrives as an exception: a [`RemoteError`]
    /// unchanged, any other error by its message. A [`Crash`] ends the worker.
    pub fn command<F, A>(mut self, name: impl Into<String>, command: F) -> Self
    where
        F: Fn(Value) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Value, MockError>> + Send + 'static,
    {
        self.commands.insert(name.into(), Box::new(move |args| MockAnswer::One(command(args).boxed())));
        self
    }

    /// Adds a command that answers with many values, as fast as the caller reads them. The first error ends the
    /// stream.
    pub fn stream<F, A>(mut self, name: impl Into<String>, command: F) -> Self
    where
        F: Fn(Value) -> A + Send + Sync + 'static,
        A: Stream<Item = Result<Value, MockError>> + Send + 'static,
    {
        self.commands.insert(name.into(), Box::new(move |args| MockAnswer::Many(command(args).boxed())));
        self
    }
}

/// An error that ends the mock's worker as if its process had died: the call fails, and so do all other calls that
/// the worker holds.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Crash(pub String);

/// Creates a pool of mock workers, named `mock`.
///
/// ```
/// use snakepit::adapter::Mock;
///
/// let mock = Mock::new().command("ping", |_| async { Ok("pong".into()) });
/// let pool = snakepit::mock(mock).workers(2);
/// ```
pub fn pool(mock: Mock) -> PoolOptions {
    PoolOptions::new("mock", MockAdapter { commands: Arc::new(mock.commands) })
}

struct MockAdapter {
    commands: Arc<MockCommands>,
}

impl Adapter for MockAdapter {
    fn start_worker(&self, spawner: Spawner) -> BoxFuture<'_, Result<Arc<dyn Handle>, StartError>> {
        let mut commands: Vec<String> = self.commands.keys().cloned().collect();
        commands.sort_unstable();
        let introduction = Introduction::new(commands).language("mock");
        let worker = MockWorker {
            commands: Arc::clone(&self.commands),
            introduction,
            held: Mutex::new(HeldCalls::new(spawner.concurrency())),
            crash: Closed::default(),
        };
        futures_util::future::ready(Ok(Arc::new(worker) as Arc<dyn Handle>)).boxed()
    }

    fn starts_processes(&self) -> bool {
        false
    }
}

struct MockWorker {
    commands: Arc<MockCommands>,
    introduction: Introduction,
    /// The calls, each with its task. The task is missing only until it is spawned.
    held: Mutex<HeldCalls<Option<AbortHandle>>>,
    crash: Closed,
}

impl MockWorker {
    fn answer(&self, call: &Call) -> Result<MockAnswer, RemoteError> {
        let name = call.command();
        let Some(command) = self.commands.get(name) else {
            if self.introduction.ignores(name) {
                return Ok(MockAnswer::One(async { Ok(Value::default()) }.boxed()));
            }
            let message =
                format!("there is no command {name}; there is {}", self.introduction.commands.join(", "));
            let error = RemoteError::new(RemoteErrorKind::UnknownCommand, message);
            return Err(error.nearest(self.introduction.commands.clone()));
        };
        let answer = match call.input() {
            Input::One(args) => args
                .to_value()
                .map(command)
                .map_err(|error| RemoteError::new(RemoteErrorKind::BadPayload, error.to_string()))?,
            Input::Many(_) => {
                return Err(RemoteError::new(RemoteErrorKind::Refused, "a mock takes one call at a time"));
            }
        };
        if matches!(answer, MockAnswer::Many(_)) && call.stream_credit().is_none() {
            let message = format!("{name} answers with many values: call it as a stream");
            return Err(RemoteError::new(RemoteErrorKind::Streaming, message));
        }
        Ok(answer)
    }

    fn held(&self) -> MutexGuard<'_, HeldCalls<Option<AbortHandle>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the outcome of a command. The items of a stream are sent to the caller meanwhile, as its credit
    /// allows.
    async fn outcome(
        &self,
        id: u64,
        answer: MockAnswer,
        credit: Option<&Credit>,
    ) -> Result<Encoded, MockError> {
        let encoded = |value: Value| {
            Encoded::encode(&value).map_err(|error| {
                let path = error.path();
                MockError::from(RemoteError::new(RemoteErrorKind::BadValue, error.to_string()).path(path))
            })
        };
        match answer {
            MockAnswer::One(value) => {
                let value = encoded(value.await?)?;
                if credit.is_some() {
                    self.held().item(id, value.clone());
                }
                Ok(value)
            }
            MockAnswer::Many(mut values) => {
                while let Some(value) = values.next().await {
                    let item = encoded(value?)?;
                    if let Some(credit) = credit {
                        credit.available().await;
                    }
                    if self.held().item(id, item) == ItemDelivery::Dropped {
                        // The call was cancelled, and a stream that is always ready would never yield to the abort.
                        break;
                    }
                }
                Ok(Encoded::nil())
            }
        }
    }

    /// Answers the call of a finished command, or ends the worker if the command crashed.
    fn conclude(&self, id: u64, outcome: Result<Encoded, MockError>) {
        let outcome = match outcome {
            Ok(value) => Ok(value),
            Err(error) => match error.downcast::<Crash>() {
                Ok(crash) => return self.crash(&crash.0),
                Err(error) => Err(match error.downcast::<RemoteError>() {
                    Ok(error) => *error,
                    Err(error) => RemoteError::new(RemoteErrorKind::Exception, error.to_string()),
                }),
            },
        };
        let taken = self.held().take(id);
        if let Some(taken) = taken {
            taken.finish(outcome);
        }
    }

    /// Ends the worker as if its process had died. Its calls stay held until the end of the worker is known.
    fn crash(&self, why: &str) {
        self.held().close();
        self.crash.close(why.into());
    }
}

impl Handle for MockWorker {
    fn process(&self) -> Option<&custody::WorkerProcess> {
        None
    }

    fn introduction(&self) -> &Introduction {
        &self.introduction
    }

    fn execute(self: Arc<Self>, call: Call) {
        let id = call.id().get();
        let is_crashed = self.crash.is_told();
        // Runs without the lock, because a command may do anything.
        let answer = match (!is_crashed).then(|| self.answer(&call)).transpose() {
            Ok(answer) => answer,
            Err(error) => return call.finish(Err(error)),
        };
        let mut held = self.held();
        match (held.begin(call, None), answer) {
            (CallAdmission::ToSend(begun), Some(answer)) => {
                let worker = Arc::clone(&self);
                let task = tokio::spawn(async move {
                    let credit = worker.held().credit(id);
                    let outcome = AssertUnwindSafe(worker.outcome(id, answer, credit.as_deref()));
                    // A panic fails this call only.
                    let outcome = outcome.catch_unwind().await;
                    let outcome = outcome.unwrap_or_else(|_| Err("the command of the mock panicked".into()));
                    worker.conclude(id, outcome);
                });
                begun.data = Some(task.abort_handle());
                held.sent(id);
                held.started(id);
            }
            (CallAdmission::ToSend(_), None) | (CallAdmission::Kept, _) => {}
            (CallAdmission::Refused(call), _) => {
                // The call was dispatched to this worker before the worker's end was known.
                drop(held);
                call.give_back();
            }
        }
    }

    fn cancel(&self, call: CallId, _stage: CancelStage) {
        let taken = self.held().take(call.get());
        if let Some(task) = taken.and_then(|taken| taken.data) {
            task.abort();
        }
    }

    fn grant(&self, call: CallId, more: Portion) {
        self.held().grant(call.get(), more);
    }

    fn broken(&self) -> BoxFuture<'_, ProtocolFault> {
        async { self.crash.reason().await }.boxed()
    }

    fn terminate(&self, _reason: Reason) -> BoxFuture<'_, ()> {
        let ended = self.held().end(StartKnowledge::Unknown);
        for (at_end, held) in ended {
            held.data.iter().for_each(AbortHandle::abort);
            held.settle(at_end);
        }
        futures_util::future::ready(()).boxed()
    }
}
