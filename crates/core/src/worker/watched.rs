//! One worker of a running pool, looked at round by round, for tests that need real adapters.

use std::sync::Arc;

use super::{Autopsy, Watch, Worker, WorkerOrder};
use crate::adapter::{Handle, Reason};
use crate::pool::Pool;
use snakepit_policy::liveness::Liveness;

/// The first worker of a pool, and a watch over it.
#[derive(Debug)]
pub struct WatchedWorker {
    worker: Arc<Worker>,
    watch: Watch,
}

impl WatchedWorker {
    /// The first worker of a pool, if it has one.
    pub fn first_of(pool: &Pool) -> Option<Self> {
        let worker = Arc::clone(pool.shared.scheduler().workers().next()?);
        Some(Self { worker, watch: Watch::default() })
    }

    /// Looks at it once, as its supervisor does each second.
    pub async fn look(&mut self) -> Liveness {
        self.watch.look(&self.worker).await.0
    }

    /// The worker as its adapter sees it.
    pub fn handle(&self) -> &dyn Handle {
        &*self.worker.handle
    }

    /// What is known of it at once.
    pub fn first_look(&self) -> Autopsy {
        self.worker.first_look()
    }

    /// Ends it.
    pub fn end(&self, reason: Reason) {
        self.worker.order(WorkerOrder::End(reason));
    }
}
