//! A systemd unit with the hardening that `systemd-analyze security` asks for.
//!
//! From systemd/systemd, `src/shared/seccomp-util.c` and `man/systemd.exec.xml`:
//! `SystemCallFilter=@system-service`, `~@privileged @resources`, `SystemCallErrorNumber=EPERM`, `RestrictNamespaces=yes`,
//! `RestrictRealtime=yes`, `RestrictSUIDSGID=yes`, `RestrictAddressFamilies=` with the usual four, `LockPersonality=yes`,
//! `MemoryDenyWriteExecute=yes`, `CapabilityBoundingSet=`, `NoNewPrivileges=yes`, `ProtectProc=invisible`,
//! `ProtectControlGroups=yes`, `ProtectKernelTunables=yes`. The second profile adds `ProcSubset=pid`.

use libc::{
    AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, EAFNOSUPPORT, ENOSYS, EPERM, PROT_EXEC, PROT_WRITE, S_ISGID,
    S_ISUID, SHM_EXEC, SYS_clone, SYS_clone3, SYS_fchmod, SYS_fchmodat, SYS_mmap, SYS_mprotect,
    SYS_personality, SYS_setns, SYS_shmat, SYS_socket, SYS_unshare,
};

use super::{
    CapabilitySet, CgroupView, NAMESPACES, OLD_CALLS, Privileges, ProcView, Profile, SyscallArgument,
    SyscallRefusal,
};

pub(super) const PROFILE: Profile = Profile {
    name: "systemd",
    refusals: REFUSALS,
    capabilities: CapabilitySet::NONE,
    privileges: Privileges::CannotGrow,
    proc: ProcView::Invisible,
    cgroups: CgroupView::ReadOnly,
};

pub(super) const PROCESSES_ONLY: Profile =
    Profile { name: "systemd-pid-subset", proc: ProcView::ProcessesOnly, ..PROFILE };

const REFUSALS: &[SyscallRefusal] = &[
    SyscallRefusal::Calls(EPERM, REFUSED),
    SyscallRefusal::Calls(EPERM, OLD_CALLS),
    SyscallRefusal::Calls(EPERM, OF_OTHER_NUMBERS),
    SyscallRefusal::Above(ENOSYS, NEWEST),
    // RestrictNamespaces
    SyscallRefusal::Calls(ENOSYS, &[SYS_clone3]),
    SyscallRefusal::Calls(EPERM, &[SYS_setns]),
    SyscallRefusal::AnyBit(EPERM, SYS_clone, SyscallArgument(0, NAMESPACES)),
    SyscallRefusal::AnyBit(EPERM, SYS_unshare, SyscallArgument(0, NAMESPACES)),
    // RestrictSUIDSGID
    SyscallRefusal::AnyBit(EPERM, SYS_fchmod, SyscallArgument(1, SUID_SGID)),
    SyscallRefusal::AnyBit(EPERM, SYS_fchmodat, SyscallArgument(2, SUID_SGID)),
    // RestrictAddressFamilies
    SyscallRefusal::Unless(
        EAFNOSUPPORT,
        SYS_socket,
        0,
        &[AF_UNIX as u64, AF_INET as u64, AF_INET6 as u64, AF_NETLINK as u64],
    ),
    // LockPersonality
    SyscallRefusal::Unless(EPERM, SYS_personality, 0, &[0, 0xFFFF_FFFF]),
    // MemoryDenyWriteExecute
    SyscallRefusal::AllBits(EPERM, SYS_mmap, SyscallArgument(2, (PROT_WRITE | PROT_EXEC) as u64)),
    SyscallRefusal::AllBits(EPERM, SYS_mprotect, SyscallArgument(2, PROT_EXEC as u64)),
    SyscallRefusal::AllBits(EPERM, SYS_shmat, SyscallArgument(2, SHM_EXEC as u64)),
];

const SUID_SGID: u64 = (S_ISUID | S_ISGID) as u64;

/// `file_setattr`.
const NEWEST: libc::c_long = 469;

/// Calls that the libc crate names only on this architecture.
#[cfg(target_arch = "x86_64")]
const OF_OTHER_NUMBERS: &[libc::c_long] = &[libc::SYS_chown, libc::SYS_lchown, libc::SYS_setrlimit];
#[cfg(not(target_arch = "x86_64"))]
const OF_OTHER_NUMBERS: &[libc::c_long] = &[];

/// Calls outside `@system-service`, or inside `@privileged` or `@resources`.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_acct,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_capset,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_ioprio_set,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_mbind,
    libc::SYS_memfd_secret,
    libc::SYS_migrate_pages,
    libc::SYS_mincore,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_move_pages,
    libc::SYS_open_by_handle_at,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_pkey_alloc,
    libc::SYS_pkey_free,
    libc::SYS_pkey_mprotect,
    libc::SYS_process_mrelease,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_reboot,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_set_mempolicy,
    libc::SYS_set_mempolicy_home_node,
    libc::SYS_setdomainname,
    libc::SYS_setfsuid,
    libc::SYS_setgroups,
    libc::SYS_sethostname,
    libc::SYS_setpriority,
    libc::SYS_setresuid,
    libc::SYS_setreuid,
    libc::SYS_settimeofday,
    libc::SYS_setuid,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_vhangup,
];
