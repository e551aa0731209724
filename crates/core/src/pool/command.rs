//! The commands that the workers of a pool have announced.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::PoolInner;
use crate::adapter::Introduction;
use crate::call::PoolCommand;

impl PoolInner {
    /// Returns what is known about a command. A command that no worker has announced is not remembered.
    pub(crate) fn command(&self, name: &str) -> Arc<PoolCommand> {
        let known = self.commands.read().unwrap_or_else(PoisonError::into_inner);
        known.get(name).map_or_else(|| Arc::new(PoolCommand::new(name)), Arc::clone)
    }

    /// Adopts what a worker says about itself, which holds for all workers of the pool.
    pub(crate) fn learn(&self, introduction: &Introduction) {
        self.takes_many.store(introduction.takes_many, Ordering::Relaxed);
        let mut known = self.commands.write().unwrap_or_else(PoisonError::into_inner);
        // With `debug`, each call gets a worker of its own, so nothing travels together.
        let gathers = introduction.takes_many && !self.config().debug;
        for name in &introduction.commands {
            let number = known.len();
            let new = || Arc::new(PoolCommand::numbered(name, number));
            let command = known.entry(name.as_str().into()).or_insert_with(new);
            command.set_batching(introduction.batches.get(name).copied().filter(|_| gathers));
        }
    }

    /// Reports whether several calls may travel together.
    pub(crate) fn takes_many(&self) -> bool {
        self.takes_many.load(Ordering::Relaxed)
    }

    pub(crate) fn command_names(&self) -> Vec<String> {
        self.known_commands().iter().map(|command| command.name.to_string()).collect()
    }

    /// Returns the commands, sorted by name.
    pub(crate) fn known_commands(&self) -> Vec<Arc<PoolCommand>> {
        let known = self.commands.read().unwrap_or_else(PoisonError::into_inner);
        let mut commands: Vec<_> = known.values().cloned().collect();
        commands.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        commands
    }
}
