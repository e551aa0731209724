//! A bystander with a chosen pid: how PID reuse looks to custody.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use rustix::event::PollFd;

use crate::Deadline;
use crate::deadline::READABLE;

/// The kernel's `struct clone_args`, up to `set_tid_size`.
#[repr(C, align(8))]
#[derive(Default)]
struct CloneWithPid {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
}

/// A child of the test whose pid belonged to another process before.
#[derive(Debug)]
pub struct ReusedPid {
    pid: i32,
    pidfd: OwnedFd,
}

impl ReusedPid {
    /// Returns why pids cannot be chosen here, or `None` if they can.
    pub fn refusal() -> Option<String> {
        // The pid of this process is taken. The kernel reports that only to a process that may choose pids.
        match Self::start(std::process::id().cast_signed()) {
            Err(error) if error.raw_os_error() != Some(libc::EEXIST) => {
                Some(format!("the number of a process cannot be chosen ({error})"))
            }
            _ => None,
        }
    }

    /// Starts a process with exactly this pid, as the leader of a session and a group of the same number, like an
    /// unlucky daemon. Returns `None` if the pid is taken.
    pub fn with_pid(pid: i32) -> Option<Self> {
        match Self::start(pid) {
            Ok(reused_pid) => Some(reused_pid),
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => None,
            Err(error) => panic!("clone3: {error}"),
        }
    }

    fn start(pid: i32) -> io::Result<Self> {
        let mut pidfd: RawFd = -1;
        let set_tid = [pid];
        let args = CloneWithPid {
            flags: libc::CLONE_PIDFD as u64,
            pidfd: (&raw mut pidfd) as u64,
            exit_signal: libc::SIGCHLD as u64,
            set_tid: set_tid.as_ptr() as u64,
            set_tid_size: 1,
            ..CloneWithPid::default()
        };
        // SAFETY: without CLONE_VM this is a fork. The child makes only plain system calls and never returns into Rust
        // code that could allocate or take a lock.
        unsafe {
            match libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneWithPid>()) {
                0 => {
                    libc::setsid();
                    // It keeps nothing of the test: neither its pipes nor the tag.
                    libc::close_range(0, u32::MAX, 0);
                    let death = libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    loop {
                        if death != 0 || libc::getppid() == 1 {
                            libc::_exit(1);
                        }
                        libc::pause();
                    }
                }
                got if got == i64::from(pid) => Ok(Self { pid, pidfd: OwnedFd::from_raw_fd(pidfd) }),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    /// Returns the pid.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Reports whether the process has not been ended.
    pub fn is_alive(&self) -> bool {
        !Deadline::after(std::time::Duration::from_millis(1))
            .readable(&mut [PollFd::new(&self.pidfd, READABLE)])
    }
}

impl Drop for ReusedPid {
    fn drop(&mut self) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, rustix::process::Signal::KILL);
        let mut status = 0;
        // SAFETY: it is our own child, and only this call waits for it.
        unsafe { libc::waitpid(self.pid, &raw mut status, 0) };
    }
}
