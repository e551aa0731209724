//! The description of an engine: checks it, and starts its pools.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::blocking::Blocking;
use crate::custody::{self, Run, WorkerId};
use crate::handle::Snakepit;
use crate::logging::Logging;
use crate::pool::{FirstStart, PoolOptions, PoolSet};
use crate::running::Engine;
use crate::tool::{ToolContext, Tools};
use crate::{StartError, telemetry};

/// Why an engine did not start. A failed start leaves nothing behind.
///
/// ```no_run
/// use snakepit::{EngineError, Snakepit, StartError, python};
///
/// # async fn example() -> Result<(), EngineError> {
/// match Snakepit::builder().pool(python("worker.py")).start().await {
///     Ok(pit) => println!("{:?} serve", pit.pools()),
///     Err(EngineError::Start { pool, source: StartError::NoSuchFile { path } }) => {
///         eprintln!("pool {pool} needs {}", path.display());
///     }
///     Err(error) => return Err(error),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The engine has no pool.
    #[error("there is no pool to start: add one with Snakepit::builder().pool(…)")]
    NoPools,
    /// Two pools have the same name.
    #[error("two pools are called {0}: give one of them another name with PoolOptions::name")]
    SameName(String),
    /// A pool's name cannot be used.
    #[error("{name:?} cannot be the name of a pool: {reason}")]
    BadName {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A process-wide engine is already running.
    #[error(
        "the process-wide engine is already running: use Snakepit::global(), or start another one with start()"
    )]
    GlobalRuns,
    /// The runtime of a blocking script or engine did not start.
    #[error("cannot start a tokio runtime: start one yourself, and use Builder::start or Script::run in it")]
    Runtime(#[source] std::io::Error),
    /// The custody of processes did not open.
    #[error(transparent)]
    Custody(#[from] custody::OpenError),
    /// The workers of a pool did not start.
    #[error("pool {pool} does not start")]
    Start {
        /// The pool.
        pool: String,
        /// Why the worker did not start.
        #[source]
        source: StartError,
    },
}

/// The description of an engine: its pools, its tools and its settings.
///
/// ```no_run
/// use snakepit::{Snakepit, python};
///
/// # async fn example() -> Result<(), snakepit::EngineError> {
/// let pit = Snakepit::builder()
///     .pool(python("worker.py").workers(4))
///     .pool(python("images.py").workers(1))
///     .start()
///     .await?;
/// # Ok(()) }
/// ```
#[must_use]
#[derive(Default)]
pub struct Builder {
    pools: Vec<PoolOptions>,
    tools: Tools,
    custody: custody::CustodyOptions,
    logging: Logging,
}

impl Builder {
    /// Adds a pool. The first pool serves the calls that name no pool.
    ///
    /// ```no_run
    /// use snakepit::{Snakepit, args, python};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let pit = Snakepit::builder()
    ///     .pool(python("worker.py").workers(4))
    ///     .pool(python("images.py").name("images"))
    ///     .start()
    ///     .await?;
    /// let sum: i64 = pit.call("add", args! { a: 1, b: 2 }).await?;
    /// let images = pit.pool("images").expect("the second pool");
    /// let text: String = images.call("read", ("scan.png",)).await?;
    /// # Ok(()) }
    /// ```
    pub fn pool(mut self, pool: PoolOptions) -> Self {
        self.pools.push(pool);
        self
    }

    /// Sets how processes are kept in custody.
    ///
    /// ```
    /// use snakepit::custody::CustodyOptions;
    /// use snakepit::{Snakepit, python};
    ///
    /// // The workers get 10 s to save their state before they are killed.
    /// let custody = CustodyOptions::default().cleanup_on_stop_timeout_ms(10_000);
    /// let builder = Snakepit::builder().pool(python("worker.py")).custody(custody);
    /// ```
    pub fn custody(mut self, config: custody::CustodyOptions) -> Self {
        self.custody = config;
        self
    }

    /// Sets how much the engine logs. By default it logs warnings, and what a worker printed only if a call fails.
    ///
    /// ```
    /// use snakepit::telemetry::{LogLevel, Logging};
    /// use snakepit::{Snakepit, python};
    ///
    /// let logging = Logging::default().log_level(LogLevel::Info).forward_output();
    /// let builder = Snakepit::builder().pool(python("worker.py")).logging(logging);
    /// ```
    pub fn logging(mut self, logging: Logging) -> Self {
        self.logging = logging;
        self
    }

    /// Offers workers a function of the host. Take named arguments as a struct or a map, and positional arguments as a
    /// tuple.
    ///
    /// Workers get the text of an error. They also get the causes of a [`CallError`](crate::CallError), of a
    /// `Box<dyn Error + Send + Sync>`, and of an error that shows its causes with `{:#}`, as anyhow's errors do.
    ///
    /// ```
    /// use std::convert::Infallible;
    ///
    /// use snakepit::{Snakepit, python};
    ///
    /// // A worker calls it as `snakepit.context().host.call("double", 4)`.
    /// let builder = Snakepit::builder()
    ///     .pool(python("worker.py"))
    ///     .tool("double", |(number,): (i64,), _| async move { Ok::<_, Infallible>(2 * number) });
    /// ```
    pub fn tool<A, R, E, F, Fut>(mut self, name: impl Into<String>, tool: F) -> Self
    where
        A: DeserializeOwned,
        R: Serialize,
        E: std::fmt::Display + 'static,
        F: Fn(A, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        self.tools.add(name.into(), tool);
        self
    }

    /// Offers a function like [`Builder::tool`] does, but one that answers with a stream of values.
    ///
    /// ```
    /// use std::convert::Infallible;
    ///
    /// use futures_util::{StreamExt, stream};
    /// use snakepit::{Snakepit, python};
    ///
    /// // A worker reads it with `for number in snakepit.context().host.stream("count", 3): …`.
    /// let builder = Snakepit::builder()
    ///     .pool(python("worker.py"))
    ///     .tool_stream("count", |(to,): (i64,), _| stream::iter(0..to).map(Ok::<_, Infallible>));
    /// ```
    pub fn tool_stream<A, R, E, F, S>(mut self, name: impl Into<String>, tool: F) -> Self
    where
        A: DeserializeOwned,
        R: Serialize,
        E: std::fmt::Display + 'static,
        F: Fn(A, ToolContext) -> S + Send + Sync + 'static,
        S: futures_core::Stream<Item = Result<R, E>> + Send + 'static,
    {
        self.tools.add_stream(name.into(), tool);
        self
    }

    /// Starts all pools and waits until all their workers are ready.
    ///
    /// ```no_run
    /// use snakepit::{EngineError, Snakepit, python};
    ///
    /// # async fn example() -> Result<(), EngineError> {
    /// let pit = Snakepit::builder().pool(python("worker.py").workers(4)).start().await?;
    /// assert_eq!(pit.pools()[0].workers().len(), 4);
    /// # Ok(()) }
    /// ```
    pub async fn start(self) -> Result<Snakepit, EngineError> {
        self.start_with(|_| {}).await
    }

    /// Starts the engine like [`Builder::start`], and calls `started` as soon as there is an engine to stop.
    pub(crate) async fn start_with(self, started: impl FnOnce(&Snakepit)) -> Result<Snakepit, EngineError> {
        let (pit, firsts) = self.launch().await?;
        started(&pit);
        for first in firsts {
            let pool = first.pool.clone();
            if let Err(source) = first.result().await {
                pit.stop_within(Duration::ZERO).await;
                return Err(EngineError::Start { pool, source });
            }
        }
        Ok(pit)
    }

    /// Starts all pools like [`Builder::start`], for a host without a runtime. The engine brings its own.
    ///
    /// ```no_run
    /// use snakepit::{Snakepit, args, python};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let pit = Snakepit::builder().pool(python("worker.py")).start_blocking()?;
    ///     let sum: i64 = pit.call("add", args! { a: 1, b: 2 })?;
    ///     Ok(())
    /// }
    /// ```
    pub fn start_blocking(self) -> Result<Blocking, EngineError> {
        Blocking::start(self)
    }

    /// Starts all pools without waiting for their workers. Calls wait in the queue. [`Snakepit::await_ready`] waits for
    /// the workers.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use snakepit::{Snakepit, python};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let pit = Snakepit::builder().pool(python("worker.py")).start_in_background().await?;
    /// // The server starts here, while the workers load their models.
    /// pit.await_ready(Duration::from_mins(2)).await?;
    /// # Ok(()) }
    /// ```
    pub async fn start_in_background(self) -> Result<Snakepit, EngineError> {
        self.launch().await.map(|(pit, _)| pit)
    }

    async fn launch(self) -> Result<(Snakepit, Vec<FirstStart>), EngineError> {
        self.check_names()?;
        telemetry::hear_custody();
        self.logging.begin();
        let stop_grace = self.custody.grace();
        let run = if self.pools.iter().any(PoolOptions::starts_processes) {
            let config = self.custody;
            let opened = tokio::task::spawn_blocking(move || Run::open(config));
            Some(opened.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?)
        } else {
            None
        };
        match PoolSet::start(self.pools, self.tools, run.as_ref(), self.logging).await {
            Ok((pools, firsts)) => Ok((Snakepit::new(Engine::new(pools, run, stop_grace)), firsts)),
            Err((pool, source)) => {
                stop_run(run).await;
                Err(EngineError::Start { pool, source })
            }
        }
    }

    /// Reports whether there is no pool to start.
    pub(crate) fn is_empty(&self) -> bool {
        self.pools.is_empty()
    }

    fn check_names(&self) -> Result<(), EngineError> {
        if self.pools.is_empty() {
            return Err(EngineError::NoPools);
        }
        for (index, pool) in self.pools.iter().enumerate() {
            let name = pool.pool_name();
            if self.pools[..index].iter().any(|other| other.pool_name() == name) {
                return Err(EngineError::SameName(name.to_owned()));
            }
            // Workers are named after their pool, and 7 of their 64 characters are the number.
            if WorkerId::new(format!("{name}-999999")).is_err() {
                let reason = "use at most 57 characters from A-Z a-z 0-9 . _ : / -".into();
                return Err(EngineError::BadName { name: name.to_owned(), reason });
            }
        }
        Ok(())
    }
}

async fn stop_run(run: Option<Run>) {
    if let Some(run) = run {
        let _ = tokio::task::spawn_blocking(move || run.stop()).await;
    }
}

impl From<PoolOptions> for Builder {
    fn from(pool: PoolOptions) -> Self {
        Self::default().pool(pool)
    }
}
