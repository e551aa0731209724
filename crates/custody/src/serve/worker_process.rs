//! The handle of a worker: its ids, signals to it, and waiting for its end.

use std::fmt;
use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::link::wire::{SignalReach, ToKeeper};
use crate::run::shared_state::RunInner;
use crate::stop::barrier;
use crate::{Pgid, Pid, StopReport, WorkerId};

use super::exit::Exit;
use super::worker_state::{Exited, HaltChanged, WorkerState};

/// The reason why a signal was not sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignalError {
    /// The worker has ended.
    #[error("worker {0} has ended and can no longer be signalled")]
    Ended(WorkerId),
    /// The keeper died, and the worker with it.
    #[error("the keeper died, and worker {0} with it")]
    KeeperLost(WorkerId),
    /// The caller is a forked copy of the host.
    #[error("this process is a forked copy of the host and owns no worker: send the signal from the host")]
    NotOwner,
    /// The number is not a signal.
    #[error("{0} is not a signal number: use 1 to 64")]
    NoSuchSignal(i32),
}

/// A worker in custody. Cheap to clone. Dropping the handle does not stop the worker, but stopping its run does.
///
/// ```no_run
/// use std::time::Duration;
///
/// use snakepit_custody::{Command, CustodyOptions, Run};
///
/// let run = Run::open(CustodyOptions::default())?;
/// let worker = run.spawn(Command::new("sleep").arg("1000"))?;
/// assert!(worker.wait_within(Duration::from_millis(10)).is_none());
/// assert!(worker.stop(Duration::from_secs(1)).is_clean());
/// println!("{}", worker.wait().status);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct WorkerProcess {
    pub(crate) shared: Arc<WorkerState>,
    pub(crate) run: Arc<RunInner>,
}

impl fmt::Debug for WorkerProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerProcess")
            .field("id", &self.shared.id)
            .field("pid", &self.shared.pid)
            .finish_non_exhaustive()
    }
}

impl WorkerProcess {
    /// Returns the worker's name.
    pub fn id(&self) -> &WorkerId {
        &self.shared.id
    }

    /// Returns the pid of the main process.
    pub fn pid(&self) -> Pid {
        self.shared.pid
    }

    /// Returns the process group.
    pub fn pgid(&self) -> Pgid {
        self.shared.pgid
    }

    /// Returns the worker's own shim, if it has one: the parent of the worker and of every orphan that the worker
    /// leaves.
    pub fn own_shim(&self) -> Option<Pid> {
        (!cfg!(portable)).then_some(self.shared.shim)
    }

    /// Returns the worker's parent: its shim or, on systems other than Linux, the keeper.
    pub fn shim_pid(&self) -> Pid {
        self.shared.shim
    }

    /// Returns a descriptor that becomes readable when the main process ends. Processes that the worker started may
    /// live a moment longer: [`WorkerProcess::wait`] and [`WorkerProcess::exited`] wait for all of them. On systems
    /// without pidfds, the descriptor is a socket that the keeper closes.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.shared.pidfd.as_fd()
    }

    /// Sends a signal to the worker's group. TERM goes only to the main process if `process_group_kill` is false.
    pub fn signal(&self, signal: i32) -> Result<(), SignalError> {
        let group = signal != libc::SIGTERM || self.run.config.process_group_kill;
        self.signal_reaching(signal, if group { SignalReach::Group } else { SignalReach::Process })
    }

    /// Sends a signal only to the main process, for signals that the other processes do not understand.
    pub fn signal_main(&self, signal: i32) -> Result<(), SignalError> {
        self.signal_reaching(signal, SignalReach::Process)
    }

    fn signal_reaching(&self, signal: i32, reach: SignalReach) -> Result<(), SignalError> {
        if !(1..=64).contains(&signal) {
            return Err(SignalError::NoSuchSignal(signal));
        }
        self.tell(&ToKeeper::Signal { key: self.shared.key, signal, reach })
    }

    /// Kills the worker and everything that it started.
    pub fn kill(&self) -> Result<(), SignalError> {
        self.tell(&ToKeeper::Kill { key: self.shared.key })
    }

    fn tell(&self, message: &ToKeeper) -> Result<(), SignalError> {
        if !self.run.is_owner() {
            return Err(SignalError::NotOwner);
        }
        if self.try_wait().is_some() {
            return Err(SignalError::Ended(self.shared.id.clone()));
        }
        let lost = || SignalError::KeeperLost(self.shared.id.clone());
        self.run.link().ok_or_else(lost)?.send(&message.encode(), &[]).map_err(|_| lost())
    }

    /// Asks the worker to end with TERM and CONT, and does not wait. [`WorkerProcess::stop`] does not ask again.
    pub fn ask_to_end(&self) {
        if self.run.is_owner() && self.try_wait().is_none() {
            barrier::ask_to_end(&self.run, std::slice::from_ref(&self.shared));
        }
    }

    /// Sends TERM, waits up to `grace`, then sends KILL until the worker is gone.
    pub fn stop(&self, grace: Duration) -> StopReport {
        barrier::stop_workers(&self.run, vec![Arc::clone(&self.shared)], grace, barrier::StopScope::OneWorker)
    }

    /// Waits until the worker and everything that it started are gone.
    pub fn wait(&self) -> Exit {
        // Without a deadline, the wait returns only with an exit.
        self.shared.wait_until(None).unwrap_or(Exit::LOST)
    }

    /// Like [`WorkerProcess::wait`], but waits at most `timeout`.
    pub fn wait_within(&self, timeout: Duration) -> Option<Exit> {
        self.shared.wait_until(Some(Instant::now() + timeout))
    }

    /// Returns how the worker ended, if it has ended.
    pub fn try_wait(&self) -> Option<Exit> {
        self.shared.exit()
    }

    /// Like [`WorkerProcess::wait`], but returns a future for any executor.
    pub fn exited(&self) -> impl Future<Output = Exit> + Send + 'static {
        Exited(Arc::clone(&self.shared))
    }
}

/// Stops by a signal, for example by Ctrl-Z.
impl WorkerProcess {
    /// Returns the signal that stopped the main process, if it is stopped. Stops by a debugger are not visible.
    pub fn halted(&self) -> Option<i32> {
        self.shared.halt.lock().unwrap_or_else(PoisonError::into_inner).signal
    }

    /// Waits until [`WorkerProcess::halted`] differs from `known`, and returns the new value. The keeper reports
    /// changes immediately.
    pub fn halt_changed(&self, known: Option<i32>) -> impl Future<Output = Option<i32>> + Send + 'static {
        HaltChanged { worker: Arc::clone(&self.shared), known }
    }
}
