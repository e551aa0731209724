//! An adapter for tests that start no worker.

use std::sync::Arc;

use futures_util::future::{self, BoxFuture};

use super::{Adapter, Handle, Spawner, StartError};

/// An adapter whose workers never become ready.
pub(crate) struct NoWorkers;

impl Adapter for NoWorkers {
    fn start_worker(&self, _spawner: Spawner) -> BoxFuture<'_, Result<Arc<dyn Handle>, StartError>> {
        Box::pin(future::pending())
    }
}
