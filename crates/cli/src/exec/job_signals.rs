//! The signals that `exec` answers, and how a process stops itself as a job.
//!
//! The signals are blocked, not handled: the command inherits no handler of ours, and to stop as the default action would,
//! unblocking is enough. The kernel then also decides whether anybody is there to continue us.

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

/// The signals that reach us, in the order in which they were read.
pub(super) struct JobSignals {
    reader: SignalReader,
    pending: VecDeque<Signal>,
}

/// Whom a stop reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StopTarget {
    Process,
    /// The process group: a shell calls a job stopped when all of its group is.
    Group,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StopResult {
    /// We were stopped, and somebody continued us.
    Continued,
    /// Nobody could continue us (an orphaned group, or the init of a container), so the kernel did not stop us.
    NotStopped,
}

impl JobSignals {
    /// Takes the signals over. Call it before the first thread starts: threads inherit the mask.
    pub(super) fn take() -> io::Result<Self> {
        let mut answered = ANSWERED.to_vec();
        if super::orphans::are_ours() {
            answered.push(Signal::SIGCHLD);
        }
        // With TTOU blocked, a background process may move the terminal.
        let reader = SignalReader::new(&answered, &[Signal::SIGTTOU])?;
        Ok(Self { reader, pending: VecDeque::new() })
    }

    /// The next pending signal.
    pub(super) fn next(&mut self) -> Option<Signal> {
        self.pending.pop_front().or_else(|| self.reader.read())
    }

    /// Stops as `signal` would by default, and returns when we continue. Signals that came meanwhile are kept.
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

/// Ends by SIGINT, as the command did, so that a shell's loop around us ends on Ctrl-C too. It may return.
pub(super) fn end_by_interrupt() {
    let _ = kill(Pid::this(), Signal::SIGINT);
    let _ = SigSet::from(Signal::SIGINT).thread_unblock();
}
