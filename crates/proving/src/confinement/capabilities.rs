//! What root may still do: the bounding set, which limits every program that is executed from here on.

use std::io;

/// A set of capabilities, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CapabilitySet(u64);

/// The kernel's numbers of the capabilities that a profile names.
pub(super) mod number {
    pub(in super::super) const CHOWN: u32 = 0;
    pub(in super::super) const DAC_OVERRIDE: u32 = 1;
    pub(in super::super) const FOWNER: u32 = 3;
    pub(in super::super) const FSETID: u32 = 4;
    pub(in super::super) const KILL: u32 = 5;
    pub(in super::super) const SETGID: u32 = 6;
    pub(in super::super) const SETUID: u32 = 7;
    pub(in super::super) const SETPCAP: u32 = 8;
    pub(in super::super) const NET_BIND_SERVICE: u32 = 10;
    pub(in super::super) const NET_RAW: u32 = 13;
    pub(in super::super) const SYS_CHROOT: u32 = 18;
    pub(in super::super) const MKNOD: u32 = 27;
    pub(in super::super) const AUDIT_WRITE: u32 = 29;
    pub(in super::super) const SETFCAP: u32 = 31;
}

impl CapabilitySet {
    /// No capability.
    pub const NONE: Self = Self(0);
    /// All capabilities of the caller.
    pub const ALL: Self = Self(u64::MAX);

    /// Returns a set of exactly these numbers.
    pub const fn of(numbers: &[u32]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < numbers.len() {
            bits |= 1 << numbers[index];
            index += 1;
        }
        Self(bits)
    }

    fn has(self, number: u32) -> bool {
        self.0 & (1 << number) != 0
    }
}

/// The first argument of `capset`.
#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

/// Thirty-two capabilities. `capset` takes two of them.
#[repr(C)]
#[derive(Clone, Copy)]
struct CapabilityHalf {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const VERSION_3: u32 = 0x2008_0522;

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Gives up all other capabilities for good.
pub(super) fn keep_only(kept: CapabilitySet) -> io::Result<()> {
    if kept == CapabilitySet::ALL {
        return Ok(());
    }
    // The kernel returns EINVAL after the last capability.
    for number in 0..64 {
        // SAFETY: integers.
        if unsafe { libc::prctl(libc::PR_CAPBSET_READ, number, 0, 0, 0) } < 0 {
            break;
        }
        if !kept.has(number) {
            // SAFETY: integers.
            check(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) }.into())?;
        }
    }
    let half = |bits: u64| CapabilityHalf { effective: bits as u32, permitted: bits as u32, inheritable: 0 };
    let halves = [half(kept.0), half(kept.0 >> 32)];
    let header = CapabilityHeader { version: VERSION_3, pid: 0 };
    // SAFETY: both structures have the kernel's layout and live through the call.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const header, &raw const halves) })
}

/// Sets `no_new_privs`.
pub(super) fn gain_no_more() -> io::Result<()> {
    // SAFETY: integers.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())
}
