//! What a pool knows about a command.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::estimate::ServiceEstimate;
use super::{Batching, Input};
use snakepit_policy::breaker::Circuit;

/// The task that times the batches of a command. Dropping this value ends the task.
#[derive(Debug)]
pub(crate) struct BatchTimer {
    pub(crate) bell: Arc<Notify>,
    pub(crate) task: AbortHandle,
}

impl Drop for BatchTimer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A command, as its pool knows it.
#[derive(Debug)]
pub(crate) struct PoolCommand {
    pub(crate) name: Arc<str>,
    pub(crate) estimate: ServiceEstimate,
    /// The number of the command among those that the pool's workers have announced.
    pub(crate) number: usize,
    /// The number of calls that the function takes at a time, as lists. 0 means that the function takes single calls.
    batch: AtomicU32,
    window_us: AtomicU64,
    pub(crate) batch_timer: OnceLock<BatchTimer>,
    /// Used only if the pool has a breaker.
    pub(crate) circuit: OnceLock<Circuit>,
}

impl PoolCommand {
    pub(crate) fn new(name: &str) -> Self {
        Self::numbered(name, 0)
    }

    pub(crate) fn numbered(name: &str, number: usize) -> Self {
        Self {
            name: name.into(),
            estimate: ServiceEstimate::default(),
            number,
            batch: AtomicU32::new(0),
            window_us: AtomicU64::new(0),
            batch_timer: OnceLock::new(),
            circuit: OnceLock::new(),
        }
    }

    /// Sets how calls are gathered, as the latest worker announced it.
    pub(crate) fn set_batching(&self, batching: Option<Batching>) {
        self.batch.store(batching.map_or(0, |batching| batching.size), Ordering::Relaxed);
        self.window_us.store(batching.map_or(0, |batching| batching.window_us), Ordering::Relaxed);
    }

    /// Returns how many calls the function takes at a time, as lists. `None` means that it takes single calls.
    pub(crate) fn batch(&self) -> Option<usize> {
        match self.batch.load(Ordering::Relaxed) {
            0 => None,
            size => Some(size as usize),
        }
    }

    /// Reports whether the function takes several calls at a time, so that calls are gathered.
    pub(crate) fn gathers(&self) -> bool {
        self.batch.load(Ordering::Relaxed) > 1
    }

    /// Returns how long calls may be gathered.
    pub(crate) fn window(&self) -> Duration {
        Duration::from_micros(self.window_us.load(Ordering::Relaxed))
    }

    /// Returns how often the function runs for this input if no run fails.
    pub(crate) fn runs(&self, input: &Input) -> u32 {
        match input {
            Input::One(_) => 1,
            Input::Many(inputs) => inputs.len().div_ceil(self.batch().unwrap_or(1)).max(1) as u32,
        }
    }
}

/// The prefix of the engine's own commands and tools.
const RESERVED: &str = "snakepit.";

/// Reports whether a command or a tool belongs to the engine.
pub fn is_reserved(name: &str) -> bool {
    name.starts_with(RESERVED)
}
