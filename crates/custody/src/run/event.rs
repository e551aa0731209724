//! The events that custody reports: a bounded stream of typed events that never blocks the reporter.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use crate::{Exit, KeepError, Kept, Pid, RunId, Survivor, WorkerId};

/// How many events wait for a slow reader. Further events are counted as lost.
const CAPACITY: usize = 4096;

/// Something that happened to the processes of a run. Names and levels belong to the telemetry catalog, which has an
/// entry for each variant. A new variant does not compile there until it has one.
#[derive(Clone, Debug)]
pub enum CustodyEvent {
    /// A worker's program runs.
    Spawned {
        /// The worker.
        worker: WorkerId,
        /// The main process of the worker.
        pid: Pid,
    },
    /// A worker and everything that it started are gone.
    Exited {
        /// The worker.
        worker: WorkerId,
        /// How the main process ended.
        exit: Exit,
    },
    /// A worker's main process was stopped by a signal, for example by Ctrl-Z.
    Stopped {
        /// The worker.
        worker: WorkerId,
        /// The number of the signal.
        signal: i32,
    },
    /// A stopped worker continues.
    Continued {
        /// The worker.
        worker: WorkerId,
    },
    /// The stop barrier begins.
    CleanupStart {
        /// The worker if a single one is stopped, or `None` for the run.
        worker: Option<WorkerId>,
        /// The number of living workers.
        workers: usize,
    },
    /// The stop barrier ended, and no process is left.
    CleanupSuccess {
        /// The worker if a single one is stopped, or `None` for the run.
        worker: Option<WorkerId>,
        /// The number of workers that the barrier ended.
        workers: usize,
        /// The number of these workers that needed KILL.
        killed: usize,
        /// How long the barrier took.
        took: Duration,
    },
    /// The stop barrier gave up on a process.
    CleanupTimeout {
        /// The worker if a single one is stopped, or `None` for the run.
        worker: Option<WorkerId>,
        /// The number of workers that got a KILL.
        killed: usize,
        /// The processes that are left.
        survivors: Vec<Survivor>,
        /// How long the barrier took.
        took: Duration,
    },
    /// A dead run of another host was cleared.
    Reaped {
        /// The id of the run.
        run: RunId,
        /// The processes that had to be killed.
        killed: Vec<Pid>,
    },
    /// A run could not be read or cleared.
    ReapTrouble {
        /// The name of the run's directory.
        run: String,
        /// The problem, for people.
        trouble: String,
    },
    /// A process outlived its shim, and the keeper killed it.
    EscapeCaught {
        /// The process.
        pid: Pid,
    },
    /// A process that a worker started now belongs to another user, because it ran a setuid program. The run may not
    /// signal the process and does not wait for it.
    Unkillable {
        /// The worker, if known.
        worker: Option<WorkerId>,
        /// The process.
        pid: Pid,
    },
    /// The keeper died, and the workers died with it.
    KeeperLost {
        /// The number of workers that died with the keeper.
        workers: usize,
    },
    /// A new keeper serves, and spawns work again.
    KeeperRegained,
    /// A file that the library keeps was damaged: its contents were wrong, or other users could have changed it.
    FileDamaged {
        /// The path of the file.
        path: PathBuf,
        /// Why the file could not be replaced; `None` if it was replaced.
        trouble: Option<String>,
    },
    /// A record could not be written to the ledger. Spawns are refused until writes succeed.
    LedgerTrouble {
        /// The error number of the system.
        errno: i32,
    },
}

/// The events of a run. They can be taken once per run. The stream ends with the run.
#[derive(Debug)]
pub struct CustodyEvents(Receiver<CustodyEvent>);

impl CustodyEvents {
    /// Waits for the next event. Returns `None` when the run is over.
    pub fn next_event(&self) -> Option<CustodyEvent> {
        self.0.recv().ok()
    }

    /// Waits up to `timeout` for the next event.
    pub fn next_within(&self, timeout: Duration) -> Result<CustodyEvent, RecvTimeoutError> {
        self.0.recv_timeout(timeout)
    }

    /// Returns the events that have arrived, without waiting.
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

/// The function that receives the events of all runs of this process.
static LISTENER: OnceLock<fn(RunId, &CustodyEvent)> = OnceLock::new();

/// Passes the events of all runs of this process to a function, in addition to [`crate::Run::events`]. Returns false if
/// a function is already set.
///
/// The thread in which an event happens calls the function before any thread that waits for the same change continues.
/// So events come in order, and the function must not block.
pub fn listen(listener: fn(RunId, &CustodyEvent)) -> bool {
    LISTENER.set(listener).is_ok()
}

/// The sending end of the stream. It never blocks, and counts the events that were not read in time.
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

    /// Emits an event if a file was damaged.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_nobody_reads_in_time_are_dropped_and_counted() {
        let (sink, events) = EventSink::new(RunId::new());
        for _ in 0..CAPACITY + 3 {
            sink.emit(CustodyEvent::LedgerTrouble { errno: 5 });
        }
        assert_eq!((events.drain().len(), sink.lost()), (CAPACITY, 3));
    }
}
