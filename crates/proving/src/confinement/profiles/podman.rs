//! Podman's default profile.
//!
//! The calls are those of containers/common, `pkg/seccomp/seccomp.json`, at the commit 08bbb0dfae71. The capabilities
//! are those of its `pkg/config/default.go`. Unlike Docker's profile, it allows `clone3`, `unshare` and `mount`, and
//! returns ENOSYS for unknown calls. The kernel decides whether a namespace can be created. A covered `/proc` prevents
//! mounting another one.

use libc::{ENOSYS, EPERM};

use super::{
    CapabilitySet, CgroupView, OLD_CALLS, PERSONALITIES, Privileges, ProcView, Profile, SyscallRefusal,
    number,
};

pub(super) const PROFILE: Profile = Profile {
    name: "podman",
    refusals: &[
        SyscallRefusal::Calls(EPERM, REFUSED),
        SyscallRefusal::Calls(EPERM, OLD_CALLS),
        SyscallRefusal::Calls(ENOSYS, UNKNOWN),
        SyscallRefusal::Above(ENOSYS, NEWEST),
        PERSONALITIES,
    ],
    capabilities: CapabilitySet::of(&[
        number::CHOWN,
        number::DAC_OVERRIDE,
        number::FOWNER,
        number::FSETID,
        number::KILL,
        number::NET_BIND_SERVICE,
        number::SETFCAP,
        number::SETGID,
        number::SETPCAP,
        number::SETUID,
        number::SYS_CHROOT,
    ]),
    privileges: Privileges::CanGrow,
    proc: ProcView::Masked,
    cgroups: CgroupView::ReadOnly,
};

/// `epoll_pwait2`.
const NEWEST: libc::c_long = 441;

/// Calls that the profile knows and refuses.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_acct,
    libc::SYS_bpf,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_get_mempolicy,
    libc::SYS_init_module,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_mbind,
    libc::SYS_membarrier,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_open_by_handle_at,
    libc::SYS_perf_event_open,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_set_mempolicy,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
    libc::SYS_vmsplice,
];

/// Calls that the profile does not know.
const UNKNOWN: &[libc::c_long] = &[
    libc::SYS_add_key,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_request_key,
];
