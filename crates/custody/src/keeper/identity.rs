//! The identity of processes: the data that the ledger records beside a pid.

use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;

use crate::proc_stat::ProcStat;
use crate::record::ProcessIdentity;
use crate::sys;

/// Reads identities in the same way as the host; see `identity.rs` of the library.
pub(crate) struct Identities {
    pub(crate) pidfs: bool,
    pub(crate) clock_offset: u64,
}

impl Identities {
    /// Returns the identity of the process behind a pidfd. The process must not have been reaped.
    pub(crate) fn read(&self, pid: i32, pidfd: &OwnedFd) -> Result<ProcessIdentity> {
        Ok(ProcessIdentity { start: self.start(pid)?, ..self.read_briefly(pid, pidfd)? })
    }

    /// Like [`Self::read`], but without the start time if there is an inode. Opening `/proc/PID` costs time twice: now,
    /// and when the process is reaped.
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

/// Returns the pid, in the caller's PID namespace, of the process behind a pidfd.
pub(crate) fn pid_of(pidfd: RawFd) -> Result<i32> {
    if let Some(pid) = sys::pidfd_pid(pidfd) {
        return Ok(pid);
    }
    // Kernels before Linux 6.13 show the pid only here.
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{pidfd}"))?;
    info.lines()
        .find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok())
        .filter(|pid| *pid > 0)
        .ok_or_else(|| Error::from_raw_os_error(sys::EPROTO))
}

fn inode(pidfd: &OwnedFd) -> Option<u64> {
    Some(File::from(pidfd.try_clone().ok()?).metadata().ok()?.ino())
}

/// Returns what `/proc` shows about a process, or `None` if there is no such process.
pub(crate) fn read_stat(pid: i32) -> Option<ProcStat> {
    ProcStat::parse(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// Opens a pidfd of the calling process.
pub(crate) fn own_pidfd() -> Result<OwnedFd> {
    sys::pidfd_open(sys::pid())
}

/// Reports whether the process behind a pidfd has ended.
pub(crate) fn has_ended(pidfd: &OwnedFd) -> bool {
    sys::has_ended(pidfd.as_raw_fd())
}
