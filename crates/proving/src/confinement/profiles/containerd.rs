//! containerd's default profile for a container without `CAP_SYS_ADMIN`: Kubernetes with `RuntimeDefault`.
//!
//! The calls are those of containerd/containerd, `contrib/seccomp/seccomp_default.go`, at the commit 96929a5d3102. The
//! covered paths are those of its `pkg/oci/spec.go`. runc returns ENOSYS for calls that are newer than the profile.

use libc::{ENOSYS, EPERM, SYS_clone, SYS_clone3};

use super::{
    CgroupView, FOURTEEN, NAMESPACES, OLD_CALLS, PERSONALITIES, Privileges, ProcView, Profile,
    SyscallArgument, SyscallRefusal,
};

pub(super) const PROFILE: Profile = Profile {
    name: "containerd",
    refusals: &[
        SyscallRefusal::Calls(EPERM, REFUSED),
        SyscallRefusal::Calls(EPERM, OLD_CALLS),
        SyscallRefusal::AnyBit(EPERM, SYS_clone, SyscallArgument(0, NAMESPACES)),
        SyscallRefusal::Calls(ENOSYS, &[SYS_clone3]),
        SyscallRefusal::Above(ENOSYS, NEWEST),
        PERSONALITIES,
    ],
    capabilities: FOURTEEN,
    privileges: Privileges::CanGrow,
    proc: ProcView::Masked,
    cgroups: CgroupView::ReadOnly,
};

/// `futex_waitv`.
const NEWEST: libc::c_long = 449;

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
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_pkey_alloc,
    libc::SYS_pkey_free,
    libc::SYS_pkey_mprotect,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_set_mempolicy,
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
