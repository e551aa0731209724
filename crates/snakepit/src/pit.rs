//! The engine as its user holds it: pools that run, and calls to them.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::adapter::StartError;
use crate::call::{CallBuilder, CallError, Chain, MapBuilder, Options, StreamBuilder};
use crate::causes::with_causes;
use crate::custody::{self, Run, RunId, StopReport, WorkerId};
use crate::engine::{Engine, Phase};
use crate::hardware::equipped;
use crate::lifecycle::orchestrator::{CLEANUP_TIMEOUT, ENDING, Exit, GRACE, Path, Shutdown};
use crate::lifecycle::{ShutdownCoordinator, SignalError, Stage};
use crate::logging::Logging;
use crate::pool::{Crew, Directory, Pool, PoolRef, Shared, prepare};
use crate::tool::{ToolContext, Tools};
use crate::worker::OomTeller;

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
    /// A process-wide engine runs already.
    #[error(
        "the process-wide engine runs already: use Snakepit::global(), or start another one with start()"
    )]
    GlobalRuns,
    /// There is no runtime for it.
    #[error("cannot start a runtime")]
    Runtime(#[source] std::io::Error),
    /// Custody could not be opened.
    #[error(transparent)]
    Custody(#[from] custody::OpenError),
    /// A pool's workers do not start.
    #[error("pool {pool} does not start: {}", with_causes(.source))]
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
    ///
    /// A worker is told an error in its own words. Its causes are told as well if it is a [`CallError`](crate::CallError), a
    /// `Box<dyn Error + Send + Sync>`, or one that names them with `{:#}`, as anyhow's do.
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

    /// As [`Builder::tool`], for a function that answers with many values.
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
        self.start_telling(|_| {}).await
    }

    /// As [`Builder::start`]; tells of the engine as soon as there is something to be stopped.
    pub(crate) async fn start_telling(self, begun: impl FnOnce(&Snakepit)) -> Result<Snakepit, EngineError> {
        let (pit, firsts) = self.launch().await?;
        begun(&pit);
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
            let name = pool.name.clone();
            let pool = match equipped(pool, run.as_ref()).await {
                Ok(pool) => pool,
                Err(source) => {
                    stop_run(run).await;
                    return Err(EngineError::Start { pool: name, source });
                }
            };
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
        Ok((Snakepit(Arc::new(Owner(Engine::new(pools, directory, run, stop_grace)))), firsts))
    }

    /// Whether there is nothing to be started.
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

impl From<Pool> for Builder {
    fn from(pool: Pool) -> Self {
        Self::default().pool(pool)
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
pub struct Snakepit(Arc<Owner>);

/// The last of an engine's handles: its end is the engine's end.
struct Owner(Arc<Engine>);

impl Drop for Owner {
    fn drop(&mut self) {
        let engine = &self.0;
        if !engine.is_own() {
            // What the copy of an engine holds belongs to a runtime of which the copy has no thread.
            return std::mem::forget(Arc::clone(engine));
        }
        if engine.phase() == Phase::Closed {
            return;
        }
        if !engine.is_driven_by_others() {
            // If the runtime is gone, too, its processes have been ended by whoever sat in it.
            engine.begin_end(Path::Drop, Duration::ZERO);
        } else if engine.claim_end() {
            engine.end_apart();
        }
    }
}

impl std::fmt::Debug for Snakepit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snakepit").field("pools", &self.engine().pools).finish_non_exhaustive()
    }
}

impl Snakepit {
    /// Describes an engine.
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn options(&self, command: &str) -> Options {
        Options::new(Arc::clone(&self.engine().directory), self.engine().directory.first(), command)
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
        self.engine().pools.iter().find(|pool| pool.name() == name)
    }

    /// All pools.
    pub fn pools(&self) -> &[PoolRef] {
        &self.engine().pools
    }

    /// Until all workers of all pools are ready.
    pub async fn await_ready(&self, timeout: Duration) -> Result<(), CallError> {
        for pool in &self.engine().pools {
            pool.await_ready(timeout).await?;
        }
        Ok(())
    }

    /// The run that its processes belong to; none if no pool has processes.
    pub fn run(&self) -> Option<&Run> {
        self.engine().run()
    }

    /// Until it takes no more calls: because it is being stopped, or because a signal asked the process to end.
    ///
    /// Who waits for this is given time to finish (the grace of the stop); see [`crate::script`].
    pub async fn stopping(&self) {
        self.engine().stopping().await;
    }

    /// Stops: calls that wait are given back, those under way may finish (30 s), then all workers are ended at once: they
    /// have `cleanup_on_stop_timeout_ms` of [`custody::Config`] from their goodbye to KILL (`docs/lifecycle.md`).
    ///
    /// It goes on if nobody waits for it any more. Asked for in a tool of the host, it only begins: the call that uses the tool
    /// is to finish, too.
    pub async fn stop(&self) {
        self.stop_within(GRACE).await;
    }

    /// As [`Snakepit::stop`], with another time for the calls that are under way.
    pub async fn stop_within(&self, grace: Duration) {
        let engine = self.engine();
        if !engine.is_own() || engine.phase() == Phase::Closed {
            return;
        }
        engine.begin_end(Path::Stop, grace);
        if Chain::current().is_some() {
            return;
        }
        let limit =
            [engine.stop_grace, ENDING, CLEANUP_TIMEOUT].into_iter().fold(grace, Duration::saturating_add);
        if tokio::time::timeout(limit, engine.reached(Phase::Closed)).await.is_err() {
            // Nobody drives its runtime.
            engine.end_apart();
            engine.reached(Phase::Closed).await;
        }
    }

    /// Serves until a signal asks the process to end (SIGTERM or SIGINT), then stops as [`Snakepit::stop`] does. A second
    /// signal meanwhile ends everything at once; a third ends the process where it stands.
    ///
    /// Gives the status that the process should exit with: 0 after a clean drain, 128 + n if the signal n cut it short. It is 0,
    /// too, if somebody else has stopped the engine.
    pub async fn until_shutdown(&self) -> Result<u8, SignalError> {
        let coordinator = ShutdownCoordinator::install()?;
        tokio::select! {
            biased;
            _ = coordinator.reached(Stage::Draining { signal: None }) => {}
            () = self.engine().reached(Phase::Closed) => return Ok(0),
        }
        let shutdown = Shutdown::of(self.engine(), Path::Signal, GRACE);
        let ended = Shutdown { if_cut_short: Some(Exit::Return), ..shutdown }.conduct().await;
        Ok(u8::try_from(ended.status).unwrap_or(u8::MAX))
    }

    /// Ends all workers of all engines of this process now, and waits until they are gone: no drain, TERM at once, and KILL
    /// after the time that each engine's custody is configured with. Those engines take no more calls.
    ///
    /// For hosts that end in a way of their own. It needs no runtime, blocks, is bounded, and does no harm if it is repeated.
    pub fn cleanup() -> Vec<(RunId, StopReport)> {
        let engines = Engine::all();
        for engine in &engines {
            engine.give_up();
        }
        let reports = custody::stop_all();
        for engine in &engines {
            engine.closed();
        }
        reports
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.0.0
    }
}
