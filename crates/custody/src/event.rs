//! What custody tells about itself: a typed stream, bounded, never in the way.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use crate::{Exit, KeepError, Kept, Pid, RunId, Survivor, WorkerId};

/// How many events wait for a slow reader before new ones are counted as lost.
const CAPACITY: usize = 4096;

/// Something that happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
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
        /// The worker, if it is about one; else it is about the run.
        worker: Option<WorkerId>,
        /// How many workers are alive.
        workers: usize,
    },
    /// The barrier ended with nobody left.
    CleanupSuccess {
        /// The worker, if it is about one; else it is about the run.
        worker: Option<WorkerId>,
        /// How many workers it ended.
        workers: usize,
        /// How many of them needed KILL.
        killed: usize,
        /// How long it took.
        took: Duration,
    },
    /// The barrier gave up on somebody.
    CleanupTimeout {
        /// The worker, if it is about one; else it is about the run.
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
    /// A process that a worker started belongs to another user by now, because it ran a setuid program: this run
    /// may not end it, and does not wait for it.
    Unkillable {
        /// Which worker, where known.
        worker: Option<WorkerId>,
        /// The process.
        pid: Pid,
    },
    /// The keeper died; the workers died with it.
    KeeperLost {
        /// How many workers it took along.
        workers: usize,
    },
    /// A new keeper serves; spawning goes on.
    KeeperRegained,
    /// A file that the library keeps was damaged: it did not hold what it should, or others could have changed it.
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

/// How loud an event is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Something was killed or timed out, or custody itself was hurt.
    Warning,
    /// The ordinary course of things; nothing is logged.
    Quiet,
}

impl Event {
    /// The name under which telemetry knows it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Spawned { .. } => "snakepit.worker.spawn",
            Self::Exited { .. } => "snakepit.worker.exit",
            Self::Stopped { .. } => "snakepit.worker.stopped",
            Self::Continued { .. } => "snakepit.worker.continued",
            Self::CleanupStart { .. } => "snakepit.cleanup.start",
            Self::CleanupSuccess { .. } => "snakepit.cleanup.success",
            Self::CleanupTimeout { .. } => "snakepit.cleanup.timeout",
            Self::Reaped { .. } => "snakepit.reap",
            Self::ReapTrouble { .. } => "snakepit.reap.trouble",
            Self::EscapeCaught { .. } => "snakepit.escape.caught",
            Self::Unkillable { .. } => "snakepit.worker.unkillable",
            Self::KeeperLost { .. } => "snakepit.keeper.lost",
            Self::KeeperRegained => "snakepit.keeper.regained",
            Self::FileDamaged { .. } => "snakepit.file.damaged",
            Self::LedgerTrouble { .. } => "snakepit.ledger.trouble",
        }
    }

    /// Warnings are for timeouts, kills and harm; all else is silent.
    pub fn level(&self) -> Level {
        match self {
            Self::CleanupTimeout { .. }
            | Self::ReapTrouble { .. }
            | Self::EscapeCaught { .. }
            | Self::Unkillable { .. }
            | Self::KeeperLost { .. }
            | Self::FileDamaged { .. }
            | Self::LedgerTrouble { .. } => Level::Warning,
            Self::CleanupSuccess { killed, .. } if *killed > 0 => Level::Warning,
            Self::Reaped { killed, .. } if !killed.is_empty() => Level::Warning,
            Self::Spawned { .. }
            | Self::Exited { .. }
            | Self::Stopped { .. }
            | Self::Continued { .. }
            | Self::CleanupStart { .. }
            | Self::CleanupSuccess { .. }
            | Self::Reaped { .. }
            | Self::KeeperRegained => Level::Quiet,
        }
    }
}

/// The reading end of a run's events. Taken once per run; it ends when the run does.
#[derive(Debug)]
pub struct Events(Receiver<Event>);

impl Events {
    /// Waits for the next event; `None` when the run is over.
    pub fn next_event(&self) -> Option<Event> {
        self.0.recv().ok()
    }

    /// Waits for the next event up to `timeout`.
    pub fn next_within(&self, timeout: Duration) -> Result<Event, RecvTimeoutError> {
        self.0.recv_timeout(timeout)
    }

    /// The events that are at hand.
    pub fn drain(&self) -> Vec<Event> {
        self.0.try_iter().collect()
    }
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.next_event()
    }
}

/// Who hears of the events of all runs of this process.
static LISTENER: OnceLock<fn(RunId, &Event)> = OnceLock::new();

/// Has the events of all runs of this process told to a function, beside [`crate::Run::events`]; false if another one
/// listens already.
///
/// It is called by the thread in which the event happens, before anybody who waits for the same thing goes on. So what
/// it hears is in order, and it must not block.
pub fn listen(listener: fn(RunId, &Event)) -> bool {
    LISTENER.set(listener).is_ok()
}

/// The writing end: never blocks, counts what nobody was there to read.
#[derive(Debug)]
pub(crate) struct EventSink {
    run: RunId,
    sender: SyncSender<Event>,
    lost: AtomicU64,
}

impl EventSink {
    pub(crate) fn new(run: RunId) -> (Self, Events) {
        let (sender, receiver) = sync_channel(CAPACITY);
        (Self { run, sender, lost: AtomicU64::new(0) }, Events(receiver))
    }

    pub(crate) fn emit(&self, event: Event) {
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

    /// Tells if a file was found to be damaged.
    pub(crate) fn tell_damage<T>(&self, path: &Path, kept: &Result<(T, Kept), KeepError>) {
        let trouble = match kept {
            Ok((_, Kept::Replaced)) => None,
            Err(KeepError::Replace { source, .. }) => Some(source.to_string()),
            Ok((_, Kept::Intact | Kept::Written)) | Err(KeepError::Look { .. } | KeepError::Write { .. }) => {
                return;
            }
        };
        self.emit(Event::FileDamaged { path: path.to_owned(), trouble });
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}
