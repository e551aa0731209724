//! What custody reports about itself: a bounded stream of typed events that never blocks the reporter.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use crate::{Exit, KeepError, Kept, Pid, RunId, Survivor, WorkerId};

/// How many events wait for a slow reader before new ones are counted as lost.
const CAPACITY: usize = 4096;

/// Something that happened to the processes of a run. Names and levels belong to the catalog of telemetry, which has an entry for
/// each variant: a new variant does not compile there until it has one.
#[derive(Clone, Debug)]
pub enum CustodyEvent {
    /// A worker's program runs.
    Spawned {
        /// Which worker.
        worker: WorkerId,
        /// Its main process.
        pid: Pid,
    },
    /// A worker and all that it started are gone.
    Exited {
        /// Which worker.
        worker: WorkerId,
        /// How its main process ended.
        exit: Exit,
    },
    /// A worker's main process was stopped by a signal, as by Ctrl-Z.
    Stopped {
        /// Which worker.
        worker: WorkerId,
        /// The signal's number.
        signal: i32,
    },
    /// A stopped worker goes on.
    Continued {
        /// Which worker.
        worker: WorkerId,
    },
    /// The barrier begins.
    CleanupStart {
        /// The worker, if a single one is stopped; `None` for the run.
        worker: Option<WorkerId>,
        /// How many workers are alive.
        workers: usize,
    },
    /// The barrier ended with nobody left.
    CleanupSuccess {
        /// The worker, if a single one is stopped; `None` for the run.
        worker: Option<WorkerId>,
        /// How many workers it ended.
        workers: usize,
        /// How many of them needed KILL.
        killed: usize,
        /// How long it took.
        took: Duration,
    },
    /// The barrier gave up on a process.
    CleanupTimeout {
        /// The worker, if a single one is stopped; `None` for the run.
        worker: Option<WorkerId>,
        /// How many workers got a KILL.
        killed: usize,
        /// Who is left.
        survivors: Vec<Survivor>,
        /// How long it took.
        took: Duration,
    },
    /// A dead run of another host was cleared.
    Reaped {
        /// Which run.
        run: RunId,
        /// The processes that had to be killed.
        killed: Vec<Pid>,
    },
    /// A run that could not be read or cleared.
    ReapTrouble {
        /// The run's directory name.
        run: String,
        /// What is wrong, for a person.
        trouble: String,
    },
    /// A process outlived its shim and was caught and killed by the keeper.
    EscapeCaught {
        /// The process.
        pid: Pid,
    },
    /// A process that a worker started belongs to another user by now, because it ran a setuid program. This run may not
    /// signal it and does not wait for it.
    Unkillable {
        /// Which worker, if known.
        worker: Option<WorkerId>,
        /// The process.
        pid: Pid,
    },
    /// The keeper died; the workers died with it.
    KeeperLost {
        /// How many workers died with it.
        workers: usize,
    },
    /// A new keeper serves; spawning goes on.
    KeeperRegained,
    /// A file that the library keeps was damaged: its contents were wrong, or others could have changed it.
    FileDamaged {
        /// The file.
        path: PathBuf,
        /// Why it could not be replaced; `None` if it was.
        trouble: Option<String>,
    },
    /// The ledger could not take a record. Spawns are refused until it can.
    LedgerTrouble {
        /// The system's error number.
        errno: i32,
    },
}

/// The events of a run. Taken once per run; the stream ends with the run.
#[derive(Debug)]
pub struct CustodyEvents(Receiver<CustodyEvent>);

impl CustodyEvents {
    /// Waits for the next event; `None` when the run is over.
    pub fn next_event(&self) -> Option<CustodyEvent> {
        self.0.recv().ok()
    }

    /// Waits for the next event up to `timeout`.
    pub fn next_within(&self, timeout: Duration) -> Result<CustodyEvent, RecvTimeoutError> {
        self.0.recv_timeout(timeout)
    }

    /// The events that have arrived, without waiting.
    pub fn drain(&self) -> Vec<CustodyEvent> {
        self.0.try_iter().collect()
    }
}

impl Iterator for CustodyEvents {
    type Item = CustodyEvent;

    fn next(&mut self) -> Option<CustodyEvent> {
        self.next_event()
    }
}

/// The function that gets the events of all runs of this process.
static LISTENER: OnceLock<fn(RunId, &CustodyEvent)> = OnceLock::new();

/// Passes the events of all runs of this process to a function, in addition to [`crate::Run::events`]. Returns false if a
/// function is set already.
///
/// The thread in which an event happens calls the function before anybody who waits for the same thing goes on. So events
/// come in order, and the function must not block.
pub fn listen(listener: fn(RunId, &CustodyEvent)) -> bool {
    LISTENER.set(listener).is_ok()
}

/// The writing end: never blocks, and counts the events that nobody read in time.
#[derive(Debug)]
pub(crate) struct EventSink {
    run: RunId,
    sender: SyncSender<CustodyEvent>,
    lost: AtomicU64,
}

impl EventSink {
    pub(crate) fn new(run: RunId) -> (Self, CustodyEvents) {
        let (sender, receiver) = sync_channel(CAPACITY);
        (Self { run, sender, lost: AtomicU64::new(0) }, CustodyEvents(receiver))
    }

    pub(crate) fn emit(&self, event: CustodyEvent) {
        if let Some(listener) = LISTENER.get() {
            listener(self.run, &event);
        }
        match self.sender.try_send(event) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(_)) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Emits an event if a file was found to be damaged.
    pub(crate) fn report_damage<T>(&self, path: &Path, kept: &Result<(T, Kept), KeepError>) {
        let trouble = match kept {
            Ok((_, Kept::Replaced)) => None,
            Err(KeepError::Replace { source, .. }) => Some(source.to_string()),
            Ok((_, Kept::Intact | Kept::Written)) | Err(KeepError::Look { .. } | KeepError::Write { .. }) => {
                return;
            }
        };
        self.emit(CustodyEvent::FileDamaged { path: path.to_owned(), trouble });
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}
