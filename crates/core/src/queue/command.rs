//! The commands that the workers of a pool have announced.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::PoolInner;
use crate::adapter::Introduction;
use crate::call::PoolCommand;
use crate::sharded::{ShardRef, ShardedArc};

impl PoolInner {
    /// Returns what is known about a command. A command that no worker has announced is not remembered.
    pub(crate) fn command(&self, name: &str) -> ShardRef<PoolCommand> {
        let known = self.commands.load();
        known.get(name).map_or_else(|| ShardRef::from(Arc::new(PoolCommand::new(name))), ShardedArc::own)
    }

    /// Adopts what a worker says about itself, which holds for all workers of the pool.
    pub(crate) fn learn(&self, introduction: &Introduction) {
        self.takes_many.store(introduction.takes_many, Ordering::Relaxed);
        // With `debug`, each call gets a worker of its own, so nothing travels together.
        let gathers = introduction.takes_many && !self.config().debug;
        self.commands.rcu(|known| {
            let mut known = HashMap::clone(known);
            for name in &introduction.commands {
                let number = known.len();
                let new = || ShardedArc::new(&Arc::new(PoolCommand::numbered(name, number)));
                let command = known.entry(name.as_str().into()).or_insert_with(new);
                command.set_batching(introduction.batches.get(name).copied().filter(|_| gathers));
            }
            known
        });
    }

    /// Reports whether several calls may travel together.
    pub(crate) fn takes_many(&self) -> bool {
        self.takes_many.load(Ordering::Relaxed)
    }

    pub(crate) fn command_names(&self) -> Vec<String> {
        self.known_commands().iter().map(|command| command.name.to_string()).collect()
    }

    /// Returns the commands, sorted by name.
    pub(crate) fn known_commands(&self) -> Vec<ShardRef<PoolCommand>> {
        let mut commands: Vec<_> = self.commands.load().values().map(ShardedArc::own).collect();
        commands.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        commands
    }
}
