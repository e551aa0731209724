//! Telling a recorded process from a stranger that has its pid.
//!
//! Always in this order: open the pidfd, compare, signal through the pidfd. What does not match is let be.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::ledger::record::Process;
use crate::state::Lock;
use crate::wait::ready_within;
use crate::{Pid, RunId, machine};

/// A process that is known to be the recorded one, and cannot become another.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
}

impl Found {
    pub(crate) fn kill(&self) {
        // Gone already, or not ours to kill: whether it lives is asked afterwards in any case.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.pidfd, signal);
    }

    pub(crate) fn is_alive(&self) -> bool {
        !ends_within(&self.pidfd, Duration::ZERO)
    }

    /// Whether it ends in time. The interval is for systems without pidfds, where it is looked for.
    pub(crate) fn ends_within(&self, timeout: Duration, _interval: Duration) -> bool {
        ends_within(&self.pidfd, timeout)
    }
}

/// KILL to the process behind a worker's pidfd.
pub(crate) fn kill_through(pidfd: &OwnedFd) {
    let _ = pidfd_send_signal(pidfd, Signal::KILL);
}

/// Whether the process behind a pidfd has ended, or does so in time.
pub(crate) fn ends_within(pidfd: &impl AsFd, timeout: Duration) -> bool {
    ready_within(pidfd, PollFlags::IN, timeout)
}

/// The identity of the calling process.
pub(crate) fn own() -> std::io::Result<Process> {
    let pid = Pid::current();
    let pidfd = pidfd_open(pid.as_rustix(), PidfdFlags::empty())?;
    let stat = machine::stat(pid).ok_or_else(|| std::io::Error::other("/proc/self/stat cannot be read"))?;
    Ok(Process { pid: pid.as_raw(), start: stat.start, pidfs: pidfs_inode(&pidfd).unwrap_or(0) })
}

/// The inode that pidfs gives a process, unique until the next boot; `None` where there is no pidfs.
pub(crate) fn pidfs_inode(pidfd: &impl AsFd) -> Option<u64> {
    const PIDFS_MAGIC: u64 = 0x5049_4446;
    let filesystem = rustix::fs::fstatfs(pidfd).ok()?;
    (filesystem.f_type as u64 == PIDFS_MAGIC)
        .then(|| rustix::fs::fstat(pidfd).ok().map(|stat| stat.st_ino))?
}

/// The recorded process, if it is still alive. The caller has made sure of boot and PID namespace.
pub(crate) fn find(recorded: &Process) -> Option<Found> {
    find_if(recorded, |_| true)
}

/// Whether the host of a run lives; the lock cannot decide it, since a forked copy of the host holds it, too.
pub(crate) fn host_lives(recorded: &Process, _lock: Lock) -> bool {
    find(recorded).is_some()
}

/// As [`find`], for a process of a run: where the kernel has no pidfs, the marker must confirm.
pub(crate) fn find_of_run(recorded: &Process, run: RunId) -> Option<Found> {
    find_if(recorded, |pid| recorded.pidfs != 0 || carries_marker(pid, run) != Marker::Absent)
}

fn find_if(recorded: &Process, confirm: impl Fn(Pid) -> bool) -> Option<Found> {
    let found = open(Pid::new(recorded.pid)?)?;
    let by_inode = match (recorded.pidfs, pidfs_inode(&found.pidfd)) {
        (0, _) | (_, None) => None,
        (recorded, Some(inode)) => Some(inode == recorded),
    };
    let by_start = match recorded.start {
        0 => None,
        start => Some(machine::stat(found.pid)?.start == start),
    };
    // What is on record must match, and at least one of them must be.
    let same = by_inode.or(by_start) == Some(true) && by_start != Some(false) && confirm(found.pid);
    // Alive after the comparison: so what was read under its pid was read of it.
    (same && found.is_alive()).then_some(found)
}

pub(crate) fn open(pid: Pid) -> Option<Found> {
    let pidfd = pidfd_open(pid.as_rustix(), PidfdFlags::empty()).ok()?;
    Some(Found { pid, pidfd })
}

#[derive(PartialEq, Eq, Debug)]
enum Marker {
    Present,
    Absent,
    Unreadable,
}

/// Whether a process carries the run's marker: in its environment, or as keeper or shim on its command line.
fn carries_marker(pid: Pid, run: RunId) -> Marker {
    let Ok(environment) = std::fs::read(format!("/proc/{pid}/environ")) else { return Marker::Unreadable };
    let variable = format!("{}={run}", crate::RUN_ID_VARIABLE);
    let marked = environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes());
    if marked || keeper_of(pid).is_some_and(|keeper_of| keeper_of == run) {
        Marker::Present
    } else {
        Marker::Absent
    }
}

/// The run that a keeper or shim serves.
fn keeper_of(pid: Pid) -> Option<RunId> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = line.split(|byte| *byte == 0);
    let named = words.next()? == crate::link::KEEPER_NAME.as_bytes();
    named.then(|| std::str::from_utf8(words.next()?).ok()?.parse().ok())?
}

/// Everybody who carries the run's marker, except the caller.
pub(crate) fn find_marked(run: RunId) -> Vec<Found> {
    let own = Pid::current();
    machine::all_pids()
        .into_iter()
        .filter(|pid| *pid != own && carries_marker(*pid, run) == Marker::Present)
        .filter_map(|pid| {
            let found = open(pid)?;
            // Again, now that the pidfd is held: the first look was at whoever had the pid then.
            (carries_marker(pid, run) == Marker::Present && found.is_alive()).then_some(found)
        })
        .collect()
}
