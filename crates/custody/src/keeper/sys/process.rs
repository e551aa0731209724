//! Processes: signals, waiting, and the ties between processes.

use std::ffi::{CStr, c_int, c_long, c_uint, c_ulong, c_void};
use std::io::Result;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::{ECHILD, check, check_long, errno, owned, pid, retry};

pub(crate) const SIGHUP: c_int = 1;
pub(crate) const SIGINT: c_int = 2;
pub(crate) const SIGQUIT: c_int = 3;
pub(crate) const SIGKILL: c_int = 9;
pub(crate) const SIGPIPE: c_int = 13;
pub(crate) const SIGTERM: c_int = 15;
pub(crate) const SIGCHLD: c_int = 17;
pub(crate) const SIGCONT: c_int = 18;
pub(crate) const SIGSTOP: c_int = 19;
pub(crate) const SIGTSTP: c_int = 20;
pub(crate) const SIGTTIN: c_int = 21;
pub(crate) const SIGTTOU: c_int = 22;
pub(crate) const SIGXFSZ: c_int = 25;

pub(crate) const WNOHANG: c_int = 1;
pub(crate) const WUNTRACED: c_int = 2;
pub(crate) const WCONTINUED: c_int = 8;

const SYS_PIDFD_SEND_SIGNAL: c_long = 424;
const SYS_PIDFD_OPEN: c_long = 434;
#[cfg(target_arch = "x86_64")]
const SYS_RT_SIGACTION: c_long = 13;
#[cfg(not(target_arch = "x86_64"))]
const SYS_RT_SIGACTION: c_long = 134;
const SYS_RT_SIGPROCMASK: c_long = SYS_RT_SIGACTION + 1;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Rusage {
    user: [c_long; 2],
    system: [c_long; 2],
    max_rss: c_long,
    rest: [c_long; 13],
}

/// A signal set: 1024 bits, as in glibc and musl. Bit n-1 is signal n.
#[repr(C)]
struct SigSet([u64; 16]);

impl SigSet {
    fn of(bits: u64) -> Self {
        let mut set = [0; 16];
        set[0] = bits;
        Self(set)
    }
}

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn signalfd(fd: c_int, mask: *const SigSet, flags: c_int) -> c_int;
    fn sigpending(set: *mut SigSet) -> c_int;
    fn read(fd: c_int, buffer: *mut c_void, count: usize) -> isize;
    fn wait4(pid: c_int, status: *mut c_int, options: c_int, usage: *mut Rusage) -> c_int;
    fn waitid(kind: c_int, id: c_uint, info: *mut [u8; 128], options: c_int) -> c_int;
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int;
    fn tcsetpgrp(fd: c_int, group: c_int) -> c_int;
    fn kill(pid: c_int, signal: c_int) -> c_int;
    fn geteuid() -> c_uint;
    fn getegid() -> c_uint;
    fn sched_yield() -> c_int;
    fn ioctl(fd: c_int, request: c_ulong, ...) -> c_int;
}

/// Lets a process run first that was just woken.
pub(crate) fn yield_processor() {
    // SAFETY: no precondition.
    unsafe { sched_yield() };
}

/// The length of the turns on the processor that the caller asks for.
#[derive(Clone, Copy)]
pub(crate) enum TimeSlice {
    /// Short turns, soon after waking up, and often.
    Short,
    /// The usual turns, as long as those of other processes.
    Usual,
}

/// Asks for turns of another length. Children have the usual turns. Kernels without this feature (before Linux 6.12)
/// change nothing.
pub(crate) fn request_time_slice(slice: TimeSlice) {
    #[cfg(target_arch = "x86_64")]
    const SYS_SCHED_SETATTR: c_long = 314;
    #[cfg(not(target_arch = "x86_64"))]
    const SYS_SCHED_SETATTR: c_long = 274;
    const SHORT_NS: u64 = 100_000;
    const RESET_ON_FORK: u64 = 1;
    const SIZE: usize = 48;
    /// The kernel's structure, up to the last field that is needed.
    #[repr(C)]
    struct SchedAttr {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    let mut attr = SchedAttr {
        size: SIZE as u32,
        policy: 0,
        flags: 0,
        nice: 0,
        priority: 0,
        runtime: 0,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the structure has the size that it names, and lives through the calls.
    unsafe {
        let read = syscall(SYS_SCHED_SETATTR + 1, 0, &raw mut attr, SIZE, 0);
        // The reset would remove a negative niceness from the children, so nothing changes in that case.
        if read == 0 && attr.policy == 0 && attr.nice >= 0 {
            attr.flags = RESET_ON_FORK;
            attr.runtime = match slice {
                TimeSlice::Short => SHORT_NS,
                TimeSlice::Usual => 0,
            };
            syscall(SYS_SCHED_SETATTR, 0, &raw const attr, 0);
        }
    }
}

pub(crate) fn user_and_group() -> (u32, u32) {
    // SAFETY: no precondition.
    unsafe { (geteuid(), getegid()) }
}

/// Every signal. The kernel itself leaves out KILL and STOP.
pub(crate) const ALL_SIGNALS: u64 = u64::MAX;

/// Blocks exactly these signals. Bypasses the C library, which reserves two signals and never blocks them.
pub(crate) fn set_blocked(bits: u64) {
    const SIG_SETMASK: c_int = 2;
    let old = std::ptr::null_mut::<u64>();
    // SAFETY: the kernel's set has 64 bits and lives through the call; the old set is not requested.
    unsafe { syscall(SYS_RT_SIGPROCMASK, SIG_SETMASK, &raw const bits, old, size_of::<u64>()) };
}

/// Returns the signals that arrived while they were blocked.
pub(crate) fn pending_signals() -> u64 {
    let mut set = SigSet::of(0);
    // SAFETY: the result lives through the call.
    unsafe { sigpending(&raw mut set) };
    set.0[0]
}

/// Returns the bit of a signal in a mask.
pub(crate) fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

pub(crate) fn ignore(signal: c_int) {
    const SIG_IGN: u64 = 1;
    set_disposition(signal, SIG_IGN);
}

pub(crate) fn restore_default(signal: c_int) {
    const SIG_DFL: u64 = 0;
    set_disposition(signal, SIG_DFL);
}

/// Sets what a signal does. Bypasses the C library, for the same reason as [`set_blocked`].
fn set_disposition(signal: c_int, handler: u64) {
    // Handler, flags, restorer and mask. Some processors order the last three differently, but all three are zero.
    let action = [handler, 0, 0, 0];
    let old = std::ptr::null_mut::<u64>();
    // SAFETY: the action lives through the call, is as long as the kernel reads, and contains no function pointer.
    unsafe { syscall(SYS_RT_SIGACTION, signal, &raw const action, old, size_of::<u64>()) };
}

/// Returns a descriptor that becomes readable when a child changes state. SIGCHLD must be blocked.
pub(crate) fn child_signal_fd() -> Result<OwnedFd> {
    const SFD_CLOEXEC_NONBLOCK: c_int = 0o2_004_000;
    let set = SigSet::of(bit(SIGCHLD));
    // SAFETY: the set lives through the call.
    Ok(owned(check(unsafe { signalfd(-1, &raw const set, SFD_CLOEXEC_NONBLOCK) })?))
}

/// Empties a signal descriptor.
pub(crate) fn drain(fd: &OwnedFd) {
    let mut buffer = [0u8; 1024];
    // SAFETY: the buffer lives through the call. SIGCHLD does not queue, so one read empties the descriptor.
    unsafe { read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
}

/// A child that changed state.
pub(crate) struct ReapedChild {
    pub(crate) pid: c_int,
    pub(crate) status: c_int,
    pub(crate) max_rss_kib: u64,
    pub(crate) user_us: u64,
    pub(crate) system_us: u64,
}

/// Reaps a child. The pid -1 means any child, a lower number a group. Returns `None` with WNOHANG if no child is ready.
pub(crate) fn wait_child(pid: c_int, options: c_int) -> Result<Option<ReapedChild>> {
    let mut status = 0;
    let mut usage = Rusage::default();
    let pid = retry(|| {
        // SAFETY: both results live through the call.
        check(unsafe { wait4(pid, &raw mut status, options, &raw mut usage) })
    })?;
    let micros = |time: [c_long; 2]| time[0] as u64 * 1_000_000 + time[1] as u64;
    Ok((pid > 0).then(|| ReapedChild {
        pid,
        status,
        max_rss_kib: usage.max_rss as u64,
        user_us: micros(usage.user),
        system_us: micros(usage.system),
    }))
}

/// A change of a child's state. The child is seen but not reaped, so its pid and its group stay taken.
pub(crate) enum ChildChange {
    Ended,
    Stopped { signal: c_int },
    Continued,
}

const WEXITED: c_int = 4;
const WNOWAIT: c_int = 0x0100_0000;
const P_ALL: c_int = 0;
const P_PID: c_int = 1;

/// Asks a child, or any child, for a change of state. Returns `None` if there is none.
fn ask(kind: c_int, pid: c_int, options: c_int) -> Result<Option<(c_int, ChildChange)>> {
    const CLD_DUMPED: i32 = 3;
    const CLD_CONTINUED: i32 = 6;
    let mut info = [0u8; 128];
    // SAFETY: siginfo_t has 128 bytes on every Linux.
    check(unsafe { waitid(kind, pid as c_uint, &raw mut info, options | WNOHANG) })?;
    // si_signo, si_errno, si_code, padding, si_pid, si_uid, si_status.
    let word = |at: usize| i32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    let told = match word(8) {
        ..=CLD_DUMPED => ChildChange::Ended,
        CLD_CONTINUED => ChildChange::Continued,
        _ => ChildChange::Stopped { signal: word(24) },
    };
    Ok((word(16) != 0).then_some((word(16), told)))
}

/// Returns the next child with a change of state, and leaves the change in place.
pub(crate) fn peek_child() -> Option<(c_int, ChildChange)> {
    ask(P_ALL, 0, WEXITED | WUNTRACED | WCONTINUED | WNOWAIT).ok().flatten()
}

/// Takes the notice that a child was stopped or continued. Never reaps the child, even if it has ended meanwhile.
pub(crate) fn take_stop(pid: c_int) -> Option<ChildChange> {
    ask(P_PID, pid, WUNTRACED | WCONTINUED).ok().flatten().map(|(_, told)| told)
}

/// Returns whether a process is a child of the caller, including one that waits to be reaped.
pub(crate) fn is_child(pid: c_int) -> bool {
    ask(P_PID, pid, WEXITED | WNOWAIT).is_ok()
}

/// Returns whether the caller has no child at all, not even one that waits to be reaped.
pub(crate) fn has_no_child() -> bool {
    matches!(ask(P_ALL, 0, WEXITED | WNOWAIT), Err(error) if errno(&error) == ECHILD)
}

pub(crate) fn send_signal(pid: c_int, signal: c_int) -> Result<()> {
    // SAFETY: no precondition on memory; callers pass children that are not reaped, or their groups.
    check(unsafe { kill(pid, signal) })?;
    Ok(())
}

pub(crate) fn pidfd_open(pid: c_int) -> Result<OwnedFd> {
    // SAFETY: two integers.
    Ok(owned(check_long(unsafe { syscall(SYS_PIDFD_OPEN, pid, 0) })? as c_int))
}

/// Returns the pid behind a pidfd in the caller's PID namespace, or `None` if the kernel does not support the request.
pub(crate) fn pidfd_pid(pidfd: RawFd) -> Option<c_int> {
    // The first version of the kernel's structure: mask, cgroup id, pid and more.
    const PIDFD_GET_INFO: c_ulong = 0xC000_0000 | (64 << 16) | (0xFF << 8) | 0x0B;
    const PIDFD_INFO_PID: u64 = 1;
    let mut info = [0u64; 8];
    info[0] = PIDFD_INFO_PID;
    // SAFETY: the request names the buffer's size, 64 bytes.
    let result = unsafe { ioctl(pidfd, PIDFD_GET_INFO, info.as_mut_ptr()) };
    let pid = info[2] as u32 as c_int;
    (result == 0 && info[0] & PIDFD_INFO_PID != 0 && pid > 0).then_some(pid)
}

pub(crate) fn pidfd_signal(pidfd: RawFd, signal: c_int) -> Result<()> {
    // SAFETY: integers and a null pointer that the call allows.
    check_long(unsafe { syscall(SYS_PIDFD_SEND_SIGNAL, pidfd, signal, std::ptr::null::<c_void>(), 0) })?;
    Ok(())
}

pub(crate) fn become_subreaper() -> Result<()> {
    const PR_SET_CHILD_SUBREAPER: c_int = 36;
    // SAFETY: integers.
    check(unsafe { prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) })?;
    Ok(())
}

/// Makes the kernel kill this process when the thread that created it ends.
pub(crate) fn die_with_parent() -> Result<()> {
    const PR_SET_PDEATHSIG: c_int = 1;
    // SAFETY: integers.
    check(unsafe { prctl(PR_SET_PDEATHSIG, SIGKILL as c_ulong, 0, 0, 0) })?;
    Ok(())
}

/// Sets the name in `ps` and `/proc/PID/comm`, which has at most 15 characters.
pub(crate) fn set_name(name: &CStr) {
    const PR_SET_NAME: c_int = 15;
    // SAFETY: a NUL-terminated string that lives through the call.
    unsafe { prctl(PR_SET_NAME, name.as_ptr() as c_ulong, 0, 0, 0) };
}

/// Makes the calling process's own group the terminal's foreground group.
pub(crate) fn take_terminal(terminal: RawFd) -> Result<()> {
    // SAFETY: integers.
    check(unsafe { tcsetpgrp(terminal, pid()) })?;
    Ok(())
}
