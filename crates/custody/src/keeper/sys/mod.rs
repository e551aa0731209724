//! The system calls of keeper and shim that std does not offer.
//!
//! Owns all unsafe code of the keeper. The keeper is built from std alone, so the functions of libc that it needs are
//! declared here, behind thin, safe wrappers. It must not know what a call is for.
//!
//! `clone` (creating processes) → `process` (signals and waiting) → `socket` (packets, polling). `shared` has what the
//! portable keeper calls, too, and this file has the rest.

mod clone;
mod process;
mod shared;
mod socket;

pub(crate) use clone::*;
pub(crate) use process::*;
pub(crate) use shared::*;
pub(crate) use socket::*;

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

pub(crate) const EPERM: i32 = 1;
pub(crate) const EAGAIN: i32 = 11;
pub(crate) const ECHILD: i32 = 10;
pub(crate) const EINVAL: i32 = 22;
pub(crate) const ENFILE: i32 = 23;
pub(crate) const EMFILE: i32 = 24;
pub(crate) const EPIPE: i32 = 32;
pub(crate) const ENOSYS: i32 = 38;
pub(crate) const EPROTO: i32 = 71;
pub(crate) const ECONNRESET: i32 = 104;

pub(crate) const MS_NOSUID: c_ulong = 2;
pub(crate) const MS_NODEV: c_ulong = 4;
pub(crate) const MS_NOEXEC: c_ulong = 8;
pub(crate) const MS_REC: c_ulong = 0x4000;
pub(crate) const MS_SLAVE: c_ulong = 1 << 19;

pub(crate) const RLIMIT_NOFILE: c_int = 7;

const SYS_CLOSE_RANGE: c_long = 436;

#[repr(C)]
struct RlimitPair {
    soft: u64,
    hard: u64,
}

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn fcntl(fd: c_int, command: c_int, arg: c_int) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn getrlimit(resource: c_int, limit: *mut RlimitPair) -> c_int;
    fn setrlimit(resource: c_int, limit: *const RlimitPair) -> c_int;
    fn setpriority(which: c_int, who: c_uint, nice: c_int) -> c_int;
    fn mount(
        source: *const c_char,
        target: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_void,
    ) -> c_int;
    fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    fn renameat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char) -> c_int;
    fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
    fn mkdirat(dir: c_int, path: *const c_char, mode: c_uint) -> c_int;
}

fn check_long(result: c_long) -> Result<c_long> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result) }
}

/// Returns the system's number for an error.
pub(crate) fn errno(error: &Error) -> i32 {
    error.raw_os_error().unwrap_or(EPROTO)
}

/// Repeats a call that a signal interrupted.
fn retry<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn owned(fd: c_int) -> OwnedFd {
    // SAFETY: every caller passes a descriptor that the kernel has just made for it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Closes every descriptor from 3 on except `keep`.
pub(crate) fn close_all_except(keep: &mut [RawFd]) -> Result<()> {
    keep.sort_unstable();
    let mut from = 3u32;
    for fd in keep.iter().map(|fd| *fd as u32).chain([u32::MAX]) {
        if fd > from {
            let to = if fd == u32::MAX { u32::MAX } else { fd - 1 };
            // SAFETY: integers; no code that still runs owns a descriptor in the range.
            match check_long(unsafe { syscall(SYS_CLOSE_RANGE, from, to, 0) }) {
                Err(error) if matches!(errno(&error), ENOSYS | EPERM) => return close_one_by_one(keep),
                result => result?,
            };
        }
        from = from.max(fd.saturating_add(1));
    }
    Ok(())
}

/// Does the same on systems without `close_range`. `keep` is sorted.
fn close_one_by_one(keep: &[RawFd]) -> Result<()> {
    let open: Vec<RawFd> = match std::fs::read_dir("/proc/self/fd") {
        Ok(entries) => {
            entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
        }
        // No descriptor is above the limit, because the keeper has only ever raised the limit.
        Err(_) => (3..rlimit(RLIMIT_NOFILE)?.0.min(1 << 20) as RawFd).collect(),
    };
    for fd in open.into_iter().filter(|fd| *fd >= 3 && keep.binary_search(fd).is_err()) {
        // SAFETY: an integer; as above. The descriptor of the directory that was read is already closed, and closing it
        // again does no harm.
        unsafe { close(fd) };
    }
    Ok(())
}

/// Duplicates a descriptor to a number at or above `from`. The copy closes on exec.
pub(crate) fn duplicate_above(fd: RawFd, from: RawFd) -> Result<RawFd> {
    const F_DUPFD_CLOEXEC: c_int = 1030;
    // SAFETY: integers.
    check(unsafe { fcntl(fd, F_DUPFD_CLOEXEC, from) })
}

pub(crate) fn rlimit(resource: c_int) -> Result<(u64, u64)> {
    let mut pair = RlimitPair { soft: 0, hard: 0 };
    // SAFETY: the result lives through the call.
    check(unsafe { getrlimit(resource, &raw mut pair) })?;
    Ok((pair.soft, pair.hard))
}

pub(crate) fn set_rlimit(resource: c_int, soft: u64, hard: u64) -> Result<()> {
    let pair = RlimitPair { soft, hard };
    // SAFETY: the pair lives through the call.
    check(unsafe { setrlimit(resource, &raw const pair) })?;
    Ok(())
}

pub(crate) fn set_nice(nice: c_int) -> Result<()> {
    const PRIO_PROCESS: c_int = 0;
    // SAFETY: integers.
    check(unsafe { setpriority(PRIO_PROCESS, 0, nice) })?;
    Ok(())
}

pub(crate) fn mount_at(source: &CStr, target: &CStr, kind: &CStr, flags: c_ulong) -> Result<()> {
    // SAFETY: NUL-terminated strings; no data.
    check(unsafe { mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) })?;
    Ok(())
}

pub(crate) const O_WRONLY: c_int = 1;
pub(crate) const O_RDONLY: c_int = 0;
pub(crate) const O_RDWR: c_int = 2;
pub(crate) const O_CREAT: c_int = 0o100;
pub(crate) const O_TRUNC: c_int = 0o1000;
const O_CLOEXEC: c_int = 0o2_000_000;

pub(crate) fn open_at(dir: RawFd, path: &CStr, flags: c_int) -> Result<OwnedFd> {
    // SAFETY: a NUL-terminated string and integers.
    Ok(owned(retry(|| check(unsafe { openat(dir, path.as_ptr(), flags | O_CLOEXEC, 0o600) }))?))
}

pub(crate) fn rename_at(dir: RawFd, from: &CStr, to: &CStr) -> Result<()> {
    // SAFETY: NUL-terminated strings and integers.
    check(unsafe { renameat(dir, from.as_ptr(), dir, to.as_ptr()) })?;
    Ok(())
}

/// Renames a directory, unless the new name exists.
pub(crate) fn rename_if_free(from: &CStr, to: &CStr) -> Result<()> {
    const AT_FDCWD: c_int = -100;
    const RENAME_NOREPLACE: c_uint = 1;
    #[cfg(target_arch = "x86_64")]
    const SYS_RENAMEAT2: c_long = 316;
    #[cfg(not(target_arch = "x86_64"))]
    const SYS_RENAMEAT2: c_long = 276;
    let (from, to) = (from.as_ptr(), to.as_ptr());
    // SAFETY: NUL-terminated strings that live through the call, and integers.
    check_long(unsafe { syscall(SYS_RENAMEAT2, AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) })?;
    Ok(())
}

pub(crate) fn unlink_at(dir: RawFd, path: &CStr) -> Result<()> {
    // SAFETY: a NUL-terminated string and integers.
    check(unsafe { unlinkat(dir, path.as_ptr(), 0) })?;
    Ok(())
}

pub(crate) fn make_dir_at(dir: RawFd, path: &CStr) -> Result<()> {
    // SAFETY: a NUL-terminated string and integers.
    check(unsafe { mkdirat(dir, path.as_ptr(), 0o755) })?;
    Ok(())
}

pub(crate) fn remove_dir_at(dir: RawFd, path: &CStr) -> Result<()> {
    const AT_REMOVEDIR: c_int = 0x200;
    // SAFETY: a NUL-terminated string and integers.
    check(unsafe { unlinkat(dir, path.as_ptr(), AT_REMOVEDIR) })?;
    Ok(())
}
