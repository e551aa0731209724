//! What a pool knows about a command.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use super::Shared;
use super::estimate::Estimate;
use super::gathering::Conductor;
use crate::adapter::{Batching, Introduction};
use crate::call::Input;
use crate::supervision::breaker::Circuit;

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
    /// Only used where there is a breaker.
    pub(super) circuit: OnceLock<Circuit>,
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
            circuit: OnceLock::new(),
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

    /// Whether its function takes several calls at a time, so that they are gathered.
    pub(crate) fn gathers(&self) -> bool {
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

impl Shared {
    /// What is known about a command. One that no worker has announced is not remembered.
    pub(crate) fn command(&self, name: &str) -> Arc<Command> {
        let known = self.commands.read().unwrap_or_else(PoisonError::into_inner);
        known.get(name).map_or_else(|| Arc::new(Command::new(name)), Arc::clone)
    }

    /// What a worker says about itself holds for all workers of its pool.
    pub(crate) fn learn(&self, introduction: &Introduction) {
        self.takes_many.store(introduction.takes_many, Ordering::Relaxed);
        let mut known = self.commands.write().unwrap_or_else(PoisonError::into_inner);
        // Where each call gets a worker of its own, nothing travels together.
        let gathers = introduction.takes_many && !self.config().debug;
        for name in &introduction.commands {
            let number = known.len();
            let new = || Arc::new(Command::numbered(name, number));
            let command = known.entry(name.as_str().into()).or_insert_with(new);
            command.set_batching(introduction.batches.get(name).copied().filter(|_| gathers));
        }
    }

    /// Whether many calls may travel together.
    pub(crate) fn takes_many(&self) -> bool {
        self.takes_many.load(Ordering::Relaxed)
    }

    pub(crate) fn command_names(&self) -> Vec<String> {
        self.known_commands().iter().map(|command| command.name.to_string()).collect()
    }

    /// By their names.
    pub(super) fn known_commands(&self) -> Vec<Arc<Command>> {
        let known = self.commands.read().unwrap_or_else(PoisonError::into_inner);
        let mut commands: Vec<_> = known.values().cloned().collect();
        commands.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        commands
    }
}
