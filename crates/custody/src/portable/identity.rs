//! Telling a recorded process from a stranger that has its pid, without pidfds.
//!
//! A pid and a start time are compared right before each signal. Between the two there is a moment in which the
//! process could end and its pid be given away; with a pidfd there would be none. What cannot be compared may be
//! alive, and is never signalled.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, Timespec, poll};
use rustix::process::{Signal, getpgid, kill_process, kill_process_group};

use crate::ledger::record::Process;
use crate::look::{self, Look};
use crate::state::Lock;
use crate::{Pgid, Pid, RunId};

/// A process that is the recorded one, or may be.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) pid: Pid,
    /// Its start time; `None` where it could not be compared.
    start: Option<u64>,
}

impl Found {
    /// Kills it, and its group if it leads one.
    #[expect(
        clippy::disallowed_methods,
        reason = "there are no pidfds; its start time was compared just now"
    )]
    pub(crate) fn kill(&self) {
        if !self.is_proven() {
            return;
        }
        let pid = self.pid.as_rustix();
        // Gone already, or not ours to kill: whether it lives is asked afterwards in any case.
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
        may_be(look::at_process(self.pid.as_raw()), self.start)
    }

    /// Whether it ends in time; it is looked at once in every `interval`.
    pub(crate) fn ends_within(&self, timeout: Duration, interval: Duration) -> bool {
        until(timeout, interval, || !self.is_alive())
    }

    /// Whether it is the recorded process at this moment.
    fn is_proven(&self) -> bool {
        self.start.is_some_and(|start| look::at_process(self.pid.as_raw()) == Look::Started(start))
    }
}

fn may_be(look: Look, start: Option<u64>) -> bool {
    match (look, start) {
        (Look::Gone, _) => false,
        (Look::Started(seen), Some(start)) => seen == start,
        (Look::Started(_), None) | (Look::Unknown, _) => true,
    }
}

/// Looks for something that nobody tells, until it is so or the time is over.
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

/// The identity of the calling process.
#[expect(clippy::unnecessary_wraps, reason = "on Linux it can fail, and callers are the same")]
pub(crate) fn own() -> io::Result<Process> {
    let pid = Pid::current().as_raw();
    let start = match look::at_process(pid) {
        Look::Started(start) => start,
        Look::Unknown | Look::Gone => 0,
    };
    Ok(Process { pid, start, pidfs: 0 })
}

/// The recorded process, if it is alive or may be.
#[expect(clippy::unnecessary_wraps, reason = "on Linux it can fail, and callers are the same")]
pub(crate) fn find(recorded: &Process) -> io::Result<Option<Found>> {
    let Some(pid) = Pid::new(recorded.pid) else { return Ok(None) };
    let start = (recorded.start != 0).then_some(recorded.start);
    let look = look::at_process(recorded.pid);
    let start = start.filter(|_| look != Look::Unknown);
    Ok(may_be(look, start).then_some(Found { pid, start }))
}

/// The recorded process of a run, if it is alive for sure: this one may be killed.
pub(crate) fn find_of_run(recorded: &Process, _run: RunId) -> io::Result<Option<Found>> {
    Ok(find(recorded)?.filter(Found::is_proven))
}

/// Whether the host of a run lives. A free lock says that it does not, whoever has its pid by now.
pub(crate) fn host_lives(recorded: &Process, lock: Lock) -> io::Result<bool> {
    Ok(lock == Lock::Held && find(recorded)?.is_some())
}

/// Nobody is known by an inode here.
pub(crate) fn surely_alive(recorded: &[Process]) -> Vec<bool> {
    vec![false; recorded.len()]
}

/// Nobody adopts orphans in a way that could be told here.
#[expect(clippy::unnecessary_wraps, reason = "on Linux it can fail, and callers are the same")]
pub(crate) fn ancestors() -> io::Result<Vec<Process>> {
    Ok(Vec::new())
}

/// Keepers cannot be told by their command line here.
#[expect(clippy::unnecessary_wraps, reason = "on Linux it can fail, and callers are the same")]
pub(crate) fn served_by(_pid: Pid) -> io::Result<Option<RunId>> {
    Ok(None)
}

/// What stands for a pidfd here cannot carry a signal: the keeper does it.
pub(crate) fn kill_through(_end: &OwnedFd) {}

/// A bare pid proves nothing.
#[expect(clippy::unnecessary_wraps, reason = "on Linux it can fail, and callers are the same")]
pub(crate) fn open(_pid: Pid) -> io::Result<Option<Found>> {
    Ok(None)
}

/// Nobody lives in another PID namespace than the one there is.
#[expect(clippy::unnecessary_wraps, reason = "on Linux it can fail, and callers are the same")]
pub(crate) fn namespace_lives(_pidns: u64) -> io::Result<bool> {
    Ok(false)
}
