//! A call as its caller writes it: `pit.call("add", args! { a: 1, b: 2 }).timeout(…).await`.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::pending::{CallPlan, PendingCall};
use super::retry::RetryState;
use super::telemetry::tell_refusal;
use crate::call::PoolCommand;
use crate::call::answer::Progress;
use crate::call::{CallError, Extras, Input};
use crate::call::{Chain, MAX_NESTING};
use crate::pool::{self, Pool};
use crate::value::{Encoded, ValueError};

/// Where a call goes and what travels with it: the options that calls, streams and maps have in common.
pub(crate) struct CallOptions {
    pub(crate) target: Result<Arc<pool::PoolInner>, CallError>,
    pub(crate) pools: Arc<pool::PoolDirectory>,
    pub(crate) command: Arc<PoolCommand>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) queue_timeout: Option<Duration>,
    pub(crate) priority: i8,
    pub(crate) idempotent: bool,
    /// Whether no other call is with its worker meanwhile.
    pub(crate) alone: bool,
    pub(crate) extras: Option<Box<Extras>>,
}

impl CallOptions {
    pub(crate) fn new(pool: &Pool, command: &str) -> Self {
        Self {
            command: pool.shared.command(command),
            target: Ok(Arc::clone(&pool.shared)),
            pools: Arc::clone(&pool.pools),
            timeout: None,
            queue_timeout: None,
            priority: 0,
            idempotent: false,
            alone: false,
            extras: None,
        }
    }

    pub(crate) fn choose_pool(&mut self, name: &str) {
        self.target = self.pools.find(name);
        self.command = command_of(&self.target, &self.command.name);
    }

    pub(crate) fn extras(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// Inside a tool: notes who waits for this, unless too many do.
    pub(crate) fn note_chain(&mut self) -> Result<(), CallError> {
        if let (Ok(pool), Some(chain)) = (&self.target, Chain::current()) {
            if chain.links().len() >= MAX_NESTING {
                let cycle = format!("{chain}{}.{}", pool.name, self.command.name);
                return Err(CallError::Cycle { depth: chain.links().len(), cycle });
            }
            self.extras.get_or_insert_default().chain = Some(chain);
        }
        Ok(())
    }

    pub(crate) fn begin(mut self, input: Result<Encoded, ValueError>) -> Result<PendingCall, CallError> {
        let chained = self.note_chain();
        let pool = self.target.clone()?;
        let span = self.span(&pool);
        let chained = chained.and_then(|()| self.note_trace(&span));
        let input = input
            .map_err(|source| CallError::Arguments { command: self.command.name.to_string(), source })
            .and_then(|input| chained.map(|()| input))
            .inspect_err(|error| {
                pool.count_refused(error);
                tell_refusal(&pool, &self.command, error);
            })?;
        let again = self.idempotent.then(|| RetryState::new(&input, self.extras.as_deref(), self.priority));
        let streams = self.extras.as_ref().is_some_and(|extras| extras.stream.is_some());
        let default = if streams { pool.bounds.stream_timeout() } else { pool.bounds.call_timeout() };
        let plan = CallPlan {
            command: self.command,
            input: Input::One(input),
            timeout: self.timeout.unwrap_or(default),
            queue_timeout: self.queue_timeout.unwrap_or_else(|| pool.bounds.queue_timeout()),
            priority: self.priority,
            extras: self.extras,
            began: None,
            alone: self.alone,
        };
        PendingCall::begin(pool, plan, again, span)
    }
}

fn command_of(pool: &Result<Arc<pool::PoolInner>, CallError>, name: &str) -> Arc<PoolCommand> {
    pool.as_ref().map_or_else(|_| Arc::new(PoolCommand::new(name)), |pool| pool.command(name))
}

/// Writes the options that calls, streams and maps have in common.
macro_rules! common_options {
    () => {
        /// The pool that serves it; the first one unless this is said.
        pub fn pool(mut self, name: &str) -> Self {
            self.options.choose_pool(name);
            self
        }

        /// The session that it belongs to.
        pub fn session(mut self, id: impl Into<std::sync::Arc<str>>) -> Self {
            self.options.extras().session = Some(id.into());
            self
        }

        /// How long it may take in all: in the queue, at the worker, and as a stream.
        pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
            self.options.timeout = Some(timeout);
            self
        }

        /// How long it may wait for a worker.
        pub fn queue_timeout(mut self, timeout: std::time::Duration) -> Self {
            self.options.queue_timeout = Some(timeout);
            self
        }

        /// Higher ones are served first, each step with a head start of a second: a call that has waited for so much longer than
        /// another goes before it. 0 unless this is said.
        pub fn priority(mut self, priority: i8) -> Self {
            self.options.priority = priority;
            self
        }

        /// Says that doing it twice does no harm: if its worker is lost, it is made again, as [`crate::PoolOptions::retry`] says.
        pub fn idempotent(mut self) -> Self {
            self.options.idempotent = true;
            self
        }

        /// The trace that it belongs to, and the span that it is a child of: a `traceparent` of the W3C. Without it, what
        /// [`TraceContext::scope`](crate::telemetry::TraceContext::scope) says, and inside a tool the trace of the call
        /// that asks.
        pub fn traceparent(mut self, traceparent: impl Into<String>) -> Self {
            self.options.extras().trace_headers.get_or_insert_default().parent = Some(traceparent.into());
            self
        }

        /// What goes with a [`traceparent`](Self::traceparent): a `tracestate` of the W3C.
        pub fn tracestate(mut self, tracestate: impl Into<String>) -> Self {
            self.options.extras().trace_headers.get_or_insert_default().state = Some(tracestate.into());
            self
        }

        /// Something that travels with it; the worker finds it in its context.
        pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
            self.options.extras().metadata.insert(key.into(), value.into());
            self
        }
    };
}
pub(crate) use common_options;

/// A call that is about to be made. Await it; dropping the future cancels the call.
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
    pub fn new(pool: &Pool, command: &str, args: &(impl Serialize + ?Sized)) -> Self {
        let options = CallOptions::new(pool, command);
        Self { options, input: Encoded::encode_args(args), watcher: None, value: PhantomData }
    }

    common_options!();

    /// Hears of the progress that the worker tells.
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
    /// Gives it to its pool, for a caller that may want it back while no worker has it.
    pub fn begin(self) -> Result<PendingCall, CallError> {
        self.options.begin(self.input)
    }

    /// No other call is with its worker meanwhile, so that whatever becomes of the worker is this call's doing.
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
