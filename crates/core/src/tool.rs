//! Tools: functions of the host that a worker may call while it serves a call.
//!
//! Owns the tools of an engine, the form in which workers get their errors, and the tools that reach the session store.
//! Knows no protocol: adapters call tools with [`Call::ask`](crate::Call::ask).

use std::any::Any;
use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{BoxStream, Stream, StreamExt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::call::{CallError, CallId, RemoteError, RemoteErrorKind, is_reserved};
use crate::error_text::with_causes;
use crate::value::{Encoded, ValueError};

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
    pub(crate) sessions: Arc<dyn SessionStore>,
}

impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolContext")
            .field("call", &self.call)
            .field("command", &self.command)
            .finish_non_exhaustive()
    }
}

/// What the sessions of a pool keep for their calls.
pub(crate) trait SessionStore: Send + Sync {
    /// Returns the value of a key, if it has one.
    fn get(&self, session: &str, key: &str) -> Result<Option<Encoded>, StoreError>;
    /// Sets the value of a key.
    fn set(&self, session: &str, key: String, value: &Encoded) -> Result<(), StoreError>;
    /// Removes a key. Returns whether it was there.
    fn delete(&self, session: &str, key: &str) -> Result<bool, StoreError>;
    /// Returns all keys, sorted.
    fn keys(&self, session: &str) -> Result<Vec<String>, StoreError>;
}

/// The most bytes that one session may store.
pub(crate) const STORE_LIMIT: usize = 16 << 20;

/// Why an operation on a store failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("session {0} does not exist, or has ended: start it with a call with .session(id)")]
    NoSession(String),
    #[error("the call belongs to no session, so there is no store: call it with .session(id)")]
    NotInSession,
    #[error("a call can use only the store of its own session, and this one named another session")]
    OtherSession,
    #[error(
        "session {session} would keep {bytes} bytes, and {STORE_LIMIT} is the limit: delete some of its entries"
    )]
    Full { session: String, bytes: usize },
    #[error(transparent)]
    Unreadable(#[from] ValueError),
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

    pub(crate) fn find(&self, name: &str) -> Result<Arc<ToolFunction>, RemoteError> {
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
            Stored::Ok(context.sessions.get(session, &at.key)?.unwrap_or_else(Encoded::nil))
        });
        self.add("snakepit.session.set".into(), |mut at: StoreRequest, context: ToolContext| async move {
            let value = at.value.take().unwrap_or_else(Encoded::nil);
            let session = at.session_of(&context)?;
            context.sessions.set(session, at.key.clone(), &value)
        });
        self.add("snakepit.session.delete".into(), |at: StoreRequest, context: ToolContext| async move {
            context.sessions.delete(at.session_of(&context)?, &at.key)
        });
        self.add("snakepit.session.keys".into(), |at: StoreRequest, context: ToolContext| async move {
            context.sessions.keys(at.session_of(&context)?)
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
        let mut error = (**error).clone();
        error.kind = RemoteErrorKind::Exception;
        return error;
    }
    RemoteError::new(RemoteErrorKind::Exception, with_causes(error))
}

fn bad_arguments(error: &ValueError) -> RemoteError {
    RemoteError::new(RemoteErrorKind::BadArgument, error.to_string())
}

fn bad_value(error: &ValueError) -> RemoteError {
    RemoteError::new(RemoteErrorKind::BadValue, error.to_string())
}
