//! Workers that are Rust closures, for the tests of those who use this library: no process, no Python, the same pool.
//!
//! ```
//! use snakepit::{Mock, Pool, Snakepit, args};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mock = Mock::new().command("add", |args| async move {
//!     let (a, b) = (args.get("a").and_then(|a| a.as_i64()), args.get("b").and_then(|b| b.as_i64()));
//!     a.zip(b).map(|(a, b)| (a + b).into()).ok_or_else(|| "a and b are integers".into())
//! });
//! let pit = Snakepit::builder().pool(Pool::mock(mock).workers(2)).start().await?;
//! let sum: i64 = pit.call("add", args! { a: 1, b: 2 }).await?;
//! assert_eq!(sum, 3);
//! # pit.stop().await; Ok(()) }
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_core::Stream;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::BoxStream;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::lost::LostCalls;
use super::{Adapter, CancelStage, Handle, Introduction, Reason, Spawner, StartError};
use crate::call::{Call, CallId, Input, Portion, RemoteError};
use crate::value::{Encoded, Value};
use crate::{Pool, custody};

type Trouble = Box<dyn std::error::Error + Send + Sync>;
type Commands = HashMap<String, Box<dyn Fn(Value) -> Answer + Send + Sync>>;

/// What a command comes to.
enum Answer {
    One(BoxFuture<'static, Result<Value, Trouble>>),
    Many(BoxStream<'static, Result<Value, Trouble>>),
}

/// Commands for a mock worker.
#[derive(Default)]
#[must_use]
pub struct Mock {
    commands: Commands,
}

impl Mock {
    /// A mock without commands.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a command. What it answers with `Ok` is the value, what it answers with `Err` arrives as an exception: a
    /// [`RemoteError`] as it is, anything else by its words. A [`Crash`] ends the worker.
    pub fn command<F, A>(mut self, name: impl Into<String>, command: F) -> Self
    where
        F: Fn(Value) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Value, Trouble>> + Send + 'static,
    {
        self.commands.insert(name.into(), Box::new(move |args| Answer::One(command(args).boxed())));
        self
    }

    /// Adds a command that answers with many values, as fast as they are read. It ends at the first error.
    pub fn stream<F, A>(mut self, name: impl Into<String>, command: F) -> Self
    where
        F: Fn(Value) -> A + Send + Sync + 'static,
        A: Stream<Item = Result<Value, Trouble>> + Send + 'static,
    {
        self.commands.insert(name.into(), Box::new(move |args| Answer::Many(command(args).boxed())));
        self
    }
}

/// An error of a mock's command by which its worker ends, as a process would that dies: the call fails with it, and so do
/// the others that the worker has.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Crash(pub String);

impl Pool {
    /// A pool of mock workers, named `mock`.
    pub fn mock(mock: Mock) -> Self {
        Self::new("mock", MockAdapter { commands: Arc::new(mock.commands) })
    }
}

struct MockAdapter {
    commands: Arc<Commands>,
}

impl Adapter for MockAdapter {
    fn start_worker(&self, _spawner: Spawner) -> BoxFuture<'_, Result<Arc<dyn Handle>, StartError>> {
        let mut commands: Vec<String> = self.commands.keys().cloned().collect();
        commands.sort_unstable();
        let introduction = Introduction { commands, language: "mock".into(), ..Introduction::default() };
        let worker = MockWorker {
            commands: Arc::clone(&self.commands),
            introduction,
            running: Mutex::default(),
            lost: LostCalls::new(),
            crash: watch::Sender::new(None),
        };
        futures_util::future::ready(Ok(Arc::new(worker) as Arc<dyn Handle>)).boxed()
    }

    fn starts_processes(&self) -> bool {
        false
    }
}

struct MockWorker {
    commands: Arc<Commands>,
    introduction: Introduction,
    running: Mutex<HashMap<CallId, Running>>,
    lost: LostCalls,
    crash: watch::Sender<Option<String>>,
}

struct Running {
    task: AbortHandle,
    credit: Arc<Credit>,
}

/// How much of a stream may still be sent.
#[derive(Default)]
struct Credit {
    left: Mutex<Portion>,
    granted: Notify,
}

impl Credit {
    async fn take(&self, bytes: usize) {
        loop {
            let granted = self.granted.notified();
            {
                let mut left = locked(&self.left);
                if left.items > 0 && left.bytes > 0 {
                    left.remove_item(bytes);
                    return;
                }
            }
            granted.await;
        }
    }

    fn add(&self, more: Portion) {
        let mut left = locked(&self.left);
        left.items = left.items.saturating_add(more.items);
        left.bytes = left.bytes.saturating_add(more.bytes);
        drop(left);
        self.granted.notify_one();
    }
}

impl MockWorker {
    fn answer(&self, call: &Call) -> Result<Answer, RemoteError> {
        let name = call.command();
        let Some(command) = self.commands.get(name) else {
            if name.starts_with("snakepit.") {
                return Ok(Answer::One(async { Ok(Value::default()) }.boxed()));
            }
            let message =
                format!("there is no command {name}; there is {}", self.introduction.commands.join(", "));
            return Err(RemoteError {
                nearest: self.introduction.commands.clone(),
                ..RemoteError::new("unknown_command", message)
            });
        };
        let answer = match call.input() {
            Input::One(args) => args
                .to_value()
                .map(command)
                .map_err(|error| RemoteError::new("bad_payload", error.to_string()))?,
            Input::Many(_) => return Err(RemoteError::new("refused", "a mock takes one call at a time")),
        };
        if matches!(answer, Answer::Many(_)) && call.stream_credit().is_none() {
            let message = format!("{name} answers with many values: call it as a stream");
            return Err(RemoteError::new("streaming", message));
        }
        Ok(answer)
    }

    /// It ends as a process would that dies in this call.
    fn crash(&self, call: Call, why: String) {
        self.lost.keep(call);
        self.crash.send_replace(Some(why));
    }
}

/// What a command has come to, and the items of a stream on the way there.
async fn outcome(call: &Call, answer: Answer, credit: &Credit) -> Result<Encoded, Trouble> {
    let encoded = |value: Value| {
        Encoded::encode(&value).map_err(|error| {
            let path = Some(error.path());
            Trouble::from(RemoteError { path, ..RemoteError::new("bad_value", error.to_string()) })
        })
    };
    match answer {
        Answer::One(value) => {
            let value = encoded(value.await?)?;
            if call.stream_credit().is_some() {
                call.send_item(value.clone());
            }
            Ok(value)
        }
        Answer::Many(mut values) => {
            while let Some(value) = values.next().await {
                let item = encoded(value?)?;
                credit.take(item.payload_len()).await;
                call.send_item(item);
            }
            Ok(Encoded::nil())
        }
    }
}

impl Handle for MockWorker {
    fn process(&self) -> Option<&custody::Worker> {
        None
    }

    fn introduction(&self) -> &Introduction {
        &self.introduction
    }

    fn execute(self: Arc<Self>, call: Call) {
        if self.crash.borrow().is_some() {
            return self.lost.keep(call);
        }
        let id = call.id();
        let answer = match self.answer(&call) {
            Ok(answer) => answer,
            Err(error) => return call.finish(Err(error)),
        };
        let credit = Arc::new(Credit::default());
        credit.add(call.stream_credit().unwrap_or_default());
        let mut running = locked(&self.running);
        if self.lost.is_over() {
            // It was chosen for this worker before the worker's end was known.
            drop(running);
            return call.give_back();
        }
        let worker = Arc::clone(&self);
        let task = tokio::spawn({
            let credit = Arc::clone(&credit);
            async move {
                let outcome = outcome(&call, answer, &credit).await;
                locked(&worker.running).remove(&id);
                match outcome {
                    Ok(value) => call.finish(Ok(value)),
                    Err(error) => match error.downcast::<RemoteError>() {
                        Ok(error) => call.finish(Err(*error)),
                        Err(error) => match error.downcast::<Crash>() {
                            Ok(crash) => worker.crash(call, crash.0),
                            Err(error) => {
                                call.finish(Err(RemoteError::new("exception", error.to_string())));
                            }
                        },
                    },
                }
            }
        });
        running.insert(id, Running { task: task.abort_handle(), credit });
    }

    fn cancel(&self, call: CallId, _stage: CancelStage) {
        let running = locked(&self.running).remove(&call);
        if let Some(running) = running {
            running.task.abort();
        }
    }

    fn grant(&self, call: CallId, more: Portion) {
        if let Some(running) = locked(&self.running).get(&call) {
            running.credit.add(more);
        }
    }

    fn broken(&self) -> BoxFuture<'_, String> {
        async {
            let mut crash = self.crash.subscribe();
            let why = match crash.wait_for(Option::is_some).await {
                Ok(why) => why.clone(),
                Err(_) => None,
            };
            why.unwrap_or_default()
        }
        .boxed()
    }

    fn terminate(&self, _reason: Reason) -> BoxFuture<'_, ()> {
        // First: whoever is noted among the running ones afterwards sees that it is over.
        self.lost.end();
        let running = std::mem::take(&mut *locked(&self.running));
        for running in running.into_values() {
            running.task.abort();
        }
        futures_util::future::ready(()).boxed()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
