//! Signals as events. They are blocked and read from a signalfd, so their dispositions stay unchanged.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

pub(crate) struct SignalReader(SignalFd);

impl SignalReader {
    /// Blocks `answered` and `blocked`, and reads the former. Call this before the first thread starts, because threads
    /// inherit the mask.
    ///
    /// A signal that was ignored from the start stays ignored. That is what nohup asks for, and a shell's `&` without
    /// job control.
    pub(crate) fn new(answered: &[Signal], blocked: &[Signal]) -> io::Result<Self> {
        let ignored = ignored_at_start();
        let answered = answered.iter().copied().filter(|signal| !ignored.contains(*signal));
        let mut set: SigSet = answered.collect();
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        set.extend(blocked.iter().copied());
        set.thread_block()?;
        Ok(Self(fd))
    }

    /// Returns the next pending signal.
    pub(crate) fn read(&self) -> Option<Signal> {
        let info = self.0.read_signal().ok()??;
        Signal::try_from(info.ssi_signo as i32).ok()
    }
}

impl AsFd for SignalReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn ignored_at_start() -> SigSet {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    Signal::iterator().filter(|signal| mask & (1 << (*signal as i32 - 1)) != 0).collect()
}
