//! The identity of processes: what the ledger records beside a pid.

use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;

use crate::proc_stat::ProcStat;
use crate::record::ProcessIdentity;
use crate::sys;

/// Reads identities as the host would: see `identity.rs` of the library.
pub(crate) struct Identities {
    pub(crate) pidfs: bool,
    pub(crate) clock_offset: u64,
}

impl Identities {
    /// The identity of the process behind a pidfd, which must not have been reaped.
    pub(crate) fn read(&self, pid: i32, pidfd: &OwnedFd) -> Result<ProcessIdentity> {
        Ok(ProcessIdentity { start: self.start(pid)?, ..self.read_briefly(pid, pidfd)? })
    }

    /// The same, without the start time if there is an inode: a look into `/proc/PID` costs twice, once now and once when the
    /// process is reaped.
    pub(crate) fn read_briefly(&self, pid: i32, pidfd: &OwnedFd) -> Result<ProcessIdentity> {
        match inode(pidfd) {
            Some(pidfs) if self.pidfs => Ok(ProcessIdentity { pid, start: 0, pidfs }),
            _ => Ok(ProcessIdentity { pid, start: self.start(pid)?, pidfs: 0 }),
        }
    }

    fn start(&self, pid: i32) -> Result<u64> {
        let line = std::fs::read(format!("/proc/{pid}/stat"))?;
        let stat = ProcStat::parse(&line).ok_or_else(|| Error::from_raw_os_error(sys::EPROTO))?;
        Ok(stat.start.wrapping_sub(self.clock_offset))
    }
}

/// The pid, in the caller's PID namespace, of the process behind a pidfd.
pub(crate) fn pid_of(pidfd: RawFd) -> Result<i32> {
    if let Some(pid) = sys::pidfd_pid(pidfd) {
        return Ok(pid);
    }
    // Before Linux 6.13.
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{pidfd}"))?;
    info.lines()
        .find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok())
        .filter(|pid| *pid > 0)
        .ok_or_else(|| Error::from_raw_os_error(sys::EPROTO))
}

fn inode(pidfd: &OwnedFd) -> Option<u64> {
    Some(File::from(pidfd.try_clone().ok()?).metadata().ok()?.ino())
}

/// What `/proc` says of a process; `None` if there is none.
pub(crate) fn read_stat(pid: i32) -> Option<ProcStat> {
    ProcStat::parse(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// A pidfd of the calling process.
pub(crate) fn own_pidfd() -> Result<OwnedFd> {
    sys::pidfd_open(sys::pid())
}

/// Whether the process behind a pidfd has ended.
pub(crate) fn has_ended(pidfd: &OwnedFd) -> bool {
    sys::has_ended(pidfd.as_raw_fd())
}
