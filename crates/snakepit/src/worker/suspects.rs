//! The calls that a worker had begun when it died: they are suspected once it is known how it died, whether or not
//! their callers still wait.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Autopsy, Berth};
use crate::pool::Command;
use crate::value::Encoded;

#[derive(Debug)]
pub(super) enum Suspects {
    /// It is not known yet how the worker ended.
    Gathering(Vec<(Arc<Command>, Encoded)>),
    /// It died.
    Died(Arc<Autopsy>),
    /// It was told to end, and nobody is to blame.
    Innocent,
}

impl Default for Suspects {
    fn default() -> Self {
        Self::Gathering(Vec::new())
    }
}

impl Berth {
    /// A call is lost that the worker has, or may have, begun. One that is dropped while the worker serves killed nobody.
    pub(crate) fn suspect(&self, command: &Arc<Command>, input: Encoded) {
        if !self.is_ending() {
            return;
        }
        let autopsy = match &mut *lock(&self.suspects) {
            Suspects::Gathering(gathered) => {
                gathered.push((Arc::clone(command), input));
                return;
            }
            Suspects::Died(autopsy) => Arc::clone(autopsy),
            Suspects::Innocent => return,
        };
        self.pool.suspect(command, &input, &autopsy);
    }

    /// It is known how the worker died.
    pub(super) fn accuse(&self, autopsy: &Arc<Autopsy>) {
        for (command, input) in self.decide(Suspects::Died(Arc::clone(autopsy))) {
            self.pool.suspect(&command, &input, autopsy);
        }
    }

    /// The worker was told to end.
    pub(super) fn acquit(&self) {
        self.decide(Suspects::Innocent);
    }

    fn decide(&self, verdict: Suspects) -> Vec<(Arc<Command>, Encoded)> {
        match std::mem::replace(&mut *lock(&self.suspects), verdict) {
            Suspects::Gathering(gathered) => gathered,
            Suspects::Died(_) | Suspects::Innocent => Vec::new(),
        }
    }
}

fn lock(suspects: &Mutex<Suspects>) -> std::sync::MutexGuard<'_, Suspects> {
    suspects.lock().unwrap_or_else(PoisonError::into_inner)
}
