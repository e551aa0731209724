//! The identity of processes: is this the recorded process, or another process with the same pid?
//!
//! The order is always: open the pidfd, compare, signal through the pidfd. A process that does not match is left alone.
//! `Ok(None)` means that the process is certainly gone. An error means that its state is unknown, and never counts as a
//! death.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::failpoint::hit;
use crate::ledger::record::ProcessIdentity;
use crate::process::machine;
use crate::process::wait::ready_within;
use crate::state::LockState;
use crate::{Pid, RunId};

/// How many ancestors of a host are recorded. Service managers and shells put fewer above a host.
const MOST_ANCESTORS: usize = 16;

/// A process held by its pidfd, which never refers to another process.
#[derive(Debug)]
pub(crate) struct LiveProcess {
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
}

impl LiveProcess {
    pub(crate) fn kill(&self) {
        // If the process is gone or may not be killed, the later check whether it is alive shows that.
        self.signal(Signal::KILL);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.pidfd, signal);
    }

    pub(crate) fn is_alive(&self) -> bool {
        !ends_within(&self.pidfd, Duration::ZERO)
    }

    /// Returns whether the pid still belongs to the process: it is alive, or has ended and is not reaped.
    pub(crate) fn is_unreaped(&self) -> io::Result<bool> {
        let shown = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", self.pidfd.as_raw_fd()))?;
        let pid = machine::field(&shown, "Pid:").unwrap_or_default();
        // The file shows -1 once the process is reaped.
        Ok(pid.trim() == self.pid.to_string())
    }

    /// Waits up to `timeout` for the end of the process. Returns whether it has ended. The interval is for systems
    /// without pidfds, which have to poll.
    pub(crate) fn ends_within(&self, timeout: Duration, _interval: Duration) -> bool {
        ends_within(&self.pidfd, timeout)
    }
}

/// Sends KILL to the process behind a worker's pidfd.
pub(crate) fn kill_through(pidfd: &OwnedFd) {
    let _ = pidfd_send_signal(pidfd, Signal::KILL);
}

/// Waits up to `timeout` for the end of the process behind a pidfd. Returns whether it has ended.
pub(crate) fn ends_within(pidfd: &impl AsFd, timeout: Duration) -> bool {
    ready_within(pidfd, PollFlags::IN, timeout)
}

/// Returns the identity of the calling process.
pub(crate) fn own() -> io::Result<ProcessIdentity> {
    describe(Pid::current())?.ok_or_else(|| io::Error::other("/proc does not show this process"))
}

/// Returns the ancestors of the caller, the nearest first. An orphan below the caller becomes the child of the first
/// subreaper among them, or of init.
pub(crate) fn ancestors() -> io::Result<Vec<ProcessIdentity>> {
    let mut ancestors = Vec::new();
    let mut next = machine::stat(Pid::current())?.map_or(0, |stat| stat.parent);
    while next > 1
        && ancestors.len() < MOST_ANCESTORS
        && let Some(pid) = Pid::new(next)
    {
        match describe(pid).and_then(|process| Ok((process, machine::stat(pid)?))) {
            Ok((Some(process), Some(stat))) => {
                ancestors.push(process);
                next = stat.parent;
            }
            // A process that ends meanwhile adopts no orphans.
            Ok(_) => break,
            // `/proc` hides the processes of other users, so the ancestors above cannot be seen.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => break,
            Err(error) => return Err(error),
        }
    }
    Ok(ancestors)
}

/// Returns the identity of a process for the ledger, or `None` if there is no such process.
fn describe(pid: Pid) -> io::Result<Option<ProcessIdentity>> {
    let Some(found) = open(pid)? else { return Ok(None) };
    let Some(stat) = machine::stat(pid)? else { return Ok(None) };
    let pidfs = pidfs_inode(&found.pidfd)?.unwrap_or(0);
    let start = match machine::clock_offset() {
        Ok(offset) => stat.start.wrapping_add_signed(-offset),
        // The inode is sufficient.
        Err(_) if pidfs != 0 => 0,
        Err(error) => return Err(error),
    };
    Ok(Some(ProcessIdentity { pid: pid.as_raw(), start, pidfs }))
}

/// Returns the inode that pidfs gives a process, unique until the next boot, or `None` if there is no pidfs.
pub(crate) fn pidfs_inode(pidfd: &impl AsFd) -> io::Result<Option<u64>> {
    const PIDFS_MAGIC: u64 = 0x5049_4446;
    if hit("look.no_pidfs").is_err() {
        return Ok(None);
    }
    hit("look.pidfs")?;
    if rustix::fs::fstatfs(pidfd)?.f_type as u64 != PIDFS_MAGIC {
        return Ok(None);
    }
    Ok(Some(rustix::fs::fstat(pidfd)?.st_ino))
}

/// Opens a process by its pid alone. Returns `None` if there is no such process.
pub(crate) fn open(pid: Pid) -> io::Result<Option<LiveProcess>> {
    hit("look.pidfd")?;
    match pidfd_open(pid.as_rustix(), PidfdFlags::empty()) {
        Ok(pidfd) => Ok(Some(LiveProcess { pid, pidfd })),
        // INVAL and NOENT: the number now belongs to a thread or a group, and no process has it.
        Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns the recorded process if it is alive. The caller has compared boot and PID namespace.
pub(crate) fn find(recorded: &ProcessIdentity) -> io::Result<Option<LiveProcess>> {
    find_if(recorded, |_| Ok(true))
}

/// Returns which of these processes, known by their inodes, are certainly alive. For many processes at once: it takes
/// three system calls for each, and one for all.
pub(crate) fn surely_alive(recorded: &[ProcessIdentity]) -> Vec<bool> {
    const AT_ONCE: usize = 128;
    let mut alive = Vec::with_capacity(recorded.len());
    let has_pidfs = open(Pid::current())
        .is_ok_and(|own| own.is_some_and(|own| matches!(pidfs_inode(&own.pidfd), Ok(Some(_)))));
    for some in recorded.chunks(AT_ONCE) {
        let same = |process: &ProcessIdentity| {
            let found = open(Pid::new(process.pid)?).ok()??;
            let inode = rustix::fs::fstat(&found.pidfd).ok()?.st_ino;
            (has_pidfs && inode == process.pidfs).then_some(found.pidfd)
        };
        let pidfds: Vec<Option<OwnedFd>> = some.iter().map(same).collect();
        let mut polled: Vec<PollFd<'_>> =
            pidfds.iter().flatten().map(|pidfd| PollFd::new(pidfd, PollFlags::IN)).collect();
        let seen = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok();
        let mut ended = polled.iter().map(|polled| !polled.revents().is_empty());
        alive.extend(pidfds.iter().map(|pidfd| pidfd.is_some() && seen && ended.next() == Some(false)));
    }
    alive
}

/// Returns whether the host of a run is alive. The lock does not show this, because a forked copy of the host holds it,
/// too.
pub(crate) fn host_lives(recorded: &ProcessIdentity, _lock: LockState) -> io::Result<bool> {
    Ok(find(recorded)?.is_some())
}

/// Like [`find`], for a process of a run. Without pidfs, the process must not carry another run's marker. It may carry
/// none: programs that set their title overwrite their environment.
pub(crate) fn find_of_run(recorded: &ProcessIdentity, run: RunId) -> io::Result<Option<LiveProcess>> {
    find_if(recorded, |found| {
        if pidfs_inode(&found.pidfd)?.is_some() {
            return Ok(true);
        }
        match markers(found.pid) {
            Ok(marked) => Ok(marked.is_none_or(|runs| runs.is_empty() || runs.contains(&run))),
            // A process that changed its user cannot be read, but its pid, start time, boot and namespace match.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(true),
            Err(error) => Err(error),
        }
    })
}

/// Returns the recorded process if it is not reaped. Its pid and its group's number then still belong to it.
pub(crate) fn find_unreaped(recorded: &ProcessIdentity) -> io::Result<Option<LiveProcess>> {
    let Some(pid) = Pid::new(recorded.pid) else { return Ok(None) };
    let Some(found) = open(pid)? else { return Ok(None) };
    let same = is_recorded(&found, recorded)?;
    Ok((same && found.is_unreaped()?).then_some(found))
}

fn find_if(
    recorded: &ProcessIdentity,
    confirm: impl FnOnce(&LiveProcess) -> io::Result<bool>,
) -> io::Result<Option<LiveProcess>> {
    let Some(pid) = Pid::new(recorded.pid) else { return Ok(None) };
    let Some(found) = open(pid)? else { return Ok(None) };
    let same = is_recorded(&found, recorded)? && confirm(&found)?;
    // The process is alive after the comparison, so the data that was read under its pid belongs to it.
    Ok((same && found.is_alive()).then_some(found))
}

/// Returns whether a process is the recorded one. If the inode is known, it alone decides, because a start time depends
/// on the reader's time namespace.
fn is_recorded(found: &LiveProcess, recorded: &ProcessIdentity) -> io::Result<bool> {
    if recorded.pidfs != 0
        && let Some(inode) = pidfs_inode(&found.pidfd)?
    {
        return Ok(inode == recorded.pidfs);
    }
    if recorded.start == 0 {
        return Err(io::Error::other(
            "the record has neither an inode nor a start time that this kernel can compare",
        ));
    }
    let Some(stat) = machine::stat(found.pid)? else { return Ok(false) };
    Ok(stat.start.wrapping_add_signed(-machine::clock_offset()?) == recorded.start)
}

/// Returns whether a process is alive. A process that waits to be reaped is not.
pub(crate) fn lives(pid: Pid) -> io::Result<bool> {
    Ok(open(pid)?.is_some_and(|found| found.is_alive()))
}

/// Returns whether a process is alive in another PID namespace. Requires that
/// [`PidScope::sees_all`](crate::process::pid_scope::PidScope::sees_all) holds for the caller.
pub(crate) fn namespace_lives(pidns: u64) -> io::Result<bool> {
    for pid in machine::all_pids()? {
        if machine::pid_namespace(pid)? == Some(pidns) && lives(pid)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the runs whose marker a process carries, in its environment or, as keeper or shim, on its command line.
/// Returns `None` if there is no such process.
pub(crate) fn markers(pid: Pid) -> io::Result<Option<Vec<RunId>>> {
    // The command line comes first: the environment of a shim in a user namespace cannot be read or is empty.
    if let Some(run) = served_by(pid)? {
        return Ok(Some(vec![run]));
    }
    let Some(environment) = machine::environment(pid)? else { return Ok(None) };
    let variables = environment.split(|byte| *byte == 0);
    let values = variables
        .filter_map(|entry| entry.strip_prefix(crate::RUN_ID_VARIABLE.as_bytes())?.strip_prefix(b"="));
    Ok(Some(values.filter_map(|id| std::str::from_utf8(id).ok()?.parse().ok()).collect()))
}

/// Returns the run that a keeper or shim serves.
pub(crate) fn served_by(pid: Pid) -> io::Result<Option<RunId>> {
    let Some(line) = machine::words(pid)? else { return Ok(None) };
    let mut words = line.split(|byte| *byte == 0);
    let named = words.next().is_some_and(|name| name == crate::link::keeper_setup::KEEPER_NAME.as_bytes());
    Ok(words.next().filter(|_| named).and_then(|id| std::str::from_utf8(id).ok()?.parse().ok()))
}
