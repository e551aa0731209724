//! A pending spawn: sent to the keeper, answered, and entered in the table of living workers.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::link::keeper_link::{KeeperLink, await_answer};
use crate::link::keeper_setup::SpawnReply;
use crate::link::wire::{SpawnAnswer, SpawnStage, ToKeeper};
use crate::run::event::CustodyEvent;
use crate::run::shared_state::{KeeperState, PendingSpawn, RunInner};
use crate::serve::exit::Exit;
use crate::serve::worker_state::WorkerState;
use crate::spawn::error::SpawnError;
use crate::{Pgid, Pid, WorkerId};

/// How long the host waits for a spawn before it gives up on the keeper: far longer than any start takes.
const SPAWN_TIMEOUT: Duration = Duration::from_secs(30);

impl RunInner {
    /// Records a spawn that waits for its answer.
    pub(crate) fn begin_spawn(&self, key: u64, worker: &WorkerId) -> Result<Arc<KeeperLink>, SpawnError> {
        let mut table = self.table();
        let link = match &table.keeper {
            KeeperState::Serving(link) => Arc::clone(link),
            KeeperState::Awaited => return Err(SpawnError::KeeperLost),
            KeeperState::Closing(_) | KeeperState::Closed => return Err(SpawnError::Stopped),
        };
        let taken = table.workers.values().any(|other| other.id == *worker)
            || table.spawning.values().any(|other| other.worker == *worker);
        if taken {
            return Err(SpawnError::DuplicateWorker(worker.clone()));
        }
        table
            .spawning
            .insert(key, PendingSpawn { worker: worker.clone(), early_exit: None, early_stop: None });
        Ok(link)
    }

    /// Removes the pending spawn. If it succeeded, enters the worker in the table.
    pub(crate) fn finish_spawn(
        &self,
        key: u64,
        outcome: Result<WorkerState, SpawnError>,
    ) -> Result<Arc<WorkerState>, SpawnError> {
        let mut table = self.table();
        let spawning = table.spawning.remove(&key);
        let shared = Arc::new(outcome?);
        let keeper_lost = spawning.is_none();
        let early_stop = spawning.as_ref().and_then(|spawning| spawning.early_stop);
        let early_exit = spawning.and_then(|spawning| spawning.early_exit);
        // This comes before any other code knows the worker, so that later reports win.
        shared.set_halt(early_stop);
        let ended = early_exit.or(keeper_lost.then_some(Exit::LOST));
        if ended.is_none() {
            table.workers.insert(key, Arc::clone(&shared));
        }
        let closing = matches!(table.keeper, KeeperState::Closing(_) | KeeperState::Closed);
        drop(table);
        self.sink.emit(CustodyEvent::Spawned { worker: shared.id.clone(), pid: shared.pid });
        if let Some(signal) = early_stop {
            self.sink.emit(CustodyEvent::Stopped { worker: shared.id.clone(), signal });
        }
        if let Some(exit) = ended {
            self.ended(&shared, exit);
        } else if closing && let Some(link) = self.link() {
            // The barrier did not know this worker.
            let _ = link.send(&ToKeeper::Kill { key }.encode(), &[]);
        }
        Ok(shared)
    }
}

/// Asks the keeper for a worker and waits for its answer.
pub(crate) fn request_worker(
    link: &KeeperLink,
    key: u64,
    id: &WorkerId,
    orders: Vec<u8>,
    fds: &[OwnedFd],
) -> Result<WorkerState, RequestError> {
    let keeper_died = RequestError::Failed { stage: SpawnStage::KeeperDied, errno: 0 };
    let answer = link.send_orders(key, id.as_str().as_bytes().to_vec(), orders, fds)?;
    match await_answer(&answer, SPAWN_TIMEOUT) {
        SpawnReply::Came(SpawnAnswer::Failed { stage, errno }, _) => {
            Err(RequestError::Failed { stage, errno })
        }
        SpawnReply::Came(SpawnAnswer::Spawned { pid, shim }, pidfd) => {
            let numbers = (Pid::new(pid), Pgid::new(pid), Pid::new(shim));
            let ((Some(pid), Some(pgid), Some(shim)), Some(pidfd)) = (numbers, pidfd) else {
                // The host has no free descriptor and could not receive the pidfd, so the worker has to end.
                let _ = link.send(&ToKeeper::Kill { key }.encode(), &[]);
                return Err(RequestError::Io(io::Error::from_raw_os_error(libc::EMFILE)));
            };
            Ok(WorkerState::new(key, id.clone(), pid, pgid, shim, pidfd))
        }
        SpawnReply::Closed => Err(keeper_died),
        SpawnReply::TimedOut => {
            // A keeper that does not answer is stopped or stuck. It is killed, and its workers end with it.
            link.signal(rustix::process::Signal::KILL);
            Err(keeper_died)
        }
    }
}

/// The reason why the keeper started nothing.
pub(crate) enum RequestError {
    Failed { stage: SpawnStage, errno: i32 },
    Io(io::Error),
}

impl From<io::Error> for RequestError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl RequestError {
    pub(crate) fn explain(self, program: &str, cwd: &Path, run_dir: &Path) -> SpawnError {
        match self {
            Self::Failed { stage, errno } => SpawnError::from_stage(stage, errno, program, cwd, run_dir),
            Self::Io(error) => match error.raw_os_error() {
                Some(libc::E2BIG) => SpawnError::TooLarge,
                Some(libc::EPIPE | libc::ECONNRESET | libc::ETIMEDOUT) => SpawnError::KeeperLost,
                _ => SpawnError::Process { step: "sending the command to the keeper", source: error },
            },
        }
    }
}
