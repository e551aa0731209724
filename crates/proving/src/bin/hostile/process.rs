//! What all hostile behaviours share: forks, readiness and waiting.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use snakepit_proving::deadline::let_pass;
use snakepit_proving::tag::TagMapping;

/// The maximum lifetime of a hostile process, whatever custody and the test do.
const LIFETIME: Duration = Duration::from_mins(5);

/// The descriptor that reports readiness.
#[derive(Debug)]
pub(crate) struct ReadyDescriptor(Option<RawFd>);

impl ReadyDescriptor {
    pub(crate) fn parse(text: &str) -> Self {
        Self(text.parse().ok())
    }

    /// Returns the same descriptor for a forked child.
    pub(crate) fn inherited(fd: Option<RawFd>) -> Self {
        Self(fd)
    }

    /// Writes one byte for this process and closes the descriptor.
    pub(crate) fn tell(self) {
        if let Some(fd) = self.0 {
            // SAFETY: the number was passed to this process for this purpose and is used nowhere else.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            // If the host died first, as in many tests, there is no reader.
            let _ = rustix::io::write(&fd, b"r");
        }
    }

    /// Closes the descriptor without a byte, in a process that reports nothing.
    pub(crate) fn leave(self) {
        if let Some(fd) = self.0 {
            // SAFETY: as in `tell`.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }

    pub(crate) fn fd(&self) -> Option<RawFd> {
        self.0
    }
}

/// Forks and runs `child` in the new process, which then exits with 0. Returns the pid of the child.
pub(crate) fn fork(child: impl FnOnce()) -> i32 {
    // SAFETY: hostile programs have one thread, so the child may continue like any process.
    match unsafe { libc::fork() } {
        0 => {
            child();
            // SAFETY: leaves without running what the parent registered.
            unsafe { libc::_exit(0) }
        }
        -1 => panic!("fork: {}", io::Error::last_os_error()),
        pid => pid,
    }
}

/// Forks if the system allows it.
pub(crate) fn try_fork(child: impl FnOnce()) -> bool {
    // SAFETY: as in `fork`.
    match unsafe { libc::fork() } {
        0 => {
            child();
            // SAFETY: as in `fork`.
            unsafe { libc::_exit(0) }
        }
        -1 => false,
        _ => true,
    }
}

/// Leaves the session and the group.
pub(crate) fn setsid() {
    rustix::process::setsid().expect("setsid");
}

/// Waits until something kills this process.
pub(crate) fn rest(worn: &TagMapping) {
    worn.close();
    rest_untagged();
}

pub(crate) fn rest_untagged() {
    let_pass(LIFETIME);
}
