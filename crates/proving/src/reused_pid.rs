//! A bystander with a chosen pid: what PID reuse looks like to custody.

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
    /// Why numbers cannot be chosen here; `None` if they can.
    pub fn refusal() -> Option<String> {
        // The number of this process is taken, which is found out only by who may choose one.
        match Self::start(std::process::id().cast_signed()) {
            Err(error) if error.raw_os_error() != Some(libc::EEXIST) => {
                Some(format!("the number of a process cannot be chosen ({error})"))
            }
            _ => None,
        }
    }

    /// Starts one with exactly this number, leading a session and a group of the same number, as an
    /// unlucky daemon would. `None`: the number is taken.
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
        // SAFETY: without CLONE_VM this is a fork; the child makes plain system calls only and never
        // returns into Rust code that could allocate or take a lock.
        unsafe {
            match libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneWithPid>()) {
                0 => {
                    libc::setsid();
                    // It has nothing of the test: neither its pipes nor the tag.
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

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether nobody has ended it.
    pub fn is_alive(&self) -> bool {
        !Deadline::after(std::time::Duration::from_millis(1))
            .readable(&mut [PollFd::new(&self.pidfd, READABLE)])
    }
}

impl Drop for ReusedPid {
    fn drop(&mut self) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, rustix::process::Signal::KILL);
        let mut status = 0;
        // SAFETY: a child of ours that nobody else waits for.
        unsafe { libc::waitpid(self.pid, &raw mut status, 0) };
    }
}
