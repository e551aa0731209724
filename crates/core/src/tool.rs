//! Tools: functions of the host that a worker may call while it serves a call.
//!
//! Owns the tools of an engine, the form in which workers get their errors, and the tools that reach the session store.
//! Knows no protocol: adapters call tools with [`Call::ask`].

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

use crate::adapter::is_reserved;
use crate::call::{Call, CallError, CallId, Chain, Link, RemoteError, RemoteErrorKind};
use crate::error_text::{panic_message, with_causes};
use crate::pool;
use crate::queue::StoreError;
use crate::telemetry::{self, Event, Level, TraceContext, is_heard};
use crate::value::{Encoded, ValueError};
use crate::worker::Worker;

/// What a tool knows about the call that uses it.
///
/// ```
/// use std::convert::Infallible;
///
/// use snakepit::call::ToolContext;
/// use snakepit::{Snakepit, Value, python};
///
/// let builder = Snakepit::builder().pool(python("worker.py")).tool("who", |_: Value, context: ToolContext| async move {
///     Ok::<_, Infallible>(format!("{} of pool {}, call {}", context.command, context.pool, context.call))
/// });
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct ToolContext {
    /// The call's id.
    pub call: CallId,
    /// The command of the call.
    pub command: Arc<str>,
    /// The pool of the call.
    pub pool: Arc<str>,
    /// The session of the call.
    pub session: Option<Arc<str>>,
    shared: Arc<pool::PoolInner>,
}

impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolContext")
            .field("call", &self.call)
            .field("command", &self.command)
            .finish_non_exhaustive()
    }
}

/// The answer of a tool.
pub enum ToolAnswer {
    /// One value.
    Value(Encoded),
    /// Many values.
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

type ToolFunction =
    dyn Fn(Encoded, ToolContext) -> BoxFuture<'static, Result<ToolAnswer, RemoteError>> + Send + Sync;

/// The tools of an engine, by name.
#[derive(Default)]
pub struct Tools(HashMap<String, Arc<ToolFunction>>);

impl Tools {
    /// Adds a function that answers with one value.
    pub fn add<A, R, E, F, Fut>(&mut self, name: String, tool: F)
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

    /// Adds a function that answers with a stream of values.
    pub fn add_stream<A, R, E, F, S>(&mut self, name: String, tool: F)
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

    fn find(&self, name: &str) -> Result<Arc<ToolFunction>, RemoteError> {
        self.0.get(name).map(Arc::clone).ok_or_else(|| {
            let mut known: Vec<&str> =
                self.0.keys().map(String::as_str).filter(|name| !is_reserved(name)).collect();
            known.sort_unstable();
            let offered = if known.is_empty() {
                "it offers no tools: add one with Builder::tool".into()
            } else {
                format!("it offers {}", known.join(", "))
            };
            RemoteError::new(
                RemoteErrorKind::UnknownCommand,
                format!("the host has no tool {name}; {offered}"),
            )
        })
    }

    /// Adds the session store, which workers reach as tools.
    pub(crate) fn add_session_store(&mut self) {
        type Stored<T> = Result<T, StoreError>;
        self.add("snakepit.session.get".into(), |at: StoreRequest, context: ToolContext| async move {
            let session = at.session_of(&context)?;
            Stored::Ok(context.shared.sessions.get(session, &at.key)?.unwrap_or_else(Encoded::nil))
        });
        self.add("snakepit.session.set".into(), |mut at: StoreRequest, context: ToolContext| async move {
            let value = at.value.take().unwrap_or_else(Encoded::nil);
            let session = at.session_of(&context)?;
            context.shared.sessions.set(session, at.key.clone(), &value)
        });
        self.add("snakepit.session.delete".into(), |at: StoreRequest, context: ToolContext| async move {
            context.shared.sessions.delete(at.session_of(&context)?, &at.key)
        });
        self.add("snakepit.session.keys".into(), |at: StoreRequest, context: ToolContext| async move {
            context.shared.sessions.keys(at.session_of(&context)?)
        });
    }
}

/// The arguments of the tools of the session store.
#[derive(Deserialize)]
struct StoreRequest {
    #[serde(default)]
    session: Option<String>,
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: Option<Encoded>,
}

impl StoreRequest {
    /// Returns the session of the call. A worker may name only that session: it serves many sessions, and a call may
    /// see only the data of its own.
    fn session_of<'a>(&self, context: &'a ToolContext) -> Result<&'a str, StoreError> {
        let own = context.session.as_deref().ok_or(StoreError::NotInSession)?;
        match self.session.as_deref() {
            Some(named) if named != own => Err(StoreError::OtherSession),
            _ => Ok(own),
        }
    }
}

/// Decodes the arguments of a tool. A call without arguments sends an empty map or list, which also decodes as `()`.
fn arguments<A: DeserializeOwned>(args: &Encoded) -> Result<A, ValueError> {
    const EMPTY: [&[u8]; 2] = [&[0x80], &[0x90]];
    args.decode().or_else(|error| {
        if EMPTY.contains(&args.head()) { Encoded::nil().decode().map_err(|_| error) } else { Err(error) }
    })
}

/// Converts a tool's error for the worker: the text of the error and of its causes. Rust types are not named, since the
/// worker does not know them.
fn failed<E: fmt::Display + 'static>(error: &E) -> RemoteError {
    let any: &dyn Any = error;
    if let Some(error) = any.downcast_ref::<RemoteError>() {
        return error.clone();
    }
    if let Some(error) = any.downcast_ref::<CallError>() {
        return with_causes_of(error);
    }
    if let Some(error) = any.downcast_ref::<Box<dyn Error + Send + Sync>>() {
        return with_causes_of(&**error);
    }
    // With `#`, anyhow and similar errors include their causes.
    RemoteError::new(RemoteErrorKind::Exception, format!("{error:#}"))
}

/// Converts an error with its causes. The error of another worker, from a nested call, is passed on unchanged.
fn with_causes_of(error: &(dyn Error + 'static)) -> RemoteError {
    if let Some(CallError::Remote(error)) = error.downcast_ref() {
        return RemoteError { kind: RemoteErrorKind::Exception, ..(**error).clone() };
    }
    RemoteError::new(RemoteErrorKind::Exception, with_causes(error))
}

/// Converts the panic of a tool for the worker.
fn panicked(panic: &(dyn Any + Send)) -> RemoteError {
    RemoteError::new(RemoteErrorKind::Exception, format!("the tool panicked: {}", panic_message(panic)))
}

fn bad_arguments(error: &ValueError) -> RemoteError {
    RemoteError::new(RemoteErrorKind::BadArgument, error.to_string())
}

fn bad_value(error: &ValueError) -> RemoteError {
    RemoteError::new(RemoteErrorKind::BadValue, error.to_string())
}

/// The outcome of a tool.
#[derive(Clone, Copy)]
enum ToolOutcome {
    Ok,
    Failed,
    Cancelled,
}

/// Emits the event of a tool when the tool ends. If it is dropped before, the event says `cancelled`. Internal tools
/// emit no event.
struct ToolReport(Option<(Link, Instant)>);

impl ToolReport {
    fn new(link: &Link) -> Self {
        let is_reported = is_heard(Level::Debug) && !is_reserved(&link.tool);
        Self(is_reported.then(|| (link.clone(), Instant::now())))
    }

    fn end(mut self, outcome: ToolOutcome) {
        self.emit(outcome);
    }

    fn emit(&mut self, outcome: ToolOutcome) {
        let Some((link, began)) = self.0.take() else { return };
        let outcome = match outcome {
            ToolOutcome::Ok => "ok",
            ToolOutcome::Failed => "failed",
            ToolOutcome::Cancelled => "cancelled",
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

impl Drop for ToolReport {
    fn drop(&mut self) {
        self.emit(ToolOutcome::Cancelled);
    }
}

/// A permit for the worker to serve a nested call in the place of a call that waits for a tool.
struct NestedCallPermit(Arc<Worker>, CallId);

impl NestedCallPermit {
    fn new(worker: Arc<Worker>, call: CallId) -> Self {
        worker.pool.scheduler().asks(&worker, call);
        worker.pool.feed(worker.index);
        Self(worker, call)
    }
}

impl Drop for NestedCallPermit {
    fn drop(&mut self) {
        self.0.pool.scheduler().answered(&self.0, self.1);
    }
}

impl Call {
    /// Calls a tool of the host on behalf of this call. Dropping the future cancels the tool.
    pub fn ask(&self, tool: &str, args: Encoded) -> BoxFuture<'static, Result<ToolAnswer, RemoteError>> {
        self.ask_within(tool, args, None)
    }

    /// Calls a tool like [`Call::ask`], from inside a span of the worker. The tool's work becomes a child of that span.
    pub fn ask_within(
        &self,
        tool: &str,
        args: Encoded,
        span: Option<TraceContext>,
    ) -> BoxFuture<'static, Result<ToolAnswer, RemoteError>> {
        let Some(lease) = &self.lease else {
            return futures_util::future::ready(Err(RemoteError::new(
                RemoteErrorKind::Refused,
                "the call has no worker",
            )))
            .boxed();
        };
        let id = self.id;
        let worker = Worker::of(lease.holder());
        let pool = Arc::clone(&worker.pool);
        let link = Link {
            call: self.id,
            pool: Arc::clone(&pool.name),
            command: Arc::clone(&self.command.name),
            tool: tool.into(),
        };
        let trace = span.map(Arc::new).or_else(|| self.extras.as_ref()?.trace.clone());
        let report = ToolReport::new(&link);
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
                report.end(ToolOutcome::Failed);
                futures_util::future::ready(Err(error)).boxed()
            }
            Ok(run) => async move {
                let permit = NestedCallPermit::new(worker, id);
                let work = AssertUnwindSafe(async { run(args, context).await }).catch_unwind();
                let work = telemetry::attached(chain.trace(), work);
                let answer = Arc::clone(&chain).scope(work).await;
                let answer = answer.unwrap_or_else(|panic| Err(panicked(&*panic)));
                report.end(if answer.is_ok() { ToolOutcome::Ok } else { ToolOutcome::Failed });
                match answer? {
                    ToolAnswer::Value(value) => Ok(ToolAnswer::Value(value)),
                    // Items are made while they are read, so they run in the same chain, and under the permit until the
                    // last one.
                    ToolAnswer::Stream(items) => {
                        let items = AssertUnwindSafe(items).catch_unwind();
                        let items = items.map(|item| item.unwrap_or_else(|panic| Err(panicked(&*panic))));
                        let items = chain.scope_stream(items.boxed()).inspect(move |_| _ = &permit);
                        Ok(ToolAnswer::Stream(items.boxed()))
                    }
                }
            }
            .boxed(),
        }
    }
}
