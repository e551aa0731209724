//! The identity of processes, without pidfds: is this the recorded process, or another process with the same pid?
//!
//! Pid and start time are compared right before each signal. In the moment between the two, the process could end and
//! its pid be reused. A pidfd would close that gap. A process that cannot be compared may be alive, and is never
//! signalled.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, Timespec, poll};
use rustix::process::{Signal, getpgid, kill_process, kill_process_group};

use crate::ledger::record::ProcessIdentity;
use crate::portable::process_state::{self, PidState};
use crate::state::LockState;
use crate::{Pgid, Pid, RunId};

/// A process that is, or may be, the recorded one.
#[derive(Debug)]
pub(crate) struct LiveProcess {
    pub(crate) pid: Pid,
    /// The process's start time; `None` if it could not be compared.
    start: Option<u64>,
}

impl LiveProcess {
    /// Kills the process, and its group if it leads one.
    #[expect(
        clippy::disallowed_methods,
        reason = "there are no pidfds; its start time was compared just now"
    )]
    pub(crate) fn kill(&self) {
        if !self.is_proven() {
            return;
        }
        let pid = self.pid.as_rustix();
        // If the process is gone or may not be killed, the later check whether it is alive shows that.
        let _ = match Pgid::new(self.pid.as_raw()) {
            Some(_) if getpgid(Some(pid)).is_ok_and(|group| group == pid) => {
                kill_process_group(pid, Signal::KILL)
            }
            _ => kill_process(pid, Signal::KILL),
        };
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "there are no pidfds; its start time was compared just now"
    )]
    pub(crate) fn signal(&self, signal: Signal) {
        if self.is_proven() {
            let _ = kill_process(self.pid.as_rustix(), signal);
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        may_be(process_state::at_process(self.pid.as_raw()), self.start)
    }

    /// Waits up to `timeout` for the end of the process, and checks once per `interval`. Returns whether it has ended.
    pub(crate) fn ends_within(&self, timeout: Duration, interval: Duration) -> bool {
        until(timeout, interval, || !self.is_alive())
    }

    /// Returns whether this is the recorded process at this moment.
    fn is_proven(&self) -> bool {
        self.start
            .is_some_and(|start| process_state::at_process(self.pid.as_raw()) == PidState::Started(start))
    }
}

fn may_be(look: PidState, start: Option<u64>) -> bool {
    match (look, start) {
        (PidState::Gone, _) => false,
        (PidState::Started(seen), Some(start)) => seen == start,
        (PidState::Started(_), None) | (PidState::Unknown, _) => true,
    }
}

/// Polls a condition until it holds or the time is over. For conditions whose change is not signalled.
pub(crate) fn until(timeout: Duration, interval: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + timeout;
    loop {
        if is_so() {
            return true;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let pause = left.min(interval.max(Duration::from_millis(1)));
        let pause = Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: pause.subsec_nanos().into() };
        let nobody: &mut [PollFd<'_>] = &mut [];
        let _ = poll(nobody, Some(&pause));
    }
}

/// Returns the identity of the calling process.
#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux; all systems share the callers")]
pub(crate) fn own() -> io::Result<ProcessIdentity> {
    let pid = Pid::current().as_raw();
    let start = match process_state::at_process(pid) {
        PidState::Started(start) => start,
        PidState::Unknown | PidState::Gone => 0,
    };
    Ok(ProcessIdentity { pid, start, pidfs: 0 })
}

/// Returns the recorded process if it is alive or may be alive.
#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux; all systems share the callers")]
pub(crate) fn find(recorded: &ProcessIdentity) -> io::Result<Option<LiveProcess>> {
    let Some(pid) = Pid::new(recorded.pid) else { return Ok(None) };
    let start = (recorded.start != 0).then_some(recorded.start);
    let look = process_state::at_process(recorded.pid);
    let start = start.filter(|_| look != PidState::Unknown);
    Ok(may_be(look, start).then_some(LiveProcess { pid, start }))
}

/// Returns the recorded process of a run if it is certainly alive, so that it may be killed.
pub(crate) fn find_of_run(recorded: &ProcessIdentity, _run: RunId) -> io::Result<Option<LiveProcess>> {
    Ok(find(recorded)?.filter(LiveProcess::is_proven))
}

/// Returns whether the host of a run lives. A free lock means that it does not, no matter which process has its pid
/// now.
pub(crate) fn host_lives(recorded: &ProcessIdentity, lock: LockState) -> io::Result<bool> {
    Ok(lock == LockState::Held && find(recorded)?.is_some())
}

/// Proves nothing, because processes have no inodes here.
pub(crate) fn surely_alive(recorded: &[ProcessIdentity]) -> Vec<bool> {
    vec![false; recorded.len()]
}

/// Returns no ancestors: those that adopt orphans cannot be recognized here.
#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux; all systems share the callers")]
pub(crate) fn ancestors() -> io::Result<Vec<ProcessIdentity>> {
    Ok(Vec::new())
}

/// Returns no run: keepers cannot be recognized by their command line here.
#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux; all systems share the callers")]
pub(crate) fn served_by(_pid: Pid) -> io::Result<Option<RunId>> {
    Ok(None)
}

/// Does nothing: the socket that replaces a pidfd here cannot carry a signal, so the keeper sends the signal.
pub(crate) fn kill_through(_end: &OwnedFd) {}

/// Returns no process: a bare pid proves nothing.
#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux; all systems share the callers")]
pub(crate) fn open(_pid: Pid) -> io::Result<Option<LiveProcess>> {
    Ok(None)
}

/// Returns false: there is only one PID namespace.
#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux; all systems share the callers")]
pub(crate) fn namespace_lives(_pidns: u64) -> io::Result<bool> {
    Ok(false)
}
