//! The process-wide engine: there is at most one.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::engine::Phase;
use crate::pit::{Builder, EngineError, Snakepit};

static GLOBAL: Mutex<Option<Snakepit>> = Mutex::new(None);

/// Whoever starts the process-wide engine holds it: of two that come at the same time, the second finds the first's.
static STARTING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn slot() -> MutexGuard<'static, Option<Snakepit>> {
    GLOBAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process-wide engine and whether it was started for who asks.
pub(super) enum Found {
    Owned(Snakepit),
    Embedded(Snakepit),
}

/// Finds the process-wide engine, or starts it by `start`. One that is on its way out is waited for, and is not it any more.
pub(super) async fn find_or<E>(start: impl AsyncFnOnce() -> Result<Snakepit, E>) -> Result<Found, E> {
    let _starting = STARTING.lock().await;
    if let Some(pit) = any() {
        match pit.engine().phase() {
            Phase::Serving => return Ok(Found::Embedded(pit)),
            Phase::Closing | Phase::Closed => pit.engine().reached(Phase::Closed).await,
        }
    }
    let pit = start().await?;
    *slot() = Some(pit.clone());
    Ok(Found::Owned(pit))
}

/// Whatever stands in the slot.
fn any() -> Option<Snakepit> {
    let mut slot = slot();
    if slot.as_ref().is_some_and(|pit| pit.engine().phase() == Phase::Closed) {
        // Dropped when the lock is released, so that nothing of its end runs under it.
        drop(std::mem::take(&mut *slot));
    }
    slot.clone()
}

impl Snakepit {
    /// The process-wide engine, if one runs: started by [`Builder::start_global`], or by a [script](crate::script).
    pub fn global() -> Option<Self> {
        any().filter(|pit| pit.engine().phase() == Phase::Serving)
    }
}

impl Builder {
    /// As [`Builder::start`], as the process-wide engine, which [`Snakepit::global`] finds. It runs until it is stopped.
    pub async fn start_global(self) -> Result<Snakepit, EngineError> {
        match find_or(async || self.start().await).await? {
            Found::Owned(pit) => Ok(pit),
            Found::Embedded(_) => Err(EngineError::GlobalRuns),
        }
    }
}
