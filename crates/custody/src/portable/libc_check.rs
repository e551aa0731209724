//! Compares the keeper's constants and structures with those of the libc crate at compile time.
//!
//! The keeper is built from std alone and cannot use the libc crate. If a constant or structure differs on some system,
//! the build fails here, instead of the keeper misbehaving there.

use std::mem::{align_of, offset_of, size_of};

#[path = "libc_abi.rs"]
#[expect(dead_code, reason = "the keeper uses what is only compared here")]
mod libc_abi;

use libc_abi as ours;

/// Fails the build if the numbers differ.
macro_rules! same {
    ($($name:ident),* $(,)?) => {
        $(assert!(ours::$name as i128 == libc::$name as i128, stringify!($name));)*
    };
}

/// Fails the build if the offsets of the fields differ.
macro_rules! same_places {
    ($ours:ident is $theirs:ident: $($our_field:ident is $their_field:ident),*) => {
        assert!(size_of::<ours::$ours>() == size_of::<libc::$theirs>(), stringify!($theirs));
        $(assert!(
            offset_of!(ours::$ours, $our_field) == offset_of!(libc::$theirs, $their_field),
            stringify!($theirs.$their_field)
        );)*
    };
}

const _: () = {
    assert!(cfg!(target_endian = "little") && cfg!(target_pointer_width = "64"), "64 bits, little-endian");
    same!(SIGHUP, SIGINT, SIGQUIT, SIGKILL, SIGPIPE, SIGTERM, SIGTTIN, SIGTTOU, SIGCHLD, SIGTSTP, SIGXFSZ);
    same!(WNOHANG, WEXITED, WSTOPPED, WCONTINUED, WNOWAIT, P_PID, CLD_STOPPED, CLD_CONTINUED, SIG_SETMASK);
    same!(SCM_RIGHTS, SOL_SOCKET, MSG_CTRUNC, F_DUPFD, F_SETFD, FD_CLOEXEC, PRIO_PROCESS, RLIMIT_NOFILE);
    same!(POLLIN, POLLOUT, ESRCH, EINVAL, EMFILE);
    assert!(libc::SIG_DFL == 0 && libc::SIG_IGN == 1, "signal dispositions");
    assert!(size_of::<ours::Id>() == size_of::<libc::id_t>(), "id_t");
    assert!(size_of::<ours::PollCount>() == size_of::<libc::nfds_t>(), "nfds_t");
    same_places!(IoSlice is iovec: at is iov_base, len is iov_len);
    same_places!(MessageHeader is msghdr: name is msg_name, name_len is msg_namelen, slices is msg_iov,
        slice_count is msg_iovlen, control is msg_control, control_len is msg_controllen, flags is msg_flags);
    same_places!(ControlHeader is cmsghdr: len is cmsg_len, level is cmsg_level, kind is cmsg_type);
    same_places!(PollFd is pollfd: fd is fd, events is events, revents is revents);
    same_places!(ResourceLimit is rlimit: soft is rlim_cur, hard is rlim_max);
    same_places!(TimeValue is timeval: seconds is tv_sec, micros is tv_usec);
    same_places!(Usage is rusage: user is ru_utime, system is ru_stime, max_rss is ru_maxrss);
    // SAFETY: arithmetic on lengths.
    let (data_at, one_byte) = unsafe { (libc::CMSG_LEN(0), libc::CMSG_SPACE(1)) };
    assert!(ours::CMSG_DATA_AT == data_at as usize, "CMSG_LEN");
    assert!(ours::CMSG_DATA_AT + ours::CMSG_ALIGN == one_byte as usize, "CMSG_SPACE");
    assert!(size_of::<ours::SignalInfo>() >= size_of::<libc::siginfo_t>(), "siginfo_t");
    assert!(align_of::<ours::SignalInfo>() >= align_of::<libc::siginfo_t>(), "siginfo_t");
    assert!(offset_of!(libc::siginfo_t, si_signo) == 0, "si_signo");
    assert!(offset_of!(libc::siginfo_t, si_code) == ours::SI_CODE_AT, "si_code");
    assert!(size_of::<ours::SignalSet>() >= size_of::<libc::sigset_t>(), "sigset_t");
    assert!(align_of::<ours::SignalSet>() >= align_of::<libc::sigset_t>(), "sigset_t");
};

#[cfg(target_os = "macos")]
const _: () = {
    use super::process_state::system as look;
    assert!(offset_of!(libc::siginfo_t, si_status) == ours::SI_STATUS_AT, "si_status");
    assert!(size_of::<libc::proc_bsdinfo>() == look::INFO_SIZE, "proc_bsdinfo");
    assert!(offset_of!(libc::proc_bsdinfo, pbi_status) == look::STATUS_AT, "pbi_status");
    assert!(offset_of!(libc::proc_bsdinfo, pbi_start_tvsec) == look::START_SECONDS_AT, "pbi_start_tvsec");
    assert!(offset_of!(libc::proc_bsdinfo, pbi_start_tvusec) == look::START_MICROS_AT, "pbi_start_tvusec");
    assert!(libc::PROC_PIDTBSDINFO == look::PROC_PIDTBSDINFO && libc::SZOMB == look::SZOMB, "libproc");
};

#[cfg(target_os = "freebsd")]
const _: () = {
    use super::process_state::system as look;
    assert!(offset_of!(libc::siginfo_t, si_status) == ours::SI_STATUS_AT, "si_status");
    assert!(size_of::<libc::kinfo_proc>() == look::INFO_SIZE, "kinfo_proc");
    assert!(offset_of!(libc::kinfo_proc, ki_start) == look::START_AT, "ki_start");
    assert!(offset_of!(libc::kinfo_proc, ki_stat) == look::STAT_AT, "ki_stat");
    assert!(libc::CTL_KERN == look::CTL_KERN && libc::KERN_PROC == look::KERN_PROC, "sysctl");
    assert!(
        libc::KERN_PROC_PID == look::KERN_PROC_PID && libc::KERN_PROC_PGRP == look::KERN_PROC_PGRP,
        "sysctl"
    );
    assert!(libc::KERN_BOOTTIME == look::KERN_BOOTTIME && libc::SZOMB as u8 == look::SZOMB, "sysctl");
};
