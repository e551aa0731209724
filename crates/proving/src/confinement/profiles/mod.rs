//! The profiles, one file each, and what several of them share.

mod containerd;
mod docker;
mod gvisor;
mod old_kernel;
mod podman;
mod systemd;

use libc::{
    CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, CLONE_NEWUTS,
    EPERM, SYS_personality,
};

use super::capabilities::{CapabilitySet, number};
use super::filter::SyscallArgument;
use super::{CgroupView, Privileges, ProcView, Profile, SyscallRefusal};

/// All profiles.
pub const ALL: [&Profile; 7] = [
    &docker::PROFILE,
    &containerd::PROFILE,
    &podman::PROFILE,
    &gvisor::PROFILE,
    &old_kernel::PROFILE,
    &systemd::PROFILE,
    &systemd::PROCESSES_ONLY,
];

/// Every kind of namespace that `clone` can create.
const NAMESPACES: u64 = (CLONE_NEWNS
    | CLONE_NEWUTS
    | CLONE_NEWIPC
    | CLONE_NEWUSER
    | CLONE_NEWPID
    | CLONE_NEWNET
    | CLONE_NEWCGROUP) as u64;

/// The fourteen capabilities that Docker and containerd leave to root (moby/moby daemon/pkg/oci/caps/defaults.go,
/// containerd pkg/oci/spec.go).
const FOURTEEN: CapabilitySet = CapabilitySet::of(&[
    number::AUDIT_WRITE,
    number::CHOWN,
    number::DAC_OVERRIDE,
    number::FOWNER,
    number::FSETID,
    number::KILL,
    number::MKNOD,
    number::NET_BIND_SERVICE,
    number::NET_RAW,
    number::SETFCAP,
    number::SETGID,
    number::SETPCAP,
    number::SETUID,
    number::SYS_CHROOT,
]);

/// The personalities that all OCI profiles allow: those that randomize addresses, with either `uname`, and the query.
const PERSONALITIES: SyscallRefusal =
    SyscallRefusal::Unless(EPERM, SYS_personality, 0, &[0, 8, 0x2_0000, 0x2_0008, 0xFFFF_FFFF]);

/// Calls of one architecture that no profile allows, but that its kernels still implement.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[libc::c_long] = &[libc::SYS_ioperm, libc::SYS_iopl, libc::SYS_sysfs, libc::SYS_ustat];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[libc::c_long] = &[];
