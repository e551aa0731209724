//! An order on its way: from the list of those that wait for the keeper's answer to that of the living.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::event::Event;
use crate::link::{self, Link, Reply};
use crate::run::{Inner, Keeper, Spawning};
use crate::spawn::SpawnError;
use crate::wire::{Answer, Stage, ToKeeper};
use crate::worker::{Exit, Shared};
use crate::{Pgid, Pid, WorkerId};

/// How long a spawn may take before its keeper is given up: far more than any start needs.
const SPAWN_PATIENCE: Duration = Duration::from_secs(30);

impl Inner {
    /// Puts a spawn on the list of those that wait for an answer.
    pub(crate) fn enlist(&self, key: u64, worker: &WorkerId) -> Result<Arc<Link>, SpawnError> {
        let mut table = self.table();
        let link = match &table.keeper {
            Keeper::Serving(link) => Arc::clone(link),
            Keeper::Awaited => return Err(SpawnError::KeeperLost),
            Keeper::Closing(_) | Keeper::Closed => return Err(SpawnError::Stopped),
        };
        let taken = table.workers.values().any(|other| other.id == *worker)
            || table.spawning.values().any(|other| other.worker == *worker);
        if taken {
            return Err(SpawnError::DuplicateWorker(worker.clone()));
        }
        table.spawning.insert(key, Spawning { worker: worker.clone(), early_exit: None, early_stop: None });
        Ok(link)
    }

    /// Takes a spawn off the list, and puts the worker on that of the living.
    pub(crate) fn delist(
        &self,
        key: u64,
        outcome: Result<Shared, SpawnError>,
    ) -> Result<Arc<Shared>, SpawnError> {
        let mut table = self.table();
        let spawning = table.spawning.remove(&key);
        let shared = Arc::new(outcome?);
        let keeper_lost = spawning.is_none();
        let early_stop = spawning.as_ref().and_then(|spawning| spawning.early_stop);
        let early_exit = spawning.and_then(|spawning| spawning.early_exit);
        // Before anybody else can hear of it, so that what comes later is the last word.
        shared.set_halt(early_stop);
        let ended = early_exit.or(keeper_lost.then_some(Exit::LOST));
        if ended.is_none() {
            table.workers.insert(key, Arc::clone(&shared));
        }
        let closing = matches!(table.keeper, Keeper::Closing(_) | Keeper::Closed);
        drop(table);
        self.sink.emit(Event::Spawned { worker: shared.id.clone(), pid: shared.pid });
        if let Some(signal) = early_stop {
            self.sink.emit(Event::Stopped { worker: shared.id.clone(), signal });
        }
        if let Some(exit) = ended {
            self.ended(&shared, exit);
        } else if closing && let Some(link) = self.link() {
            // The barrier has counted without it.
            let _ = link.send(&ToKeeper::Kill { key }.encode(), &[]);
        }
        Ok(shared)
    }
}

/// Asks the keeper for a worker and waits for its answer.
pub(crate) fn place_order(
    link: &Link,
    key: u64,
    id: &WorkerId,
    orders: Vec<u8>,
    fds: &[OwnedFd],
) -> Result<Shared, OrderError> {
    let keeper_died = OrderError::Failed { stage: Stage::KeeperDied, errno: 0 };
    let answer = link.send_orders(key, id.as_str().as_bytes().to_vec(), orders, fds)?;
    match link::await_answer(&answer, SPAWN_PATIENCE) {
        Reply::Came(Answer::Failed { stage, errno }, _) => Err(OrderError::Failed { stage, errno }),
        Reply::Came(Answer::Spawned { pid, shim }, pidfd) => {
            let numbers = (Pid::new(pid), Pgid::new(pid), Pid::new(shim));
            let ((Some(pid), Some(pgid), Some(shim)), Some(pidfd)) = (numbers, pidfd) else {
                // The host is out of descriptors and could not take the pidfd: the worker cannot be kept.
                let _ = link.send(&ToKeeper::Kill { key }.encode(), &[]);
                return Err(OrderError::Io(io::Error::from_raw_os_error(libc::EMFILE)));
            };
            Ok(Shared::new(key, id.clone(), pid, pgid, shim, pidfd))
        }
        Reply::Closed => Err(keeper_died),
        Reply::TimedOut => {
            // A keeper that does not answer is stopped or stuck: end it, and everything with it.
            link.signal(rustix::process::Signal::KILL);
            Err(keeper_died)
        }
    }
}

/// Why an order was not carried out.
pub(crate) enum OrderError {
    Failed { stage: Stage, errno: i32 },
    Io(io::Error),
}

impl From<io::Error> for OrderError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl OrderError {
    pub(crate) fn explain(self, program: &str, cwd: &Path, run_dir: &Path) -> SpawnError {
        match self {
            Self::Failed { stage, errno } => SpawnError::from_stage(stage, errno, program, cwd, run_dir),
            Self::Io(error) => match error.raw_os_error() {
                Some(libc::E2BIG) => SpawnError::TooLarge,
                Some(libc::EPIPE | libc::ECONNRESET | libc::ETIMEDOUT) => SpawnError::KeeperLost,
                _ => SpawnError::Process { step: "asking the keeper", source: error },
            },
        }
    }
}
