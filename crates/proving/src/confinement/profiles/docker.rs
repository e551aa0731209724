//! Docker's default profile for a container without `CAP_SYS_ADMIN`.
//!
//! The calls are those of moby/profiles, `seccomp/default_linux.go`, as of 2026. The covered paths are those of
//! moby/moby, `daemon/pkg/oci/defaults.go`. runc returns ENOSYS instead of the profile's EPERM for calls that are newer
//! than the profile.

use libc::{AF_ALG, AF_VSOCK, ENOSYS, EPERM, SYS_clone, SYS_clone3, SYS_socket};

use super::{
    CgroupView, FOURTEEN, NAMESPACES, OLD_CALLS, PERSONALITIES, Privileges, ProcView, Profile,
    SyscallArgument, SyscallRefusal,
};

pub(super) const PROFILE: Profile = Profile {
    name: "docker",
    refusals: &[
        SyscallRefusal::Calls(EPERM, REFUSED),
        SyscallRefusal::Calls(EPERM, OLD_CALLS),
        SyscallRefusal::AnyBit(EPERM, SYS_clone, SyscallArgument(0, NAMESPACES)),
        // A C library concludes that the kernel is old and falls back to clone, whose flags the filter can see.
        SyscallRefusal::Calls(ENOSYS, &[SYS_clone3]),
        SyscallRefusal::Above(ENOSYS, NEWEST),
        SyscallRefusal::OneOf(EPERM, SYS_socket, 0, &[AF_ALG as u64, AF_VSOCK as u64]),
        PERSONALITIES,
    ],
    capabilities: FOURTEEN,
    privileges: Privileges::CanGrow,
    proc: ProcView::Masked,
    cgroups: CgroupView::ReadOnly,
};

/// `removexattrat`.
const NEWEST: libc::c_long = 466;

/// Calls that are refused, whatever their arguments.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_get_mempolicy,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mbind,
    libc::SYS_migrate_pages,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_move_pages,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_set_mempolicy,
    libc::SYS_set_mempolicy_home_node,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];
