//! Tools: functions of the host that its workers may call while their own call runs.

use std::any::Any;
use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{BoxStream, Stream, StreamExt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::call::{Call, CallError, CallId, Chain, Link, RemoteError};
use crate::causes::with_causes;
use crate::pool;
use crate::telemetry::{self, Event, Level, TraceContext, is_heard};
use crate::value::{Encoded, ValueError};
use crate::worker::Berth;

/// What a tool knows about the call that asks it.
#[derive(Clone)]
#[non_exhaustive]
pub struct ToolContext {
    /// The call.
    pub call: CallId,
    /// Its command.
    pub command: Arc<str>,
    /// Its pool.
    pub pool: Arc<str>,
    /// Its session.
    pub session: Option<Arc<str>>,
    shared: Arc<pool::Shared>,
}

impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolContext")
            .field("call", &self.call)
            .field("command", &self.command)
            .finish_non_exhaustive()
    }
}

/// What a tool answers.
pub enum ToolAnswer {
    /// One value.
    Value(Encoded),
    /// Many.
    Stream(BoxStream<'static, Result<Encoded, RemoteError>>),
}

impl fmt::Debug for ToolAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Value(_) => "ToolAnswer::Value",
            Self::Stream(_) => "ToolAnswer::Stream",
        })
    }
}

type Run = dyn Fn(Encoded, ToolContext) -> BoxFuture<'static, Result<ToolAnswer, RemoteError>> + Send + Sync;

/// The tools of an engine, by name.
#[derive(Default)]
pub(crate) struct Tools(HashMap<String, Arc<Run>>);

impl Tools {
    pub(crate) fn add<A, R, E, F, Fut>(&mut self, name: String, tool: F)
    where
        A: DeserializeOwned,
        R: Serialize,
        E: fmt::Display + 'static,
        F: Fn(A, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        self.insert(name, move |args, context| {
            let asked = arguments::<A>(&args).map(|args| tool(args, context));
            async move {
                let outcome = asked.map_err(|error| bad_arguments(&error))?.await;
                let value = outcome.map_err(|error| failed::<E>(&error))?;
                Encoded::encode(&value).map(ToolAnswer::Value).map_err(|error| bad_value(&error))
            }
            .boxed()
        });
    }

    pub(crate) fn add_stream<A, R, E, F, S>(&mut self, name: String, tool: F)
    where
        A: DeserializeOwned,
        R: Serialize,
        E: fmt::Display + 'static,
        F: Fn(A, ToolContext) -> S + Send + Sync + 'static,
        S: Stream<Item = Result<R, E>> + Send + 'static,
    {
        self.insert(name, move |args, context| {
            let answer = arguments::<A>(&args).map_err(|error| bad_arguments(&error)).map(|args| {
                let items = tool(args, context).map(|item| {
                    let value = item.map_err(|error| failed::<E>(&error))?;
                    Encoded::encode(&value).map_err(|error| bad_value(&error))
                });
                ToolAnswer::Stream(items.boxed())
            });
            futures_util::future::ready(answer).boxed()
        });
    }

    fn insert(
        &mut self,
        name: String,
        run: impl Fn(Encoded, ToolContext) -> BoxFuture<'static, Result<ToolAnswer, RemoteError>>
        + Send
        + Sync
        + 'static,
    ) {
        self.0.insert(name, Arc::new(run));
    }

    fn find(&self, name: &str) -> Result<Arc<Run>, RemoteError> {
        self.0.get(name).map(Arc::clone).ok_or_else(|| {
            let mut known: Vec<&str> =
                self.0.keys().map(String::as_str).filter(|name| !name.starts_with("snakepit.")).collect();
            known.sort_unstable();
            let offered = if known.is_empty() {
                "it offers none".into()
            } else {
                format!("it offers {}", known.join(", "))
            };
            RemoteError::new("unknown_command", format!("the host has no tool {name}; {offered}"))
        })
    }

    /// The store of sessions, which workers reach as tools.
    pub(crate) fn add_session_store(&mut self) {
        type Stored<T> = Result<T, pool::StoreError>;
        self.add("snakepit.session.get".into(), |at: Spot, context: ToolContext| async move {
            let session = at.session_of(&context)?;
            Stored::Ok(context.shared.sessions.get(session, &at.key)?.unwrap_or_else(Encoded::nil))
        });
        self.add("snakepit.session.set".into(), |mut at: Spot, context: ToolContext| async move {
            let value = at.value.take().unwrap_or_else(Encoded::nil);
            let session = at.session_of(&context)?;
            context.shared.sessions.set(session, at.key.clone(), &value)
        });
        self.add("snakepit.session.delete".into(), |at: Spot, context: ToolContext| async move {
            context.shared.sessions.delete(at.session_of(&context)?, &at.key)
        });
        self.add("snakepit.session.keys".into(), |at: Spot, context: ToolContext| async move {
            context.shared.sessions.keys(at.session_of(&context)?)
        });
    }
}

/// Where in a session's store.
#[derive(Deserialize)]
struct Spot {
    #[serde(default)]
    session: Option<String>,
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: Option<Encoded>,
}

impl Spot {
    /// The session of the call that asks. A worker may name it, and no other: it serves many, and each sees its own alone.
    fn session_of<'a>(&self, context: &'a ToolContext) -> Result<&'a str, pool::StoreError> {
        let own = context.session.as_deref().ok_or(pool::StoreError::NotInSession)?;
        match self.session.as_deref() {
            Some(named) if named != own => Err(pool::StoreError::OtherSession),
            _ => Ok(own),
        }
    }
}

/// No arguments travel as an empty map; a tool that takes none is written with `()`.
fn arguments<A: DeserializeOwned>(args: &Encoded) -> Result<A, ValueError> {
    const EMPTY: [&[u8]; 2] = [&[0x80], &[0x90]];
    args.decode().or_else(|error| {
        if EMPTY.contains(&args.head()) { Encoded::nil().decode().map_err(|_| error) } else { Err(error) }
    })
}

/// What a worker is told of a tool's error: its words and those of its causes. No type of Rust is named, for the other side
/// knows none of them.
fn failed<E: fmt::Display + 'static>(error: &E) -> RemoteError {
    let any: &dyn Any = error;
    if let Some(error) = any.downcast_ref::<RemoteError>() {
        return error.clone();
    }
    if let Some(error) = any.downcast_ref::<CallError>() {
        return told(error);
    }
    if let Some(error) = any.downcast_ref::<Box<dyn Error + Send + Sync>>() {
        return told(&**error);
    }
    // In this form anyhow and its like name their causes.
    RemoteError::new("exception", format!("{error:#}"))
}

/// An error and its causes. That of another worker, in a nested call, is told as it was told to us.
fn told(error: &(dyn Error + 'static)) -> RemoteError {
    if let Some(CallError::Remote(error)) = error.downcast_ref() {
        return RemoteError { kind: "exception".into(), ..(**error).clone() };
    }
    RemoteError::new("exception", with_causes(error))
}

/// A worker waits for an answer, whatever becomes of the tool.
fn panicked(panic: &(dyn Any + Send)) -> RemoteError {
    let text = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    RemoteError::new("exception", format!("the tool panicked: {}", text.unwrap_or("it did not say why")))
}

fn bad_arguments(error: &ValueError) -> RemoteError {
    RemoteError::new("bad_argument", error.to_string())
}

fn bad_value(error: &ValueError) -> RemoteError {
    RemoteError::new("bad_value", error.to_string())
}

/// How a tool ended.
#[derive(Clone, Copy)]
enum Outcome {
    Ok,
    Failed,
    Cancelled,
}

/// A tool under way, until it is told how it ended. The engine's own are not worth a word.
struct Told(Option<(Link, Instant)>);

impl Told {
    fn new(link: &Link) -> Self {
        let told = is_heard(Level::Debug) && !link.tool.starts_with("snakepit.");
        Self(told.then(|| (link.clone(), Instant::now())))
    }

    fn end(mut self, outcome: Outcome) {
        self.tell(outcome);
    }

    fn tell(&mut self, outcome: Outcome) {
        let Some((link, began)) = self.0.take() else { return };
        let outcome = match outcome {
            Outcome::Ok => "ok",
            Outcome::Failed => "failed",
            Outcome::Cancelled => "cancelled",
        };
        let Link { call, pool, command, tool } = link;
        telemetry::emit(Event::ToolStop {
            pool,
            command,
            call: call.get(),
            tool,
            outcome,
            took: began.elapsed(),
        });
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.tell(Outcome::Cancelled);
    }
}

/// While it lives, the place of the asking call may serve a nested one.
struct Asking(Arc<Berth>, CallId);

impl Asking {
    fn new(berth: Arc<Berth>, call: CallId) -> Self {
        berth.pool.scheduler().asks(&berth, call);
        berth.pool.feed(berth.post);
        Self(berth, call)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.pool.scheduler().answered(&self.0, self.1);
    }
}

impl Call {
    /// Asks a tool of the host in the name of this call. Dropping the future cancels it.
    pub fn ask(&self, tool: &str, args: Encoded) -> BoxFuture<'static, Result<ToolAnswer, RemoteError>> {
        self.ask_within(tool, args, None)
    }

    /// As [`Call::ask`], from inside a span of the worker's: what the tool does is a child of that.
    pub fn ask_within(
        &self,
        tool: &str,
        args: Encoded,
        span: Option<TraceContext>,
    ) -> BoxFuture<'static, Result<ToolAnswer, RemoteError>> {
        let Some(slot) = &self.slot else {
            return futures_util::future::ready(Err(RemoteError::new("refused", "the call has no worker")))
                .boxed();
        };
        let id = self.id;
        let berth = Arc::clone(slot.berth());
        let pool = Arc::clone(&berth.pool);
        let link = Link {
            call: self.id,
            pool: Arc::clone(&pool.name),
            command: Arc::clone(&self.command.name),
            tool: tool.into(),
        };
        let trace = span.map(Arc::new).or_else(|| self.extras.as_ref()?.trace.clone());
        let told = Told::new(&link);
        let chain = Arc::new(Chain::extended(self.chain().map(Arc::as_ref), link, trace));
        let context = ToolContext {
            call: self.id,
            command: Arc::clone(&self.command.name),
            pool: Arc::clone(&pool.name),
            session: self.extras.as_ref().and_then(|extras| extras.session.clone()),
            shared: Arc::clone(&pool),
        };
        match pool.tools.find(tool) {
            Err(error) => {
                told.end(Outcome::Failed);
                futures_util::future::ready(Err(error)).boxed()
            }
            Ok(run) => async move {
                let asking = Asking::new(berth, id);
                let asked = AssertUnwindSafe(async { run(args, context).await }).catch_unwind();
                let asked = telemetry::attached(chain.trace(), asked);
                let answer = Arc::clone(&chain).scope(asked).await;
                let answer = answer.unwrap_or_else(|panic| Err(panicked(&*panic)));
                told.end(if answer.is_ok() { Outcome::Ok } else { Outcome::Failed });
                match answer? {
                    ToolAnswer::Value(value) => Ok(ToolAnswer::Value(value)),
                    // Items are made while they are read: in the same chain, and the call asks until the last.
                    ToolAnswer::Stream(items) => {
                        let items = AssertUnwindSafe(items).catch_unwind();
                        let items = items.map(|item| item.unwrap_or_else(|panic| Err(panicked(&*panic))));
                        let items = chain.scope_stream(items.boxed()).inspect(move |_| _ = &asking);
                        Ok(ToolAnswer::Stream(items.boxed()))
                    }
                }
            }
            .boxed(),
        }
    }
}
