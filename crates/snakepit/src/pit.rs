//! The engine as its user holds it: pools that run, and calls to them.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::Level;

use crate::adapter::StartError;
use crate::call::{CallBuilder, CallError, MapBuilder, Options, StreamBuilder};
use crate::custody::{self, Run, WorkerId};
use crate::logging::Logging;
use crate::pool::{Crew, Directory, Pool, PoolRef, Shared, prepare};
use crate::tool::{ToolContext, Tools};
use crate::worker::OomTeller;

/// How long calls that are under way may take when the engine stops, unless it is said otherwise.
const STOP_GRACE: Duration = Duration::from_secs(30);

/// Why the engine did not start. Nothing of the attempt is left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// There is no pool.
    #[error("there is no pool to start: add one with Snakepit::builder().pool(…)")]
    NoPools,
    /// Two pools have the same name.
    #[error("two pools are called {0}: give one of them another name with Pool::name")]
    SameName(String),
    /// A pool's name cannot be used.
    #[error("{name:?} cannot be the name of a pool: {reason}")]
    BadName {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Custody could not be opened.
    #[error(transparent)]
    Custody(#[from] custody::OpenError),
    /// A pool's workers do not start.
    #[error("pool {pool} does not start")]
    Start {
        /// The pool.
        pool: String,
        /// Why its worker did not start.
        #[source]
        source: StartError,
    },
}

/// What an engine is made of.
#[must_use]
#[derive(Default)]
pub struct Builder {
    pools: Vec<Pool>,
    tools: Tools,
    custody: custody::Config,
    logging: Logging,
}

impl Builder {
    /// Adds a pool. The first one serves the calls that name none.
    pub fn pool(mut self, pool: Pool) -> Self {
        self.pools.push(pool);
        self
    }

    /// How processes are kept.
    pub fn custody(mut self, config: custody::Config) -> Self {
        self.custody = config;
        self
    }

    /// How much it says: by default warnings only, and nothing of what workers print unless a call fails.
    pub fn logging(mut self, logging: Logging) -> Self {
        self.logging = logging;
        self
    }

    /// Offers workers a function of the host. Arguments by name are a struct or map, by position a tuple.
    pub fn tool<A, R, E, F, Fut>(mut self, name: impl Into<String>, tool: F) -> Self
    where
        A: DeserializeOwned,
        R: Serialize,
        E: std::fmt::Display,
        F: Fn(A, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        self.tools.add(name.into(), tool);
        self
    }

    /// As [`Builder::tool`], for a function that answers with many values.
    pub fn tool_stream<A, R, E, F, S>(mut self, name: impl Into<String>, tool: F) -> Self
    where
        A: DeserializeOwned,
        R: Serialize,
        E: std::fmt::Display,
        F: Fn(A, ToolContext) -> S + Send + Sync + 'static,
        S: futures_core::Stream<Item = Result<R, E>> + Send + 'static,
    {
        self.tools.add_stream(name.into(), tool);
        self
    }

    /// Starts all pools and waits until all their workers are ready.
    pub async fn start(self) -> Result<Snakepit, EngineError> {
        let (pit, firsts) = self.launch().await?;
        for (pool, first) in firsts {
            if let Ok(Err(source)) = first.await {
                pit.stop_within(Duration::ZERO).await;
                return Err(EngineError::Start { pool, source });
            }
        }
        Ok(pit)
    }

    /// Starts all pools and does not wait: calls wait in the queue, and [`Snakepit::await_ready`] waits for the workers.
    pub async fn start_in_background(self) -> Result<Snakepit, EngineError> {
        self.launch().await.map(|(pit, _)| pit)
    }

    async fn launch(mut self) -> Result<(Snakepit, Vec<(String, Started)>), EngineError> {
        self.check_names()?;
        self.tools.add_session_store();
        let tools = Arc::new(self.tools);
        let logging = self.logging;
        logging.begin();
        let (run, oom) = if self.pools.iter().any(|pool| pool.adapter.starts_processes()) {
            let config = self.custody;
            let opened = tokio::task::spawn_blocking(move || {
                let run = Run::open(config)?;
                let oom = OomTeller::new(run.cgroup());
                Ok::<_, custody::OpenError>((Some(run), oom))
            });
            opened.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?
        } else {
            (None, OomTeller::default())
        };
        let runtime = tokio::runtime::Handle::current();
        let mut shared = Vec::new();
        for pool in self.pools {
            let pool = Shared::new(pool, Arc::clone(&tools), runtime.clone(), oom.clone(), logging);
            if let Err(source) = prepare(&pool.config(), run.clone()).await {
                stop_run(run).await;
                return Err(EngineError::Start { pool: pool.name.to_string(), source });
            }
            shared.push(pool);
        }
        let directory = Directory::new(shared);
        let mut pools = Vec::new();
        let mut firsts = Vec::new();
        for shared in directory.iter() {
            let (crew, first) = Crew::start(Arc::clone(shared), run.clone());
            firsts.push((shared.name.to_string(), first));
            pools.push(PoolRef { shared: Arc::clone(shared), crew, pools: Arc::clone(&directory) });
        }
        if logging.allows(Level::INFO) {
            tracing::info!(pools = pools.len(), "the engine starts");
        }
        Ok((Snakepit(Arc::new(Engine { pools, directory, run, logging })), firsts))
    }

    fn check_names(&self) -> Result<(), EngineError> {
        if self.pools.is_empty() {
            return Err(EngineError::NoPools);
        }
        for (index, pool) in self.pools.iter().enumerate() {
            if self.pools[..index].iter().any(|other| other.name == pool.name) {
                return Err(EngineError::SameName(pool.name.clone()));
            }
            // A worker is named after its pool.
            if let Err(error) = WorkerId::new(format!("{}-999999", pool.name)) {
                return Err(EngineError::BadName { name: pool.name.clone(), reason: error.to_string() });
            }
        }
        Ok(())
    }
}

type Started = tokio::sync::oneshot::Receiver<Result<(), StartError>>;

async fn stop_run(run: Option<Run>) {
    if let Some(run) = run {
        let _ = tokio::task::spawn_blocking(move || run.stop()).await;
    }
}

/// A running engine. Cheap to clone; when the last clone is dropped, its workers are ended.
///
/// ```no_run
/// use snakepit::{Pool, Snakepit, args};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pit = Snakepit::builder().pool(Pool::python("worker.py").workers(4)).start().await?;
/// let sum: i64 = pit.call("add", args! { a: 1, b: 2 }).await?;
/// pit.stop().await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Snakepit(Arc<Engine>);

struct Engine {
    pools: Vec<PoolRef>,
    directory: Arc<Directory>,
    run: Option<Run>,
    logging: Logging,
}

impl std::fmt::Debug for Snakepit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snakepit").field("pools", &self.0.pools).finish_non_exhaustive()
    }
}

impl Snakepit {
    /// Describes an engine.
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn options(&self, command: &str) -> Options {
        Options::new(Arc::clone(&self.0.directory), self.0.directory.first(), command)
    }

    /// Calls a command: `pit.call("add", args! { a: 1, b: 2 }).await?`. Options go between: `.timeout(…)`, `.session(…)`.
    ///
    /// Dropping the future cancels the call.
    pub fn call<T: DeserializeOwned + Send + 'static>(
        &self,
        command: &str,
        args: impl Serialize,
    ) -> CallBuilder<T> {
        CallBuilder::new(self.options(command), &args)
    }

    /// Calls a command that answers with many values: `pit.stream("count", args! { n: 3 }).open()?`.
    pub fn stream<T: DeserializeOwned>(&self, command: &str, args: impl Serialize) -> StreamBuilder<T> {
        StreamBuilder::new(self.options(command), &args)
    }

    /// Calls a command once for each input: `pit.map("square", 0..1000).in_order()?` is a stream of the outcomes.
    ///
    /// An input that is a struct or map is arguments by name, a tuple or list arguments by position, anything else one
    /// argument.
    pub fn map<T, I>(&self, command: &str, inputs: I) -> MapBuilder<T>
    where
        T: DeserializeOwned + Send + 'static,
        I: IntoIterator<IntoIter: Send + 'static>,
        I::Item: Serialize,
    {
        MapBuilder::new(self.options(command), inputs)
    }

    /// A pool by its name.
    pub fn pool(&self, name: &str) -> Option<&PoolRef> {
        self.0.pools.iter().find(|pool| pool.name() == name)
    }

    /// All pools.
    pub fn pools(&self) -> &[PoolRef] {
        &self.0.pools
    }

    /// Until all workers of all pools are ready.
    pub async fn await_ready(&self, timeout: Duration) -> Result<(), CallError> {
        for pool in &self.0.pools {
            pool.await_ready(timeout).await?;
        }
        Ok(())
    }

    /// The run that its processes belong to; none if no pool has processes.
    pub fn run(&self) -> Option<&Run> {
        self.0.run.as_ref()
    }

    /// Stops: calls that wait are given back, those under way may finish (30 s), then everything is ended.
    pub async fn stop(&self) {
        self.stop_within(STOP_GRACE).await;
    }

    /// Until what was under way is finished. A call of one pool may need another pool, so all serve until the last is done.
    async fn finished(&self) {
        loop {
            for pool in &self.0.pools {
                pool.shared.finished().await;
            }
            if self.0.pools.iter().all(|pool| pool.shared.is_done()) {
                return;
            }
        }
    }

    /// As [`Snakepit::stop`], with another time for what is under way.
    pub async fn stop_within(&self, grace: Duration) {
        let pools = &self.0.pools;
        for pool in pools {
            pool.shared.close();
        }
        let logging = self.0.logging;
        if !grace.is_zero()
            && tokio::time::timeout(grace, self.finished()).await.is_err()
            && logging.allows(Level::WARN)
        {
            tracing::warn!(?grace, "calls were cut short: they did not finish in time");
        }
        futures_util::future::join_all(pools.iter().map(|pool| pool.crew.stop())).await;
        stop_run(self.0.run.clone()).await;
        if logging.allows(Level::INFO) {
            tracing::info!(pools = pools.len(), "the engine has stopped");
        }
        logging.flush().await;
    }
}
