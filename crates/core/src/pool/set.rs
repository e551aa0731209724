//! The pools of one engine: started together, found by name, and stopped within one window.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::oneshot;

use super::{Pool, PoolOptions};
use crate::adapter::StartError;
use crate::custody::Run;
use crate::logging::Logging;
use crate::options::equipped;
use crate::queue::PoolInner;
use crate::sharded::ShardedArc;
use crate::supervisor::{SupervisorHandle, prepare};
use crate::tool::Tools;
use crate::worker::{OomDetector, StopWindow};

/// The pools of one engine, in the order in which they were added. Never empty.
#[derive(Debug)]
pub struct PoolSet(Vec<Pool>);

/// The result of a pool's first start.
#[derive(Debug)]
pub struct FirstStart {
    /// The name of the pool.
    pub pool: String,
    result: oneshot::Receiver<Result<(), StartError>>,
}

impl FirstStart {
    /// Waits until all workers of the pool serve, or one of them could not be started.
    pub async fn result(self) -> Result<(), StartError> {
        self.result.await.unwrap_or(Ok(()))
    }
}

/// Watches the workers of a run for kills for lack of memory. Without processes, there is nothing to watch.
async fn watch_memory(run: Option<&Run>) -> OomDetector {
    let Some(run) = run.cloned() else { return OomDetector::default() };
    // It reads files.
    let opened = tokio::task::spawn_blocking(move || OomDetector::of(&run)).await;
    opened.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

impl PoolSet {
    /// Prepares all pools, then starts their supervisors. Does not wait for the workers. Call it inside the runtime of the
    /// engine.
    ///
    /// An error names the pool that could not be prepared; no worker has been started then.
    pub async fn start(
        options: Vec<PoolOptions>,
        mut tools: Tools,
        run: Option<&Run>,
        logging: Logging,
    ) -> Result<(Self, Vec<FirstStart>), (String, StartError)> {
        let runtime = tokio::runtime::Handle::current();
        tools.add_session_store();
        let tools = Arc::new(tools);
        let oom = watch_memory(run).await;
        let mut shared = Vec::new();
        for options in options {
            let name = options.name.clone();
            let inner = async {
                let options = equipped(options, run).await?;
                let inner =
                    PoolInner::new(options, Arc::clone(&tools), runtime.clone(), oom.clone(), logging);
                prepare(&inner.config(), run.cloned()).await?;
                Ok(inner)
            };
            shared.push(inner.await.map_err(|source| (name, source))?);
        }
        PoolInner::gather_engine(&shared);
        let start = |shared: Arc<PoolInner>| {
            let (supervisor, result) = SupervisorHandle::start(Arc::clone(&shared), run.cloned());
            let first = FirstStart { pool: shared.name.to_string(), result };
            (Pool { refs: ShardedArc::new(&shared), shared, supervisor }, first)
        };
        let (pools, firsts) = shared.into_iter().map(start).unzip();
        Ok((Self(pools), firsts))
    }

    /// Returns all pools.
    pub fn pools(&self) -> &[Pool] {
        &self.0
    }

    /// Fails the calls that wait, and takes no more. Returns how many calls waited.
    pub fn close(&self) -> usize {
        self.0.iter().map(|pool| pool.shared.close()).sum()
    }

    /// Returns how many calls workers hold.
    pub fn in_flight(&self) -> usize {
        self.0.iter().map(|pool| pool.shared.in_flight()).sum()
    }

    /// Reports whether the pools are closed and no call is under way.
    pub fn is_done(&self) -> bool {
        self.0.iter().all(|pool| pool.shared.is_done())
    }

    /// Waits until the pools are closed and no call is under way. A call of one pool may need another pool, so all serve
    /// until the last call is done.
    pub async fn finished(&self) {
        while !self.is_done() {
            for pool in &self.0 {
                pool.shared.finished().await;
            }
        }
    }

    /// Asks all workers to end within the window, and waits until they are gone.
    pub async fn stop(&self, window: StopWindow) {
        join_all(self.0.iter().map(|pool| pool.supervisor.stop(window))).await;
    }

    /// Like [`PoolSet::stop`], but does not wait.
    pub fn give_up(&self, window: StopWindow) {
        self.0.iter().for_each(|pool| pool.supervisor.give_up(window));
    }
}
