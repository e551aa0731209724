//! The description of an engine: checks it, and starts its pools.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::handle::Snakepit;
use super::running::Engine;
use crate::adapter::StartError;
use crate::causes::with_causes;
use crate::custody::{self, Run, WorkerId};
use crate::logging::Logging;
use crate::pool::{Pool, PoolDirectory, PoolInner, PoolOptions, equipped};
use crate::supervisor::{SupervisorHandle, prepare};
use crate::tool::{ToolContext, Tools};
use crate::worker::OomDetector;

/// Why an engine did not start. A failed start leaves nothing behind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The engine has no pool.
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
    /// A process-wide engine is already running.
    #[error(
        "the process-wide engine runs already: use Snakepit::global(), or start another one with start()"
    )]
    GlobalRuns,
    /// The runtime of a blocking script did not start.
    #[error("cannot start a tokio runtime for the script: start one yourself, and use Script::run in it")]
    Runtime(#[source] std::io::Error),
    /// The custody of processes did not open.
    #[error(transparent)]
    Custody(#[from] custody::OpenError),
    /// The workers of a pool did not start.
    #[error("pool {pool} does not start: {}", with_causes(.source))]
    Start {
        /// The pool.
        pool: String,
        /// Why the worker did not start.
        #[source]
        source: StartError,
    },
}

/// The description of an engine: its pools, its tools and its settings.
#[must_use]
#[derive(Default)]
pub struct Builder {
    pools: Vec<PoolOptions>,
    tools: Tools,
    custody: custody::Config,
    logging: Logging,
}

impl Builder {
    /// Adds a pool. The first pool serves the calls that name no pool.
    pub fn pool(mut self, pool: PoolOptions) -> Self {
        self.pools.push(pool);
        self
    }

    /// Sets how processes are kept in custody.
    pub fn custody(mut self, config: custody::Config) -> Self {
        self.custody = config;
        self
    }

    /// Sets how much the engine logs. By default it logs warnings, and what a worker printed only if a call fails.
    pub fn logging(mut self, logging: Logging) -> Self {
        self.logging = logging;
        self
    }

    /// Offers workers a function of the host. Take named arguments as a struct or a map, and positional arguments as a
    /// tuple.
    ///
    /// Workers get the text of an error. They also get the causes of a [`CallError`](crate::CallError), of a `Box<dyn
    /// Error + Send + Sync>`, and of an error that shows its causes with `{:#}`, as anyhow's errors do.
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
    pub async fn start(self) -> Result<Snakepit, EngineError> {
        self.start_with(|_| {}).await
    }

    /// Starts the engine like [`Builder::start`], and calls `started` as soon as there is an engine to stop.
    pub(crate) async fn start_with(self, started: impl FnOnce(&Snakepit)) -> Result<Snakepit, EngineError> {
        let (pit, firsts) = self.launch().await?;
        started(&pit);
        for (pool, first) in firsts {
            if let Ok(Err(source)) = first.await {
                pit.stop_within(Duration::ZERO).await;
                return Err(EngineError::Start { pool, source });
            }
        }
        Ok(pit)
    }

    /// Starts all pools without waiting for their workers. Calls wait in the queue. [`Snakepit::await_ready`] waits for
    /// the workers.
    pub async fn start_in_background(self) -> Result<Snakepit, EngineError> {
        self.launch().await.map(|(pit, _)| pit)
    }

    async fn launch(mut self) -> Result<(Snakepit, Vec<(String, FirstStart)>), EngineError> {
        self.check_names()?;
        crate::telemetry::hear_custody();
        self.tools.add_session_store();
        let tools = Arc::new(self.tools);
        let logging = self.logging;
        logging.begin();
        let stop_grace = self.custody.grace();
        let (run, oom) = if self.pools.iter().any(|pool| pool.adapter.starts_processes()) {
            let config = self.custody;
            let opened = tokio::task::spawn_blocking(move || {
                let run = Run::open(config)?;
                let oom = OomDetector::new(run.cgroup());
                Ok::<_, custody::OpenError>((Some(run), oom))
            });
            opened.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?
        } else {
            (None, OomDetector::default())
        };
        let runtime = tokio::runtime::Handle::current();
        let mut shared = Vec::new();
        for pool in self.pools {
            let name = pool.name.clone();
            let pool = match equipped(pool, run.as_ref()).await {
                Ok(pool) => pool,
                Err(source) => {
                    stop_run(run).await;
                    return Err(EngineError::Start { pool: name, source });
                }
            };
            let pool = PoolInner::new(pool, Arc::clone(&tools), runtime.clone(), oom.clone(), logging);
            if let Err(source) = prepare(&pool.config(), run.clone()).await {
                stop_run(run).await;
                return Err(EngineError::Start { pool: pool.name.to_string(), source });
            }
            shared.push(pool);
        }
        let directory = PoolDirectory::new(shared);
        let mut pools = Vec::new();
        let mut firsts = Vec::new();
        for shared in directory.iter() {
            let (supervisor, first) = SupervisorHandle::start(Arc::clone(shared), run.clone());
            firsts.push((shared.name.to_string(), first));
            pools.push(Pool { shared: Arc::clone(shared), supervisor, pools: Arc::clone(&directory) });
        }
        Ok((Snakepit::new(Engine::new(pools, directory, run, stop_grace)), firsts))
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
            if self.pools[..index].iter().any(|other| other.name == pool.name) {
                return Err(EngineError::SameName(pool.name.clone()));
            }
            // Workers are named after their pool.
            if let Err(error) = WorkerId::new(format!("{}-999999", pool.name)) {
                return Err(EngineError::BadName { name: pool.name.clone(), reason: error.to_string() });
            }
        }
        Ok(())
    }
}

/// Receives the outcome of a pool's first start.
type FirstStart = tokio::sync::oneshot::Receiver<Result<(), StartError>>;

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
