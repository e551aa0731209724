//! Looks at one worker of a running pool step by step, for tests that need real adapters.

use std::sync::Arc;

use super::Pool;
use crate::adapter::{Handle, Reason};
use crate::call::Autopsy;
use crate::worker::{Watch, Worker, WorkerOrder};
use snakepit_policy::liveness::Liveness;

/// The first worker of a pool, and a watch over it.
#[derive(Debug)]
pub struct WatchedWorker {
    worker: Arc<Worker>,
    watch: Watch,
}

impl WatchedWorker {
    /// Returns the first worker of a pool, if it has one.
    pub fn first_of(pool: &Pool) -> Option<Self> {
        let worker = Arc::clone(pool.shared.scheduler().workers().next()?);
        Some(Self { worker, watch: Watch::default() })
    }

    /// Looks at the worker once, as its supervisor does each second.
    pub async fn look(&mut self) -> Liveness {
        self.watch.look(&self.worker).await.0
    }

    /// Returns the worker's handle.
    pub fn handle(&self) -> &dyn Handle {
        &*self.worker.handle
    }

    /// Returns what is known about the worker's end so far.
    pub fn first_look(&self) -> Autopsy {
        self.worker.first_look()
    }

    /// Orders the worker to end now.
    pub fn end(&self, reason: Reason) {
        self.worker.order(WorkerOrder::End(reason));
    }
}
