//! How signals come in, and how a process stops itself as a job.
//!
//! The signals that `exec` answers are blocked and read from a signalfd, so their dispositions stay what they
//! were: the command inherits nothing of ours, and to stop as the default action would, unblocking is enough.
//! The kernel then also decides whether anybody is there to continue us.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use crate::signals::ignored_at_start;

/// Those that are read; TTOU is blocked besides, so that we may move the terminal while in the background.
const ANSWERED: [Signal; 9] = [
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGWINCH,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

/// The signals that reach us, in the order in which we learn of them.
pub(super) struct Signals {
    fd: SignalFd,
    waiting: VecDeque<Signal>,
}

/// Who is stopped by a signal that we send to ourselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reach {
    /// This process.
    Ourselves,
    /// Its group: a shell calls a job stopped when all of it is.
    Group,
}

/// What became of an attempt to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Woken {
    /// We were stopped, and somebody continued us.
    Continued,
    /// Nobody could continue us (an orphaned group, or the init of a container), so the kernel did not stop us.
    NeverSlept,
}

impl Signals {
    /// Takes the signals over. To be called before the first thread is started, since threads inherit the mask.
    pub(super) fn take() -> io::Result<Self> {
        let ignored = ignored_at_start();
        let mut set = SigSet::empty();
        // What is ignored from the start stays so: nohup means it, and so does a shell's `&` without job control.
        for signal in ANSWERED.into_iter().filter(|signal| !ignored.contains(*signal)) {
            set.add(signal);
        }
        if super::orphans::are_ours() {
            set.add(Signal::SIGCHLD);
        }
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        set.add(Signal::SIGTTOU);
        set.thread_block()?;
        Ok(Self { fd, waiting: VecDeque::new() })
    }

    /// The next signal that is at hand.
    pub(super) fn next(&mut self) -> Option<Signal> {
        self.waiting.pop_front().or_else(|| self.read())
    }

    fn read(&self) -> Option<Signal> {
        let info = self.fd.read_signal().ok()??;
        Signal::try_from(info.ssi_signo as i32).ok()
    }

    /// Stops as `signal` would by default, and returns when we go on. Signals that came meanwhile are kept.
    pub(super) fn stop(&mut self, signal: Signal, reach: Reach) -> Woken {
        let target = match reach {
            Reach::Ourselves => Pid::this(),
            Reach::Group => Pid::from_raw(0),
        };
        let mut only = SigSet::empty();
        only.add(signal);
        let was_blocked = only.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_UNBLOCK);
        // Here we stand still.
        let _ = kill(target, signal);
        if let Ok(mask) = was_blocked {
            let _ = mask.thread_set_mask();
        }
        while let Some(signal) = self.read() {
            self.waiting.push_back(signal);
        }
        let before = self.waiting.len();
        self.waiting.retain(|signal| *signal != Signal::SIGCONT);
        if self.waiting.len() < before { Woken::Continued } else { Woken::NeverSlept }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Ends by SIGINT, as the command did, so that a shell's loop around us ends on Ctrl-C, too. It may return.
pub(super) fn end_by_interrupt() {
    let mut only = SigSet::empty();
    only.add(Signal::SIGINT);
    let _ = kill(Pid::this(), Signal::SIGINT);
    let _ = only.thread_unblock();
}
