//! A process by its pidfd. A pid alone may already belong to another process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::deadline::{READABLE, recheck};
use crate::{CensusEntry, Deadline};

/// A process that was alive when it was opened.
#[derive(Debug)]
pub struct ObservedProcess {
    pid: i32,
    fd: OwnedFd,
}

impl ObservedProcess {
    /// Opens a process. Returns `None` if it does not exist.
    pub fn open(pid: i32) -> io::Result<Option<Self>> {
        let Some(raw) = Pid::from_raw(pid) else { return Ok(None) };
        match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(fd) => Ok(Some(Self { pid, fd })),
            // EINVAL: it is a thread, which has no pidfd of this kind.
            Err(rustix::io::Errno::SRCH | rustix::io::Errno::INVAL) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a process that must exist.
    pub fn of(pid: i32) -> Self {
        Self::open(pid).expect("pidfd_open").unwrap_or_else(|| panic!("process {pid} is not there"))
    }

    /// Returns the pid of the process.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Reports whether the process has not ended. A zombie has ended.
    pub fn is_alive(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, READABLE)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut fds, Some(&now)) == Ok(0)
    }

    /// Waits until the process has ended. Returns `false` if the deadline came first.
    pub fn ends_before(&self, deadline: Deadline) -> bool {
        deadline.readable(&mut [PollFd::new(&self.fd, READABLE)])
    }

    /// Fails the test unless the process ends in time.
    pub fn must_end(&self, who: &str) {
        assert!(self.ends_before(Deadline::patient()), "{who} (process {}) is still alive", self.pid);
    }

    /// Sends a signal, which has no effect if the process has already ended.
    pub fn signal(&self, signal: Signal) {
        match pidfd_send_signal(&self.fd, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => panic!("signal {signal:?} to process {}: {error}", self.pid),
        }
    }

    /// Kills the process and waits until it has ended.
    pub fn end(&self) {
        self.signal(Signal::KILL);
        self.must_end("a process that the test killed");
    }
}

impl AsFd for ObservedProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Stops processes and waits until they have stopped, so that none can react to the end of another. A process that
/// sleeps in a system call that no stop interrupts will stop before it executes another instruction of its own.
pub fn hold_still<'a>(processes: impl IntoIterator<Item = &'a ObservedProcess>) {
    for process in processes {
        process.signal(Signal::STOP);
        recheck(Deadline::patient(), "a stopped process", || {
            CensusEntry::read(process.pid())
                .is_none_or(|found| matches!(found.state, 'T' | 'D' | 'Z'))
                .then_some(())
        });
    }
}
