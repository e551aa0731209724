//! Reads the signals that `exec` answers, and stops the process as a job.
//!
//! The signals are blocked, not handled. The command inherits no handlers, and to stop with the default action it is
//! enough to unblock the signal. The kernel then also decides whether another process can continue this one.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill};
use nix::unistd::Pid;

use crate::shared::signals::SignalReader;

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

/// The signals that reach this process, in the order in which they were read.
pub(super) struct JobSignals {
    reader: SignalReader,
    pending: VecDeque<Signal>,
}

/// The processes that a stop reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StopTarget {
    Process,
    /// The process group. A shell considers a job stopped when the whole group is stopped.
    Group,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StopResult {
    /// The process was stopped, and another process continued it.
    Continued,
    /// No process could continue this one (an orphaned group, or the init of a container), so the kernel did not stop
    /// it.
    NotStopped,
}

impl JobSignals {
    /// Blocks the signals and reads them from now on. Call this before the first thread starts, because threads inherit
    /// the mask.
    pub(super) fn take() -> io::Result<Self> {
        let mut answered = ANSWERED.to_vec();
        if super::orphans::are_ours() {
            answered.push(Signal::SIGCHLD);
        }
        // With TTOU blocked, a background process may change the foreground group of the terminal.
        let reader = SignalReader::new(&answered, &[Signal::SIGTTOU])?;
        Ok(Self { reader, pending: VecDeque::new() })
    }

    /// Returns the next pending signal.
    pub(super) fn next(&mut self) -> Option<Signal> {
        self.pending.pop_front().or_else(|| self.reader.read())
    }

    /// Stops with the default action of `signal` and returns when the process continues. Keeps the signals that came
    /// meanwhile.
    pub(super) fn stop(&mut self, signal: Signal, scope: StopTarget) -> StopResult {
        let target = match scope {
            StopTarget::Process => Pid::this(),
            StopTarget::Group => Pid::from_raw(0),
        };
        let was_blocked = SigSet::from(signal).thread_swap_mask(SigmaskHow::SIG_UNBLOCK);
        // The process stops here.
        let _ = kill(target, signal);
        if let Ok(mask) = was_blocked {
            let _ = mask.thread_set_mask();
        }
        self.pending.extend(std::iter::from_fn(|| self.reader.read()));
        let before = self.pending.len();
        self.pending.retain(|signal| *signal != Signal::SIGCONT);
        if self.pending.len() < before { StopResult::Continued } else { StopResult::NotStopped }
    }
}

impl AsFd for JobSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

/// Ends by SIGINT, as the command did, so that Ctrl-C also ends a loop in the calling shell. May return.
pub(super) fn end_by_interrupt() {
    let _ = kill(Pid::this(), Signal::SIGINT);
    let _ = SigSet::from(Signal::SIGINT).thread_unblock();
}
