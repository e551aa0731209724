//! What the system tells of a process and of a group, for a keeper and a host without pidfds.
//!
//! Compiled into both. A start time together with a pid names a process: in clock ticks since boot on Linux, in
//! microseconds elsewhere (since boot on FreeBSD, since 1970 on macOS). Where the system does not tell it, the
//! process cannot be proven to be the recorded one, and nobody is killed on it.

use std::ffi::c_int;

/// What can be seen of a pid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    /// Nobody has it, or only the remains of somebody who has ended.
    Gone,
    /// Somebody lives who was started then.
    Started(u64),
    /// Somebody may live; when it was started cannot be seen.
    Unknown,
}

unsafe extern "C" {
    fn kill(pid: c_int, signal: c_int) -> c_int;
}

/// Looks at a pid.
pub(crate) fn at_process(pid: i32) -> Look {
    if pid <= 0 || !exists(pid) {
        return Look::Gone;
    }
    match system::state(pid) {
        Some(state) if state.ended => Look::Gone,
        Some(state) if state.start != 0 => Look::Started(state.start),
        // It may have gone between the two looks.
        Some(_) | None => {
            if exists(pid) {
                Look::Unknown
            } else {
                Look::Gone
            }
        }
    }
}

/// Whether somebody in the group lives; whoever waits to be reaped does not.
pub(crate) fn group_lives(group: i32) -> bool {
    group > 1 && exists(-group) && system::group_lives(group)
}

const ESRCH: i32 = 3;

/// Whether there is such a process, or with a negative number such a group, dead or alive.
fn exists(pid: i32) -> bool {
    // SAFETY: signal 0 only asks.
    let answer = unsafe { kill(pid, 0) };
    answer == 0 || std::io::Error::last_os_error().raw_os_error() != Some(ESRCH)
}

/// A living process, or one that waits to be reaped.
struct State {
    ended: bool,
    /// 0 where it cannot be seen.
    start: u64,
}

#[cfg(target_os = "linux")]
mod system {
    use super::State;

    pub(super) fn state(pid: i32) -> Option<State> {
        let fields = fields(pid)?;
        let start = fields.get(19)?.parse().ok()?;
        Some(State { ended: has_ended(&fields), start })
    }

    pub(super) fn group_lives(group: i32) -> bool {
        let Ok(entries) = std::fs::read_dir("/proc") else { return true };
        let group = group.to_string();
        entries
            .flatten()
            .filter_map(|entry| fields(entry.file_name().to_str()?.parse().ok()?))
            .any(|fields| fields.get(2) == Some(&group) && !has_ended(&fields))
    }

    /// The fields of `/proc/PID/stat` from the state on: the name before it may contain anything.
    fn fields(pid: i32) -> Option<Vec<String>> {
        let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        let after_name = text.iter().rposition(|byte| *byte == b')')? + 1;
        let rest = String::from_utf8_lossy(text.get(after_name..)?).into_owned();
        Some(rest.split_ascii_whitespace().map(str::to_owned).collect())
    }

    fn has_ended(fields: &[String]) -> bool {
        fields.first().is_none_or(|state| state == "Z" || state == "X")
    }
}

#[cfg(target_os = "macos")]
pub(crate) mod system {
    use std::ffi::{c_int, c_uint, c_void};

    use super::State;

    pub(crate) const PROC_PIDTBSDINFO: c_int = 3;
    pub(crate) const PROC_PGRP_ONLY: c_uint = 2;
    pub(crate) const SZOMB: u32 = 5;
    /// The size of `struct proc_bsdinfo`, and where it has the state and the two halves of the start time.
    pub(crate) const INFO_SIZE: usize = 136;
    pub(crate) const STATUS_AT: usize = 4;
    pub(crate) const START_SECONDS_AT: usize = 120;
    pub(crate) const START_MICROS_AT: usize = 128;

    unsafe extern "C" {
        fn proc_pidinfo(pid: c_int, flavor: c_int, arg: u64, buffer: *mut c_void, size: c_int) -> c_int;
        fn proc_listpids(kind: c_uint, of: c_uint, buffer: *mut c_void, size: c_int) -> c_int;
    }

    pub(super) fn state(pid: i32) -> Option<State> {
        let mut info = [0u8; INFO_SIZE];
        // SAFETY: the buffer has the size that the call is told.
        let size =
            unsafe { proc_pidinfo(pid, PROC_PIDTBSDINFO, 0, info.as_mut_ptr().cast(), INFO_SIZE as c_int) };
        if size != INFO_SIZE as c_int {
            // Whoever waits to be reaped can be signalled, but is not found here.
            let not_found = std::io::Error::last_os_error().raw_os_error() == Some(super::ESRCH);
            return not_found.then_some(State { ended: true, start: 0 });
        }
        let number = |at: usize| u64::from_ne_bytes(info[at..at + 8].try_into().unwrap_or_default());
        let status = u32::from_ne_bytes(info[STATUS_AT..STATUS_AT + 4].try_into().unwrap_or_default());
        Some(State {
            ended: status == SZOMB,
            start: number(START_SECONDS_AT) * 1_000_000 + number(START_MICROS_AT),
        })
    }

    pub(super) fn group_lives(group: i32) -> bool {
        let mut pids = [0i32; 1024];
        let size = size_of_val(&pids) as c_int;
        // SAFETY: the buffer has the size that the call is told.
        let filled =
            unsafe { proc_listpids(PROC_PGRP_ONLY, group.cast_unsigned(), pids.as_mut_ptr().cast(), size) };
        let Ok(filled) = usize::try_from(filled) else { return true };
        let members = &pids[..(filled / size_of::<i32>()).min(pids.len())];
        // A process that cannot be looked at is not known to have ended.
        members.iter().any(|pid| *pid > 0 && super::at_process(*pid) != super::Look::Gone)
    }
}

#[cfg(target_os = "freebsd")]
pub(crate) mod system {
    use std::ffi::{c_int, c_uint, c_void};

    use super::State;

    pub(crate) const CTL_KERN: c_int = 1;
    pub(crate) const KERN_PROC: c_int = 14;
    pub(crate) const KERN_BOOTTIME: c_int = 21;
    pub(crate) const KERN_PROC_PID: c_int = 1;
    pub(crate) const KERN_PROC_PGRP: c_int = 2;
    pub(crate) const SZOMB: u8 = 5;
    /// The size of `struct kinfo_proc`, and where it has the state and the start time.
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

    /// Fills the buffer; gives back how much of it, or `None` if the system refuses or has more to tell.
    fn ask(name: &[c_int], buffer: &mut [u8]) -> Option<usize> {
        let mut size = buffer.len();
        // SAFETY: name and buffer have the lengths that the call is told; nothing is set.
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

    /// A `struct timeval` in microseconds.
    fn micros(bytes: &[u8]) -> u64 {
        let number = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        number(0).wrapping_mul(1_000_000).wrapping_add(number(8))
    }

    pub(super) fn state(pid: i32) -> Option<State> {
        let mut info = [0u8; INFO_SIZE];
        if ask(&[CTL_KERN, KERN_PROC, KERN_PROC_PID, pid], &mut info)? != INFO_SIZE {
            return None;
        }
        // The system adds the time of its boot, which moves when the clock is set.
        let mut boot = [0u8; 16];
        let start = match ask(&[CTL_KERN, KERN_BOOTTIME], &mut boot) {
            Some(16) => micros(&info[START_AT..]).wrapping_sub(micros(&boot)),
            _ => 0,
        };
        Some(State { ended: info[STAT_AT] == SZOMB, start })
    }

    pub(super) fn group_lives(group: i32) -> bool {
        let mut infos = vec![0u8; INFO_SIZE * 256];
        match ask(&[CTL_KERN, KERN_PROC, KERN_PROC_PGRP, group], &mut infos) {
            Some(size) => infos[..size].chunks_exact(INFO_SIZE).any(|info| info[STAT_AT] != SZOMB),
            // More than there is room for, or not to be seen: nobody knows that they have ended.
            None => true,
        }
    }
}
