//! A worker as its host sees it: who it is, how to signal it, and how to wait for its end.

use std::fmt;
use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::barrier::{self, StopReport};
use crate::run::Inner;
use crate::wire::{End, Reach, ToKeeper};
use crate::{Pgid, Pid, WorkerId};

/// How a worker ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exit {
    /// What its main process left behind.
    pub status: ExitStatus,
    /// The most memory that it had resident, in KiB; 0 if unknown.
    pub max_rss_kib: u64,
    /// Processor time in user mode.
    pub user_time: Duration,
    /// Processor time in the kernel.
    pub system_time: Duration,
}

/// What a process leaves behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitStatus {
    /// It ended by itself, with this code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// Its keeper was killed, and it with it: nobody could see how.
    Lost,
    /// Its shim was killed, and it with it: nobody could see how.
    ShimKilled,
}

impl Exit {
    pub(crate) const LOST: Self = Self {
        status: ExitStatus::Lost,
        max_rss_kib: 0,
        user_time: Duration::ZERO,
        system_time: Duration::ZERO,
    };
}

impl From<End> for Exit {
    fn from(end: End) -> Self {
        let status = match end.status {
            // Told by a living keeper: only the shim can be missing.
            -1 => ExitStatus::ShimKilled,
            status => match status & 0x7F {
                0 => ExitStatus::Code((status >> 8) & 0xFF),
                signal => ExitStatus::Signal(signal),
            },
        };
        Self {
            status,
            max_rss_kib: end.max_rss_kib,
            user_time: Duration::from_micros(end.user_us),
            system_time: Duration::from_micros(end.system_us),
        }
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit status {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Lost => f.write_str("lost with its keeper"),
            Self::ShimKilled => f.write_str("lost with its shim, which was killed"),
        }
    }
}

/// Why a signal was not sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignalError {
    /// The worker has ended.
    #[error("worker {0} has ended")]
    Ended(WorkerId),
    /// The keeper died, and the worker with it.
    #[error("the keeper is gone, and worker {0} with it")]
    KeeperLost(WorkerId),
    /// The caller is a forked copy of the host.
    #[error("this process is a forked copy of the host: it owns no worker")]
    NotOwner,
    /// Not a signal.
    #[error("{0} is not a signal's number")]
    NoSuchSignal(i32),
}

/// What dispatcher and waiters share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) key: u64,
    pub(crate) id: WorkerId,
    pub(crate) pid: Pid,
    pub(crate) pgid: Pgid,
    pub(crate) shim: Pid,
    pub(crate) pidfd: OwnedFd,
    end: Mutex<Ending>,
    ended: Condvar,
    halt: Mutex<Halt>,
    /// Somebody has begun to end it: to many programs a second TERM means to leave everything as it is.
    asked: AtomicBool,
}

/// Whether a signal has stopped it, as by Ctrl-Z, and who wants to hear of that.
#[derive(Debug, Default)]
struct Halt {
    signal: Option<i32>,
    wakers: Vec<Waker>,
}

#[derive(Debug)]
enum Ending {
    Alive(Vec<Waker>),
    Ended(Exit),
}

impl Shared {
    pub(crate) fn new(key: u64, id: WorkerId, pid: Pid, pgid: Pgid, shim: Pid, pidfd: OwnedFd) -> Self {
        let end = Mutex::new(Ending::Alive(Vec::new()));
        let (ended, halt, asked) = (Condvar::new(), Mutex::default(), AtomicBool::new(false));
        Self { key, id, pid, pgid, shim, pidfd, end, ended, halt, asked }
    }

    /// Whether it was asked to end before; it is now.
    pub(crate) fn was_asked(&self) -> bool {
        self.asked.swap(true, Ordering::Relaxed)
    }

    /// It was stopped by this signal, or goes on.
    pub(crate) fn set_halt(&self, signal: Option<i32>) {
        let mut halt = self.halt.lock().unwrap_or_else(PoisonError::into_inner);
        halt.signal = signal;
        let wakers = std::mem::take(&mut halt.wakers);
        drop(halt);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn exit(&self) -> Option<Exit> {
        match &*self.end.lock().unwrap_or_else(PoisonError::into_inner) {
            Ending::Alive(_) => None,
            Ending::Ended(exit) => Some(*exit),
        }
    }

    pub(crate) fn set_exit(&self, exit: Exit) {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ending::Alive(wakers) = std::mem::replace(&mut *end, Ending::Ended(exit)) {
            drop(end);
            self.ended.notify_all();
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    pub(crate) fn wait_until(&self, deadline: Option<Instant>) -> Option<Exit> {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Ending::Ended(exit) = &*end {
                return Some(*exit);
            }
            end = match deadline {
                None => self.ended.wait(end).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.checked_duration_since(Instant::now())?;
                    self.ended.wait_timeout(end, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// A worker in custody. Cheap to clone; to drop it does not stop it, to stop its run does.
#[derive(Clone)]
pub struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) run: Arc<Inner>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("id", &self.shared.id)
            .field("pid", &self.shared.pid)
            .finish_non_exhaustive()
    }
}

impl Worker {
    /// Its name.
    pub fn id(&self) -> &WorkerId {
        &self.shared.id
    }

    /// Its main process.
    pub fn pid(&self) -> Pid {
        self.shared.pid
    }

    /// Its process group.
    pub fn pgid(&self) -> Pgid {
        self.shared.pgid
    }

    /// The shim that is the parent of it and of all that it starts and leaves behind, if it has one of its own.
    pub fn own_shim(&self) -> Option<Pid> {
        (!cfg!(portable)).then_some(self.shared.shim)
    }

    /// Its shim; on systems other than Linux its keeper, which is its parent there.
    pub fn shim_pid(&self) -> Pid {
        self.shared.shim
    }

    /// A descriptor of its main process, readable once that has ended. What it started may live a moment
    /// longer: [`Worker::wait`] and [`Worker::exited`] wait for all of it. Where the system has no pidfds, it is a
    /// socket that the keeper closes then.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.shared.pidfd.as_fd()
    }

    /// Sends a signal to its group; TERM to its main process alone if `process_group_kill` is false.
    pub fn signal(&self, signal: i32) -> Result<(), SignalError> {
        if !(1..=64).contains(&signal) {
            return Err(SignalError::NoSuchSignal(signal));
        }
        let group = signal != libc::SIGTERM || self.run.config.process_group_kill;
        let reach = if group { Reach::Group } else { Reach::Process };
        self.tell(&ToKeeper::Signal { key: self.shared.key, signal, reach })
    }

    /// Sends a signal to its main process alone: for signals that only that process understands.
    pub fn signal_main(&self, signal: i32) -> Result<(), SignalError> {
        if !(1..=64).contains(&signal) {
            return Err(SignalError::NoSuchSignal(signal));
        }
        self.tell(&ToKeeper::Signal { key: self.shared.key, signal, reach: Reach::Process })
    }

    /// Kills it and everything that it started.
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

    /// Asks it to end, by TERM and CONT, and does not wait: the first step of [`Worker::stop`], which does not ask it again.
    pub fn ask_to_end(&self) {
        if self.run.is_owner() && self.try_wait().is_none() {
            barrier::ask_to_end(&self.run, std::slice::from_ref(&self.shared));
        }
    }

    /// TERM, up to `grace` for it to end, then KILL until it is gone.
    pub fn stop(&self, grace: Duration) -> StopReport {
        barrier::stop_workers(&self.run, vec![Arc::clone(&self.shared)], grace, barrier::Scope::One)
    }

    /// Waits until it and everything that it started are gone.
    pub fn wait(&self) -> Exit {
        // Without a deadline it comes back only with an end.
        self.shared.wait_until(None).unwrap_or(Exit::LOST)
    }

    /// As [`Worker::wait`], up to `timeout`.
    pub fn wait_within(&self, timeout: Duration) -> Option<Exit> {
        self.shared.wait_until(Some(Instant::now() + timeout))
    }

    /// How it ended, if it has.
    pub fn try_wait(&self) -> Option<Exit> {
        self.shared.exit()
    }

    /// As [`Worker::wait`], for whoever has an executor; it needs no particular one.
    pub fn exited(&self) -> impl Future<Output = Exit> + Send + 'static {
        Exited(Arc::clone(&self.shared))
    }
}

/// Being stopped by a signal, and going on.
impl Worker {
    /// The signal by which its main process is stopped, as by Ctrl-Z, if it is. A debugger's stops are not seen.
    pub fn halted(&self) -> Option<i32> {
        self.shared.halt.lock().unwrap_or_else(PoisonError::into_inner).signal
    }

    /// Until [`Worker::halted`] is no longer what it was known to be: what it is then. The keeper tells of it at once.
    pub fn halt_changed(&self, known: Option<i32>) -> impl Future<Output = Option<i32>> + Send + 'static {
        HaltChanged { worker: Arc::clone(&self.shared), known }
    }
}

struct HaltChanged {
    worker: Arc<Shared>,
    known: Option<i32>,
}

impl Future for HaltChanged {
    type Output = Option<i32>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<i32>> {
        let mut halt = self.worker.halt.lock().unwrap_or_else(PoisonError::into_inner);
        if halt.signal != self.known {
            return Poll::Ready(halt.signal);
        }
        if !halt.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            halt.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }
}

struct Exited(Arc<Shared>);

impl Future for Exited {
    type Output = Exit;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Exit> {
        match &mut *self.0.end.lock().unwrap_or_else(PoisonError::into_inner) {
            Ending::Ended(exit) => Poll::Ready(*exit),
            Ending::Alive(wakers) => {
                if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                    wakers.push(context.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}
