//! Information about this machine and its processes on systems without Linux's `/proc`.
//!
//! There are no PID namespaces. If the system has a boot id, it identifies runs of an earlier boot. Otherwise, start
//! times still distinguish their processes.

use std::io;

use crate::Pid;

use super::pid_scope::PidScope;

/// Why custody cannot work in the caller's environment. Here it always can.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PidScopeError {}

impl PidScope {
    #[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux; all systems share the callers")]
    pub(crate) fn here() -> Result<Self, PidScopeError> {
        Ok(Self { boot: boot().unwrap_or_default(), pidns: 0 })
    }

    /// Returns true: there is only one PID namespace.
    #[expect(clippy::unused_self, reason = "on Linux it depends on the namespace")]
    pub(crate) fn sees_all(self) -> bool {
        true
    }
}

/// Returns no pids, because no portable call lists all processes.
#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux; all systems share the callers")]
pub(crate) fn all_pids() -> io::Result<Vec<Pid>> {
    Ok(Vec::new())
}

#[cfg(target_os = "linux")]
fn boot() -> Option<[u8; 16]> {
    uuid_of(&std::fs::read("/proc/sys/kernel/random/boot_id").ok()?)
}

#[cfg(target_os = "macos")]
fn boot() -> Option<[u8; 16]> {
    let mut text = [0u8; 64];
    let mut size = text.len();
    // SAFETY: a NUL-terminated name, a buffer of the size that the call gets; nothing is set.
    let answer = unsafe {
        libc::sysctlbyname(
            c"kern.bootsessionuuid".as_ptr(),
            text.as_mut_ptr().cast(),
            &raw mut size,
            std::ptr::null_mut(),
            0,
        )
    };
    uuid_of(text.get(..size).filter(|_| answer == 0)?)
}

/// Returns no id. FreeBSD only has the time of its boot, which changes when the clock is set.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn boot() -> Option<[u8; 16]> {
    None
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
fn uuid_of(text: &[u8]) -> Option<[u8; 16]> {
    let text = std::str::from_utf8(text).ok()?.trim_matches(['\n', '\0']);
    uuid::Uuid::try_parse(text).ok().map(uuid::Uuid::into_bytes)
}

/// The part of `/proc/PID/stat` that is needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcStat {
    pub(crate) state: char,
}

/// Returns nothing, because no portable call shows a process's state.
#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux; all systems share the callers")]
pub(crate) fn stat(_pid: Pid) -> io::Result<Option<ProcStat>> {
    Ok(None)
}

/// Returns the command line of a process for people. It is unknown here.
pub(crate) fn command_line(_pid: Pid) -> String {
    "(command unknown)".to_owned()
}

/// Returns 0: there are no time namespaces.
#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux; all systems share the callers")]
pub(crate) fn clock_offset() -> io::Result<i64> {
    Ok(0)
}

/// Returns 0: there are no cgroups.
#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux; all systems share the callers")]
pub(crate) fn cgroups(_pid: Pid) -> io::Result<u64> {
    Ok(0)
}
