//! A real pseudo-terminal, with a host as the leader of its session.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The outer end of a terminal. Closing it hangs up.
#[derive(Debug)]
pub struct PseudoTerminal {
    master: OwnedFd,
    slave: Option<OwnedFd>,
}

impl PseudoTerminal {
    /// Opens a pair.
    pub fn open() -> io::Result<Self> {
        let (mut master, mut slave): (RawFd, RawFd) = (-1, -1);
        let null = std::ptr::null_mut();
        // SAFETY: both numbers are valid to write to, and the optional arguments may be null.
        if unsafe { libc::openpty(&raw mut master, &raw mut slave, null, null.cast(), null.cast()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: openpty returned both descriptors, and nothing else has them.
        let (master, slave) = unsafe { (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        rustix::io::fcntl_setfd(&master, rustix::io::FdFlags::CLOEXEC)?;
        rustix::io::fcntl_setfd(&slave, rustix::io::FdFlags::CLOEXEC)?;
        Ok(Self { master, slave: Some(slave) })
    }

    /// Makes the command the leader of a session on this terminal, in its foreground.
    pub fn lead(&self, command: &mut Command) {
        let slave = self.slave.as_ref().expect("the inner end").as_raw_fd();
        let set = move || {
            // The harness puts hosts into separate groups, and a group's leader cannot lead a session. The standard
            // library does that first, so the process goes back to the parent's group for a moment.
            // SAFETY: plain system calls on numbers, allowed between fork and exec.
            let done = unsafe {
                libc::setpgid(0, libc::getpgid(libc::getppid())) == 0
                    && libc::setsid() >= 0
                    && libc::ioctl(slave, libc::TIOCSCTTY, 0) == 0
                    && libc::dup2(slave, 2) == 2
            };
            if done { Ok(()) } else { Err(io::Error::last_os_error()) }
        };
        // SAFETY: the closure makes only async-signal-safe calls.
        unsafe { command.pre_exec(set) };
    }

    /// Closes the inner end, so that only the session holds it.
    pub fn started(&mut self) {
        self.slave = None;
    }

    /// Types a byte, such as Ctrl-C.
    pub fn press(&self, key: u8) {
        rustix::io::write(&self.master, &[key]).expect("type on the terminal");
    }
}
