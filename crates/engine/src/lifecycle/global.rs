//! The process-wide engine: at most one at a time.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::running::EnginePhase;
use crate::{Builder, EngineError, Snakepit};

static GLOBAL: Mutex<Option<Snakepit>> = Mutex::new(None);

/// Held while the process-wide engine starts. Of two concurrent callers, the second finds the engine of the first.
static STARTING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn slot() -> MutexGuard<'static, Option<Snakepit>> {
    GLOBAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process-wide engine.
pub(super) enum GlobalEngine {
    /// Started for the caller.
    Owned(Snakepit),
    /// Started elsewhere.
    Embedded(Snakepit),
}

/// Finds the process-wide engine, or starts it with `start`. Waits for the end of an engine that is stopping, and
/// replaces it.
pub(super) async fn find_or<E>(start: impl AsyncFnOnce() -> Result<Snakepit, E>) -> Result<GlobalEngine, E> {
    let _starting = STARTING.lock().await;
    if let Some(pit) = any() {
        match pit.engine().phase() {
            EnginePhase::Serving => return Ok(GlobalEngine::Embedded(pit)),
            EnginePhase::Closing | EnginePhase::Closed => pit.engine().reached(EnginePhase::Closed).await,
        }
    }
    let pit = start().await?;
    *slot() = Some(pit.clone());
    Ok(GlobalEngine::Owned(pit))
}

/// Returns the engine in the slot, in whatever phase.
fn any() -> Option<Snakepit> {
    let mut slot = slot();
    if slot.as_ref().is_some_and(|pit| pit.engine().phase() == EnginePhase::Closed) {
        // The engine is closed: dropping its handle runs nothing under the lock.
        *slot = None;
    }
    slot.clone()
}

impl Snakepit {
    /// Returns the process-wide engine, if one is running. [`Builder::start_global`] and [scripts](crate::script) start
    /// it.
    pub fn global() -> Option<Self> {
        any().filter(|pit| pit.engine().phase() == EnginePhase::Serving)
    }
}

impl Builder {
    /// Starts an engine like [`Builder::start`], as the process-wide engine that [`Snakepit::global`] finds. It runs
    /// until it is stopped.
    pub async fn start_global(self) -> Result<Snakepit, EngineError> {
        match find_or(async || self.start().await).await? {
            GlobalEngine::Owned(pit) => Ok(pit),
            GlobalEngine::Embedded(_) => Err(EngineError::GlobalRuns),
        }
    }
}
