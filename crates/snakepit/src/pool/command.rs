//! What a pool knows about a command.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::estimate::Estimate;
use super::gathering::Conductor;
use crate::adapter::Batching;
use crate::call::Input;

/// A command as a pool knows it.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) name: Arc<str>,
    pub(crate) estimate: Estimate,
    /// Its number among those that workers of the pool have announced.
    pub(super) number: usize,
    /// How many calls its function takes at a time; 0: one, and not as lists.
    batch: AtomicU32,
    window_us: AtomicU64,
    pub(super) conductor: OnceLock<Conductor>,
}

impl Command {
    pub(crate) fn new(name: &str) -> Self {
        Self::numbered(name, 0)
    }

    pub(super) fn numbered(name: &str, number: usize) -> Self {
        Self {
            name: name.into(),
            estimate: Estimate::default(),
            number,
            batch: AtomicU32::new(0),
            window_us: AtomicU64::new(0),
            conductor: OnceLock::new(),
        }
    }

    /// What the latest worker says about it.
    pub(super) fn set_batching(&self, batching: Option<Batching>) {
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

    /// Whether its calls are gathered.
    pub(super) fn gathers(&self) -> bool {
        self.batch.load(Ordering::Relaxed) > 1
    }

    /// How long its calls may be gathered.
    pub(super) fn window(&self) -> Duration {
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
