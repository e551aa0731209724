//! gVisor: not a filter but a separate kernel, as Docker starts it with `--runtime=runsc`.
//!
//! From google/gvisor, `pkg/sentry/syscalls/linux/linux64.go`, at the commit 02c06d48776e. It has pidfds, `clone3` and
//! `close_range`, which it lacked until 2023 (see `old_kernel`). It has no ioctl of pidfds (its issue 13176) and no
//! pidfs (13178). A filter cannot take pidfs away. Docker's seccomp profile is not applied inside.

use libc::{ENOSYS, ENOTTY, EOPNOTSUPP, SYS_ioctl, SYS_name_to_handle_at, SYS_open_by_handle_at};

use super::{CgroupView, FOURTEEN, Privileges, ProcView, Profile, SyscallArgument, SyscallRefusal};

pub(super) const PROFILE: Profile = Profile {
    name: "gvisor",
    refusals: &[
        SyscallRefusal::Calls(ENOSYS, MISSING),
        SyscallRefusal::Above(ENOSYS, NEWEST),
        SyscallRefusal::Calls(EOPNOTSUPP, &[SYS_name_to_handle_at, SYS_open_by_handle_at]),
        // Requests of the family 0xFF are those of pidfds.
        SyscallRefusal::AllBits(ENOTTY, SYS_ioctl, SyscallArgument(1, 0xFF00)),
    ],
    capabilities: FOURTEEN,
    privileges: Privileges::CanGrow,
    proc: ProcView::Whole,
    cgroups: CgroupView::Absent,
};

/// `epoll_pwait2`.
const NEWEST: libc::c_long = 441;

/// Calls that gVisor lacks.
const MISSING: &[libc::c_long] = &[
    libc::SYS_copy_file_range,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    libc::SYS_fspick,
    libc::SYS_io_uring_register,
    libc::SYS_mq_getsetattr,
    libc::SYS_mq_notify,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_timedsend,
    libc::SYS_pkey_alloc,
    libc::SYS_pkey_free,
    libc::SYS_pkey_mprotect,
    libc::SYS_remap_file_pages,
    libc::SYS_setfsgid,
    libc::SYS_setfsuid,
    libc::SYS_userfaultfd,
    libc::SYS_vmsplice,
    libc::SYS_process_madvise,
];
