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
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::{BoxFuture, FutureExt};
use tokio::task::AbortHandle;

use super::{Adapter, CancelStage, Handle, Introduction, Reason, Spawner, StartError};
use crate::call::{Call, CallId, Input, RemoteError};
use crate::value::{Encoded, Value};
use crate::{Pool, custody};

type Answer = BoxFuture<'static, Result<Value, Box<dyn std::error::Error + Send + Sync>>>;
type Commands = HashMap<String, Box<dyn Fn(Value) -> Answer + Send + Sync>>;

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

    /// Adds a command. What it answers with `Ok` is the value, what it answers with `Err` arrives as an exception.
    pub fn command<F, A>(mut self, name: impl Into<String>, command: F) -> Self
    where
        F: Fn(Value) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Value, Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        self.commands.insert(name.into(), Box::new(move |args| command(args).boxed()));
        self
    }
}

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
        let worker =
            MockWorker { commands: Arc::clone(&self.commands), introduction, running: Mutex::default() };
        futures_util::future::ready(Ok(Arc::new(worker) as Arc<dyn Handle>)).boxed()
    }

    fn starts_processes(&self) -> bool {
        false
    }
}

struct MockWorker {
    commands: Arc<Commands>,
    introduction: Introduction,
    running: Mutex<HashMap<CallId, AbortHandle>>,
}

impl MockWorker {
    fn answer(&self, call: &Call) -> Result<Answer, RemoteError> {
        let name = call.command();
        let Some(command) = self.commands.get(name) else {
            if name.starts_with("snakepit.") {
                return Ok(async { Ok(Value::default()) }.boxed());
            }
            let message =
                format!("there is no command {name}; there is {}", self.introduction.commands.join(", "));
            return Err(RemoteError {
                nearest: self.introduction.commands.clone(),
                ..RemoteError::new("unknown_command", message)
            });
        };
        match call.input() {
            Input::One(args) => args
                .to_value()
                .map(command)
                .map_err(|error| RemoteError::new("bad_payload", error.to_string())),
            Input::Many(_) => Err(RemoteError::new("refused", "a mock takes one call at a time")),
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
        let id = call.id();
        let answer = match self.answer(&call) {
            Ok(answer) => answer,
            Err(error) => return call.finish(Err(error)),
        };
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let worker = Arc::clone(&self);
        let task = tokio::spawn(async move {
            let outcome = match answer.await {
                Ok(value) => {
                    Encoded::encode(&value).map_err(|error| RemoteError::new("bad_value", error.to_string()))
                }
                Err(error) => Err(RemoteError::new("exception", error.to_string())),
            };
            if let (Some(_), Ok(item)) = (call.stream_credit(), &outcome) {
                call.send_item(item.clone());
            }
            worker.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            call.finish(outcome);
        });
        running.insert(id, task.abort_handle());
    }

    fn cancel(&self, call: CallId, _stage: CancelStage) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&call);
        if let Some(task) = running {
            task.abort();
        }
    }

    fn terminate(&self, _reason: Reason) -> BoxFuture<'_, ()> {
        let running = std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner));
        for task in running.into_values() {
            task.abort();
        }
        futures_util::future::ready(()).boxed()
    }
}
