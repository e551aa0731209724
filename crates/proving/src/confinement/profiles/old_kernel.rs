//! A kernel without pidfds: Linux before 5.1, gVisor before the end of 2023.
//!
//! All numbers from `pidfd_send_signal` on are newer: pidfds, `clone3`, `close_range`, the calls for mounts. A clone
//! that asks for a pidfd gets EINVAL, as from gVisor. Old Linux ignores the flag.

use libc::{CLONE_PIDFD, EINVAL, ENOSYS, SYS_clone};

use super::{CapabilitySet, CgroupView, Privileges, ProcView, Profile, SyscallArgument, SyscallRefusal};

pub(super) const PROFILE: Profile = Profile {
    name: "old-kernel",
    refusals: &[
        SyscallRefusal::Above(ENOSYS, NEWEST),
        SyscallRefusal::AllBits(EINVAL, SYS_clone, SyscallArgument(0, CLONE_PIDFD as u64)),
    ],
    capabilities: CapabilitySet::ALL,
    privileges: Privileges::CanGrow,
    proc: ProcView::Whole,
    cgroups: CgroupView::Absent,
};

/// The last number before `pidfd_send_signal`, from which on all architectures use the same numbers.
const NEWEST: libc::c_long = 423;
