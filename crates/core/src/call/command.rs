//! What a pool knows about a command.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::Input;
use super::estimate::ServiceEstimate;
use snakepit_policy::breaker::Circuit;

/// The task that keeps the time of a command's batches, as long as the command is known.
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

/// How calls of a command are gathered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct Batching {
    /// How many calls travel together at the most.
    pub size: u32,
    /// How long they are gathered, in microseconds.
    #[serde(default)]
    pub window_us: u64,
}

/// A command as a pool knows it.
#[derive(Debug)]
pub(crate) struct PoolCommand {
    pub(crate) name: Arc<str>,
    pub(crate) estimate: ServiceEstimate,
    /// Its number among those that workers of the pool have announced.
    pub(crate) number: usize,
    /// How many calls its function takes at a time; 0: one, and not as lists.
    batch: AtomicU32,
    window_us: AtomicU64,
    pub(crate) batch_timer: OnceLock<BatchTimer>,
    /// Only used where there is a breaker.
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

    /// What the latest worker says about it.
    pub(crate) fn set_batching(&self, batching: Option<Batching>) {
        self.batch.store(batching.map_or(0, |batching| batching.size), Ordering::Relaxed);
        self.window_us.store(batching.map_or(0, |batching| batching.window_us), Ordering::Relaxed);
    }

    /// How many calls its function takes at a time, as lists, if it does.
    pub(crate) fn batch(&self) -> Option<usize> {
        match self.batch.load(Ordering::Relaxed) {
            0 => None,
            size => Some(size as usize),
        }
    }

    /// Whether its function takes several calls at a time, so that they are gathered.
    pub(crate) fn gathers(&self) -> bool {
        self.batch.load(Ordering::Relaxed) > 1
    }

    /// How long its calls may be gathered.
    pub(crate) fn window(&self) -> Duration {
        Duration::from_micros(self.window_us.load(Ordering::Relaxed))
    }

    /// How often its function runs for this, as far as it is one that does not fail.
    pub(crate) fn runs(&self, input: &Input) -> u32 {
        match input {
            Input::One(_) => 1,
            Input::Many(inputs) => inputs.len().div_ceil(self.batch().unwrap_or(1)).max(1) as u32,
        }
    }
}
