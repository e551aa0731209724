//! A call as its caller writes it: `pit.call("add", args! { a: 1, b: 2 }).timeout(…).await`.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::pending::{CallPlan, PendingCall};
use super::telemetry::tell_refusal;
use crate::call::PoolCommand;
use crate::call::progress::Progress;
use crate::call::{CallError, Extras, Input};
use crate::call::{Chain, MAX_NESTING};
use crate::queue::PoolInner;
use crate::sharded::ShardRef;
use crate::value::{Encoded, ValueError};

/// Where a call goes, and what travels with it: the options that calls, streams and maps share.
pub(crate) struct CallOptions {
    pub(crate) pool: ShardRef<PoolInner>,
    /// Why the call cannot be made, if the pool that was chosen last does not exist.
    pub(crate) no_pool: Option<Box<CallError>>,
    pub(crate) command: ShardRef<PoolCommand>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) queue_timeout: Option<Duration>,
    pub(crate) priority: i8,
    pub(crate) idempotent: bool,
    /// Whether the worker may have no other call meanwhile.
    pub(crate) alone: bool,
    pub(crate) extras: Option<Box<Extras>>,
}

impl CallOptions {
    pub(crate) fn new(pool: ShardRef<PoolInner>, command: &str) -> Self {
        Self {
            command: pool.command(command),
            pool,
            no_pool: None,
            timeout: None,
            queue_timeout: None,
            priority: 0,
            idempotent: false,
            alone: false,
            extras: None,
        }
    }

    pub(crate) fn choose_pool(&mut self, name: &str) {
        match self.pool.find(name) {
            Ok(pool) => {
                self.command = pool.command(&self.command.name);
                (self.pool, self.no_pool) = (pool.into(), None);
            }
            Err(error) => self.no_pool = Some(Box::new(error)),
        }
    }

    pub(crate) fn extras(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// Fails if the pool that was chosen last does not exist.
    pub(crate) fn check_pool(&mut self) -> Result<(), CallError> {
        self.no_pool.take().map_or(Ok(()), |error| Err(*error))
    }

    /// Inside a tool: records which calls wait for this one. Fails if too many do.
    pub(crate) fn note_chain(&mut self) -> Result<(), CallError> {
        if let Some(chain) = Chain::current() {
            if chain.links().len() >= MAX_NESTING {
                let cycle = format!("{chain}{}.{}", self.pool.name, self.command.name);
                return Err(CallError::Cycle { depth: chain.links().len(), cycle });
            }
            self.extras.get_or_insert_default().chain = Some(chain);
        }
        Ok(())
    }

    pub(crate) fn begin(mut self, input: Result<Encoded, ValueError>) -> Result<PendingCall, CallError> {
        self.check_pool()?;
        let chained = self.note_chain();
        let span = self.span();
        let chained = chained.and_then(|()| self.note_trace(&span));
        let pool = self.pool;
        let input = input
            .map_err(|source| CallError::Arguments { command: self.command.name.to_string(), source })
            .and_then(|input| chained.map(|()| input))
            .inspect_err(|error| {
                pool.count_refused(error);
                tell_refusal(&pool, &self.command, error);
            })?;
        let streams = self.extras.as_ref().is_some_and(|extras| extras.stream.is_some());
        let default =
            if streams { pool.call_limits.stream_timeout() } else { pool.call_limits.call_timeout() };
        let timeout = self.timeout.unwrap_or(default);
        let plan = CallPlan {
            queue_timeout: self.queue_timeout.unwrap_or_else(|| pool.call_limits.queue_timeout()),
            priority: self.priority,
            extras: self.extras,
            alone: self.alone,
            idempotent: self.idempotent,
            ..CallPlan::new(self.command, Input::One(input), timeout)
        };
        PendingCall::begin(pool, plan, span)
    }
}

/// Defines the setters that calls, streams and maps share.
macro_rules! common_options {
    () => {
        /// Chooses the pool by its name. The default is the first pool.
        pub fn pool(mut self, name: &str) -> Self {
            self.options.choose_pool(name);
            self
        }

        /// Sets the session that the call belongs to.
        pub fn session(mut self, id: impl Into<std::sync::Arc<str>>) -> Self {
            self.options.extras().session = Some(id.into());
            self
        }

        /// Sets how long the call may take in total: in the queue, at the worker, and as a stream.
        pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
            self.options.timeout = Some(timeout);
            self
        }

        /// Sets how long the call may wait for a worker.
        pub fn queue_timeout(mut self, timeout: std::time::Duration) -> Self {
            self.options.queue_timeout = Some(timeout);
            self
        }

        /// Sets the priority, which is 0 by default. Calls of higher priority are served first. Each step is a head
        /// start of one second, so a call that has waited longer than that goes first.
        pub fn priority(mut self, priority: i8) -> Self {
            self.options.priority = priority;
            self
        }

        /// Declares that running the call twice does no harm. If the worker is lost, the call is repeated as
        /// [`crate::PoolOptions::retry`] says.
        pub fn idempotent(mut self) -> Self {
            self.options.idempotent = true;
            self
        }

        /// Sets the trace that the call belongs to, and the span that is its parent: a `traceparent` of the W3C. The
        /// default is the trace of [`TraceContext::scope`](crate::telemetry::TraceContext::scope), and inside a tool
        /// the trace of the call that uses the tool.
        pub fn traceparent(mut self, traceparent: impl Into<String>) -> Self {
            self.options.extras().trace_headers.get_or_insert_default().parent = Some(traceparent.into());
            self
        }

        /// Sets the `tracestate` of the W3C that goes with a [`traceparent`](Self::traceparent).
        pub fn tracestate(mut self, tracestate: impl Into<String>) -> Self {
            self.options.extras().trace_headers.get_or_insert_default().state = Some(tracestate.into());
            self
        }

        /// Adds metadata that travels with the call. The worker finds it in its context.
        pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
            self.options.extras().metadata.insert(key.into(), value.into());
            self
        }
    };
}
pub(crate) use common_options;

/// A call that is about to be made. Await it to make the call. Dropping the future cancels the call.
///
/// ```no_run
/// use std::time::Duration;
///
/// use snakepit::args;
///
/// # async fn example(pit: snakepit::Snakepit) -> Result<(), snakepit::CallError> {
/// let caption: String = pit
///     .call("caption", args! { image: "cat.png" })
///     .session("ann")
///     .timeout(Duration::from_secs(30))
///     .idempotent()
///     .await?;
/// # Ok(()) }
/// ```
#[must_use = "a call is made when it is awaited"]
pub struct CallBuilder<T> {
    options: CallOptions,
    input: Result<Encoded, ValueError>,
    watcher: Option<Box<dyn FnMut(Progress) + Send>>,
    value: PhantomData<fn() -> T>,
}

impl<T> CallBuilder<T> {
    /// Describes a call of a command.
    pub(crate) fn new(pool: ShardRef<PoolInner>, command: &str, args: &(impl Serialize + ?Sized)) -> Self {
        let options = CallOptions::new(pool, command);
        Self { options, input: Encoded::encode_args(args), watcher: None, value: PhantomData }
    }

    common_options!();

    /// Calls a function with the progress that the worker reports.
    ///
    /// ```no_run
    /// # async fn example(pit: snakepit::Snakepit) -> Result<(), snakepit::CallError> {
    /// let report: String = pit
    ///     .call("analyse", ("data.csv",))
    ///     .on_progress(|progress| println!("{progress:?}"))
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn on_progress(mut self, watcher: impl FnMut(Progress) + Send + 'static) -> Self {
        self.watcher = Some(Box::new(watcher));
        self
    }
}

impl<T> CallBuilder<T> {
    /// Submits the call to its pool. Use this if you may want to withdraw the call while no worker has it.
    pub fn begin(self) -> Result<PendingCall, CallError> {
        self.options.begin(self.input)
    }

    /// Lets the worker have no other call meanwhile, so that whatever happens to the worker is caused by this call.
    pub fn alone(mut self) -> Self {
        self.options.alone = true;
        self
    }
}

impl<T: DeserializeOwned + Send + 'static> IntoFuture for CallBuilder<T> {
    type Output = Result<T, CallError>;
    type IntoFuture = BoxFuture<'static, Result<T, CallError>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let mut waiting = self.options.begin(self.input)?;
            let value = match self.watcher {
                None => waiting.value().await?,
                Some(watcher) => waiting.value_with_progress(watcher).await?,
            };
            value
                .decode()
                .map_err(|source| CallError::Result { command: waiting.command.name.to_string(), source })
        })
    }
}
