//! What the system reports about a pid and a group, for a keeper and a host without pidfds. Compiled into both.
//!
//! A pid and a start time together identify a process. The start time is in clock ticks since boot on Linux, and in
//! microseconds elsewhere: since boot on FreeBSD, since 1970 on macOS. Without a start time, a process cannot be proven
//! to be the recorded one and is not killed.

use std::ffi::c_int;

/// The state of a pid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PidState {
    /// No process has the pid, or only a process that waits to be reaped.
    Gone,
    /// A living process with this start time.
    Started(u64),
    /// Perhaps a living process. Its start time cannot be seen.
    Unknown,
}

unsafe extern "C" {
    fn kill(pid: c_int, signal: c_int) -> c_int;
}

/// Returns the state of a pid.
pub(crate) fn at_process(pid: i32) -> PidState {
    if pid <= 0 || !exists(pid) {
        return PidState::Gone;
    }
    match system::state(pid) {
        Some(state) if state.ended => PidState::Gone,
        Some(state) if state.start != 0 => PidState::Started(state.start),
        // The process may have ended between the two checks.
        Some(_) | None => {
            if exists(pid) {
                PidState::Unknown
            } else {
                PidState::Gone
            }
        }
    }
}

/// Returns whether a process of the group is alive. A process that waits to be reaped is not.
pub(crate) fn group_lives(group: i32) -> bool {
    group > 1 && exists(-group) && system::group_lives(group)
}

const ESRCH: i32 = 3;

/// Returns whether there is such a process or, for a negative number, such a group, dead or alive.
fn exists(pid: i32) -> bool {
    // SAFETY: signal 0 only checks for existence.
    let answer = unsafe { kill(pid, 0) };
    answer == 0 || std::io::Error::last_os_error().raw_os_error() != Some(ESRCH)
}

/// A living process, or one that waits to be reaped.
struct ProcessInfo {
    ended: bool,
    /// The start time; 0 if it cannot be seen.
    start: u64,
}

#[cfg(target_os = "linux")]
#[path = "../process/proc_stat.rs"]
mod proc_stat;

#[cfg(target_os = "linux")]
mod system {
    use super::ProcessInfo;
    use super::proc_stat::ProcStat;

    pub(super) fn state(pid: i32) -> Option<ProcessInfo> {
        let stat = stat(pid)?;
        Some(ProcessInfo { ended: stat.has_ended(), start: stat.start })
    }

    pub(super) fn group_lives(group: i32) -> bool {
        let Ok(entries) = std::fs::read_dir("/proc") else { return true };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(stat).any(|stat| stat.group == group && !stat.has_ended())
    }

    fn stat(pid: i32) -> Option<ProcStat> {
        ProcStat::parse(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
    }
}

#[cfg(target_os = "macos")]
pub(crate) mod system {
    use std::ffi::{c_int, c_uint, c_void};

    use super::ProcessInfo;

    pub(crate) const PROC_PIDTBSDINFO: c_int = 3;
    pub(crate) const PROC_PGRP_ONLY: c_uint = 2;
    pub(crate) const SZOMB: u32 = 5;
    /// The size of `struct proc_bsdinfo`, and the offsets of the state and of the two halves of the start time.
    pub(crate) const INFO_SIZE: usize = 136;
    pub(crate) const STATUS_AT: usize = 4;
    pub(crate) const START_SECONDS_AT: usize = 120;
    pub(crate) const START_MICROS_AT: usize = 128;

    unsafe extern "C" {
        fn proc_pidinfo(pid: c_int, flavor: c_int, arg: u64, buffer: *mut c_void, size: c_int) -> c_int;
        fn proc_listpids(kind: c_uint, of: c_uint, buffer: *mut c_void, size: c_int) -> c_int;
    }

    pub(super) fn state(pid: i32) -> Option<ProcessInfo> {
        let mut info = [0u8; INFO_SIZE];
        // SAFETY: the buffer has the size that the call gets.
        let size =
            unsafe { proc_pidinfo(pid, PROC_PIDTBSDINFO, 0, info.as_mut_ptr().cast(), INFO_SIZE as c_int) };
        if size != INFO_SIZE as c_int {
            // A process that waits to be reaped can be signalled, but this call does not find it.
            let not_found = std::io::Error::last_os_error().raw_os_error() == Some(super::ESRCH);
            return not_found.then_some(ProcessInfo { ended: true, start: 0 });
        }
        let number = |at: usize| u64::from_ne_bytes(info[at..at + 8].try_into().unwrap_or_default());
        let status = u32::from_ne_bytes(info[STATUS_AT..STATUS_AT + 4].try_into().unwrap_or_default());
        Some(ProcessInfo {
            ended: status == SZOMB,
            start: number(START_SECONDS_AT) * 1_000_000 + number(START_MICROS_AT),
        })
    }

    pub(super) fn group_lives(group: i32) -> bool {
        let mut pids = [0i32; 1024];
        let size = size_of_val(&pids) as c_int;
        // SAFETY: the buffer has the size that the call gets.
        let filled =
            unsafe { proc_listpids(PROC_PGRP_ONLY, group.cast_unsigned(), pids.as_mut_ptr().cast(), size) };
        let Ok(filled) = usize::try_from(filled) else { return true };
        let members = &pids[..(filled / size_of::<i32>()).min(pids.len())];
        // A process whose state is unknown may be alive.
        members.iter().any(|pid| *pid > 0 && super::at_process(*pid) != super::PidState::Gone)
    }
}

#[cfg(target_os = "freebsd")]
pub(crate) mod system {
    use std::ffi::{c_int, c_uint, c_void};

    use super::ProcessInfo;

    pub(crate) const CTL_KERN: c_int = 1;
    pub(crate) const KERN_PROC: c_int = 14;
    pub(crate) const KERN_BOOTTIME: c_int = 21;
    pub(crate) const KERN_PROC_PID: c_int = 1;
    pub(crate) const KERN_PROC_PGRP: c_int = 2;
    pub(crate) const SZOMB: u8 = 5;
    /// The size of `struct kinfo_proc`, and the offsets of the state and of the start time.
    pub(crate) const INFO_SIZE: usize = 1088;
    pub(crate) const START_AT: usize = 336;
    pub(crate) const STAT_AT: usize = 388;

    unsafe extern "C" {
        fn sysctl(
            name: *const c_int,
            name_len: c_uint,
            old: *mut c_void,
            old_len: *mut usize,
            new: *const c_void,
            new_len: usize,
        ) -> c_int;
    }

    /// Fills the buffer. Returns the number of bytes, or `None` if the system refuses or the buffer is too small.
    fn ask(name: &[c_int], buffer: &mut [u8]) -> Option<usize> {
        let mut size = buffer.len();
        // SAFETY: name and buffer have the lengths that the call gets; nothing is set.
        let answer = unsafe {
            sysctl(
                name.as_ptr(),
                name.len() as c_uint,
                buffer.as_mut_ptr().cast(),
                &raw mut size,
                std::ptr::null(),
                0,
            )
        };
        (answer == 0).then_some(size)
    }

    /// Converts a `struct timeval` to microseconds.
    fn micros(bytes: &[u8]) -> u64 {
        let number = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        number(0).wrapping_mul(1_000_000).wrapping_add(number(8))
    }

    pub(super) fn state(pid: i32) -> Option<ProcessInfo> {
        let mut info = [0u8; INFO_SIZE];
        if ask(&[CTL_KERN, KERN_PROC, KERN_PROC_PID, pid], &mut info)? != INFO_SIZE {
            return None;
        }
        // The system adds the time of its boot, which changes when the clock is set. So subtract it.
        let mut boot = [0u8; 16];
        let start = match ask(&[CTL_KERN, KERN_BOOTTIME], &mut boot) {
            Some(16) => micros(&info[START_AT..]).wrapping_sub(micros(&boot)),
            _ => 0,
        };
        Some(ProcessInfo { ended: info[STAT_AT] == SZOMB, start })
    }

    pub(super) fn group_lives(group: i32) -> bool {
        let mut infos = vec![0u8; INFO_SIZE * 256];
        match ask(&[CTL_KERN, KERN_PROC, KERN_PROC_PGRP, group], &mut infos) {
            Some(size) => infos[..size].chunks_exact(INFO_SIZE).any(|info| info[STAT_AT] != SZOMB),
            // There are too many members, or they are not visible. They may be alive.
            None => true,
        }
    }
}
