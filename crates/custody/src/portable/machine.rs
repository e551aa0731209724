//! What is true of this machine, and what can be said of a process to people.
//!
//! There are no PID namespaces here. Where the system names its boot, a run of another boot is known as such;
//! where it does not, the start times tell its processes apart all the same.

use std::io;

use crate::Pid;

/// The place in which a pid means something: one boot of one machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) boot: [u8; 16],
    pub(crate) pidns: u64,
}

/// Why custody cannot work where the caller is; there is no such place here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {}

impl Place {
    #[expect(clippy::unnecessary_wraps, reason = "on Linux it can fail, and callers are the same")]
    pub(crate) fn here() -> Result<Self, PlaceError> {
        Ok(Self { boot: boot().unwrap_or_default(), pidns: 0 })
    }

    /// There is but one PID namespace.
    #[expect(clippy::unused_self, reason = "on Linux it depends on the place")]
    pub(crate) fn sees_all(self) -> bool {
        true
    }
}

/// There is no list of processes that would be the same on all systems.
#[expect(clippy::unnecessary_wraps, reason = "on Linux it can fail, and callers are the same")]
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
    // SAFETY: a NUL-terminated name, a buffer of the size that the call is told; nothing is set.
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

/// FreeBSD tells only the time of its boot, which moves when the clock is set.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn boot() -> Option<[u8; 16]> {
    None
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
fn uuid_of(text: &[u8]) -> Option<[u8; 16]> {
    let text = std::str::from_utf8(text).ok()?.trim_matches(['\n', '\0']);
    uuid::Uuid::try_parse(text).ok().map(uuid::Uuid::into_bytes)
}

/// What `/proc` would tell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stat {
    pub(crate) state: char,
}

/// Nothing is known of a process's state that would be the same on all systems.
#[expect(clippy::unnecessary_wraps, reason = "on Linux it can fail, and callers are the same")]
pub(crate) fn stat(_pid: Pid) -> io::Result<Option<Stat>> {
    Ok(None)
}

/// What a process is called, for people: here only its number is known, which they see anyway.
pub(crate) fn command_line(_pid: Pid) -> String {
    "(command unknown)".to_owned()
}

/// There are no time namespaces.
#[expect(clippy::unnecessary_wraps, reason = "on Linux it can fail, and callers are the same")]
pub(crate) fn clock_offset() -> io::Result<i64> {
    Ok(0)
}

/// There are no cgroups.
#[expect(clippy::unnecessary_wraps, reason = "on Linux it can fail, and callers are the same")]
pub(crate) fn cgroups(_pid: Pid) -> io::Result<u64> {
    Ok(0)
}
