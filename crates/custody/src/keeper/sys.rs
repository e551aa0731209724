//! The system calls that keeper, shim and worker-to-be make beyond what std offers.
//!
//! The keeper is built from std alone, so what it needs of libc is declared here, and nowhere else.
//! Every function is a thin, safe wrapper; every unsafe block of the keeper stands in this file or in
//! `clone.rs`.

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

pub(crate) const SIGHUP: c_int = 1;
pub(crate) const SIGINT: c_int = 2;
pub(crate) const SIGQUIT: c_int = 3;
pub(crate) const SIGKILL: c_int = 9;
pub(crate) const SIGPIPE: c_int = 13;
pub(crate) const SIGTERM: c_int = 15;
pub(crate) const SIGCHLD: c_int = 17;
pub(crate) const SIGCONT: c_int = 18;
pub(crate) const SIGTSTP: c_int = 20;
pub(crate) const SIGTTIN: c_int = 21;
pub(crate) const SIGTTOU: c_int = 22;

pub(crate) const EAGAIN: i32 = 11;
pub(crate) const ECHILD: i32 = 10;
pub(crate) const EPROTO: i32 = 71;

pub(crate) const WNOHANG: c_int = 1;
pub(crate) const WUNTRACED: c_int = 2;
pub(crate) const WCONTINUED: c_int = 8;

pub(crate) const POLLIN: i16 = 1;
pub(crate) const POLLOUT: i16 = 4;

pub(crate) const MS_NOSUID: c_ulong = 2;
pub(crate) const MS_NODEV: c_ulong = 4;
pub(crate) const MS_NOEXEC: c_ulong = 8;
pub(crate) const MS_REC: c_ulong = 0x4000;
pub(crate) const MS_SLAVE: c_ulong = 1 << 19;

pub(crate) const RLIMIT_NOFILE: c_int = 7;

const SYS_PIDFD_SEND_SIGNAL: c_long = 424;
const SYS_PIDFD_OPEN: c_long = 434;
const SYS_CLOSE_RANGE: c_long = 436;

#[repr(C)]
struct Iovec {
    base: *mut c_void,
    len: usize,
}

#[repr(C)]
struct Msghdr {
    name: *mut c_void,
    namelen: u32,
    iov: *mut Iovec,
    iovlen: usize,
    control: *mut c_void,
    controllen: usize,
    flags: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Rusage {
    user: [c_long; 2],
    system: [c_long; 2],
    max_rss: c_long,
    rest: [c_long; 13],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PollFd {
    pub(crate) fd: c_int,
    pub(crate) events: i16,
    pub(crate) revents: i16,
}

#[repr(C)]
#[cfg_attr(target_arch = "x86_64", repr(packed))]
#[derive(Clone, Copy, Default)]
pub(crate) struct EpollEvent {
    pub(crate) events: u32,
    pub(crate) data: u64,
}

#[repr(C)]
struct RlimitPair {
    soft: u64,
    hard: u64,
}

/// A signal set: 1024 bits, as glibc and musl have it; bit n-1 is signal n.
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
    fn socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int;
    fn sendmsg(fd: c_int, msg: *const Msghdr, flags: c_int) -> isize;
    fn recvmsg(fd: c_int, msg: *mut Msghdr, flags: c_int) -> isize;
    fn poll(fds: *mut PollFd, count: c_ulong, timeout: c_int) -> c_int;
    fn epoll_create1(flags: c_int) -> c_int;
    fn epoll_ctl(epoll: c_int, op: c_int, fd: c_int, event: *mut EpollEvent) -> c_int;
    fn epoll_wait(epoll: c_int, events: *mut EpollEvent, max: c_int, timeout: c_int) -> c_int;
    fn signalfd(fd: c_int, mask: *const SigSet, flags: c_int) -> c_int;
    fn sigprocmask(how: c_int, set: *const SigSet, old: *mut SigSet) -> c_int;
    fn signal(signal: c_int, handler: usize) -> usize;
    fn wait4(pid: c_int, status: *mut c_int, options: c_int, usage: *mut Rusage) -> c_int;
    fn waitid(kind: c_int, id: c_uint, info: *mut [u8; 128], options: c_int) -> c_int;
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int;
    fn setsid() -> c_int;
    fn setpgid(pid: c_int, group: c_int) -> c_int;
    fn tcsetpgrp(fd: c_int, group: c_int) -> c_int;
    fn kill(pid: c_int, signal: c_int) -> c_int;
    fn getpid() -> c_int;
    fn getppid() -> c_int;
    fn geteuid() -> c_uint;
    fn getegid() -> c_uint;
    fn fcntl(fd: c_int, command: c_int, arg: c_int) -> c_int;
    fn dup2(from: c_int, to: c_int) -> c_int;
    fn chdir(path: *const c_char) -> c_int;
    fn getrlimit(resource: c_int, limit: *mut RlimitPair) -> c_int;
    fn setrlimit(resource: c_int, limit: *const RlimitPair) -> c_int;
    fn setpriority(which: c_int, who: c_uint, nice: c_int) -> c_int;
    fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn mount(
        source: *const c_char,
        target: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_void,
    ) -> c_int;
    fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    fn renameat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char) -> c_int;
    fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
    fn sched_yield() -> c_int;
    fn _exit(status: c_int) -> !;
}

fn check(result: c_int) -> Result<c_int> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result) }
}

fn check_long(result: c_long) -> Result<c_long> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result) }
}

/// The system's number for an error.
pub(crate) fn errno(error: &Error) -> i32 {
    error.raw_os_error().unwrap_or(EPROTO)
}

/// Calls again for as long as a signal came between.
fn retry<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn owned(fd: c_int) -> OwnedFd {
    // SAFETY: every caller passes a descriptor that the kernel has just made for it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

pub(crate) fn exit(status: c_int) -> ! {
    // SAFETY: no precondition; skips destructors, which a forked copy must not run.
    unsafe { _exit(status) }
}

/// Lets whoever was just woken run first.
pub(crate) fn give_way() {
    // SAFETY: no precondition.
    unsafe { sched_yield() };
}

pub(crate) fn pid() -> c_int {
    // SAFETY: no precondition.
    unsafe { getpid() }
}

pub(crate) fn parent_pid() -> c_int {
    // SAFETY: no precondition.
    unsafe { getppid() }
}

pub(crate) fn user_and_group() -> (u32, u32) {
    // SAFETY: no precondition.
    unsafe { (geteuid(), getegid()) }
}

/// A pair of connected packet sockets, close-on-exec.
pub(crate) fn packet_pair() -> Result<(OwnedFd, OwnedFd)> {
    const AF_UNIX: c_int = 1;
    const SOCK_SEQPACKET_CLOEXEC: c_int = 5 | 0o2_000_000;
    let mut pair = [0; 2];
    // SAFETY: `pair` has room for two descriptors.
    check(unsafe { socketpair(AF_UNIX, SOCK_SEQPACKET_CLOEXEC, 0, pair.as_mut_ptr()) })?;
    Ok((owned(pair[0]), owned(pair[1])))
}

const SOL_SOCKET: c_int = 1;
const SCM_RIGHTS: c_int = 1;
const CMSG_HEADER: usize = 16;

/// Sends one packet with descriptors; never raises SIGPIPE, never blocks: `WouldBlock` instead.
pub(crate) fn send(socket: RawFd, bytes: &[u8], fds: &[RawFd]) -> Result<()> {
    const MSG_DONTWAIT_NOSIGNAL: c_int = 0x40 | 0x4000;
    // Eight-byte units keep the control buffer aligned as a cmsghdr must be.
    let mut control = [0u64; 2 + 128];
    let payload = fds.len() * 4;
    let mut iov = Iovec { base: bytes.as_ptr().cast_mut().cast(), len: bytes.len() };
    let mut msg = Msghdr {
        name: std::ptr::null_mut(),
        namelen: 0,
        iov: &raw mut iov,
        iovlen: 1,
        control: std::ptr::null_mut(),
        controllen: 0,
        flags: 0,
    };
    if !fds.is_empty() {
        control[0] = (CMSG_HEADER + payload) as u64;
        control[1] = u64::from(SOL_SOCKET as u32) | (u64::from(SCM_RIGHTS as u32) << 32);
        // SAFETY: the buffer holds the header and up to 256 descriptors; messages have at most MAX_FDS.
        unsafe { std::ptr::copy_nonoverlapping(fds.as_ptr(), control.as_mut_ptr().add(2).cast(), fds.len()) };
        msg.control = control.as_mut_ptr().cast();
        msg.controllen = CMSG_HEADER + payload.next_multiple_of(8);
    }
    retry(|| {
        // SAFETY: `msg` points to buffers that live through the call.
        check_long(unsafe { sendmsg(socket, &raw const msg, MSG_DONTWAIT_NOSIGNAL) } as c_long)
    })?;
    Ok(())
}

/// Receives one packet with its descriptors; length 0 is the end.
pub(crate) fn receive(socket: RawFd, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>)> {
    const MSG_DONTWAIT: c_int = 0x40;
    receive_with(socket, bytes, MSG_DONTWAIT)
}

/// Like [`receive`], but waits.
pub(crate) fn receive_blocking(socket: RawFd, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>)> {
    receive_with(socket, bytes, 0)
}

fn receive_with(socket: RawFd, bytes: &mut [u8], flags: c_int) -> Result<(usize, Vec<OwnedFd>)> {
    const MSG_CMSG_CLOEXEC: c_int = 0x4000_0000;
    const MSG_CTRUNC_TRUNC: c_int = 0x8 | 0x20;
    let mut control = [0u64; 2 + 128];
    let mut iov = Iovec { base: bytes.as_mut_ptr().cast(), len: bytes.len() };
    let mut msg = Msghdr {
        name: std::ptr::null_mut(),
        namelen: 0,
        iov: &raw mut iov,
        iovlen: 1,
        control: control.as_mut_ptr().cast(),
        controllen: size_of_val(&control),
        flags: 0,
    };
    let received = retry(|| {
        msg.controllen = size_of_val(&control);
        // SAFETY: `msg` points to buffers that live through the call, with their true lengths.
        check_long(unsafe { recvmsg(socket, &raw mut msg, flags | MSG_CMSG_CLOEXEC) } as c_long)
    })?;
    let mut fds = Vec::new();
    if msg.controllen >= CMSG_HEADER
        && control[1] == u64::from(SOL_SOCKET as u32) | (u64::from(SCM_RIGHTS as u32) << 32)
    {
        let count = (control[0] as usize - CMSG_HEADER) / 4;
        for index in 0..count {
            let word = control[2 + index / 2];
            fds.push(owned((word >> (32 * (index % 2))) as u32 as c_int));
        }
    }
    if msg.flags & MSG_CTRUNC_TRUNC != 0 {
        return Err(Error::from_raw_os_error(EPROTO));
    }
    Ok((received as usize, fds))
}

/// Waits until one of the descriptors is ready or the time is over.
pub(crate) fn poll_any(fds: &mut [PollFd], timeout_ms: c_int) -> Result<()> {
    // SAFETY: pointer and length belong to one slice.
    retry(|| check(unsafe { poll(fds.as_mut_ptr(), fds.len() as c_ulong, timeout_ms) }))?;
    Ok(())
}

/// Whether a process, known by its pidfd, has ended.
pub(crate) fn has_ended(pidfd: RawFd) -> bool {
    let mut fds = [PollFd { fd: pidfd, events: POLLIN, revents: 0 }];
    poll_any(&mut fds, 0).is_ok() && fds[0].revents != 0
}

/// An epoll set.
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    pub(crate) fn new() -> Result<Self> {
        const EPOLL_CLOEXEC: c_int = 0o2_000_000;
        // SAFETY: no precondition.
        Ok(Self(owned(check(unsafe { epoll_create1(EPOLL_CLOEXEC) })?)))
    }

    pub(crate) fn add(&self, fd: RawFd, data: u64) -> Result<()> {
        const EPOLL_CTL_ADD: c_int = 1;
        const EPOLLIN: u32 = 1;
        let mut event = EpollEvent { events: EPOLLIN, data };
        // SAFETY: `event` lives through the call.
        check(unsafe { epoll_ctl(self.0.as_raw_fd(), EPOLL_CTL_ADD, fd, &raw mut event) })?;
        Ok(())
    }

    /// Takes a descriptor out. Closing alone is not enough once a forked copy of it exists.
    pub(crate) fn remove(&self, fd: RawFd) {
        const EPOLL_CTL_DEL: c_int = 2;
        let mut event = EpollEvent::default();
        // SAFETY: `event` lives through the call. A descriptor that was never added is no harm.
        unsafe { epoll_ctl(self.0.as_raw_fd(), EPOLL_CTL_DEL, fd, &raw mut event) };
    }

    pub(crate) fn wait(&self, events: &mut [EpollEvent], timeout_ms: c_int) -> Result<usize> {
        let count = retry(|| {
            // SAFETY: pointer and length belong to one slice.
            check(unsafe {
                epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), events.len() as c_int, timeout_ms)
            })
        })?;
        Ok(count as usize)
    }
}

/// Blocks exactly these signals.
pub(crate) fn set_blocked(bits: u64) {
    const SIG_SETMASK: c_int = 2;
    // SAFETY: the set lives through the call; the old one is not asked for.
    unsafe { sigprocmask(SIG_SETMASK, &SigSet::of(bits), std::ptr::null_mut()) };
}

/// The bit of a signal in a mask.
pub(crate) fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

pub(crate) fn ignore(number: c_int) {
    // SAFETY: SIG_IGN is 1; no handler of ours is involved.
    unsafe { signal(number, 1) };
}

pub(crate) fn restore_default(number: c_int) {
    // SAFETY: SIG_DFL is 0; no handler of ours is involved.
    unsafe { signal(number, 0) };
}

/// A descriptor that becomes readable when a child changes state. SIGCHLD must be blocked.
pub(crate) fn child_signal_fd() -> Result<OwnedFd> {
    const SFD_CLOEXEC_NONBLOCK: c_int = 0o2_004_000;
    let set = SigSet::of(bit(SIGCHLD));
    // SAFETY: the set lives through the call.
    Ok(owned(check(unsafe { signalfd(-1, &raw const set, SFD_CLOEXEC_NONBLOCK) })?))
}

/// Empties a signal descriptor.
pub(crate) fn drain(fd: &OwnedFd) {
    use std::io::Read;
    let mut buffer = [0; 1024];
    let Ok(copy) = fd.try_clone() else { return };
    let mut file = std::fs::File::from(copy);
    while matches!(file.read(&mut buffer), Ok(1..)) {}
}

/// A child that changed state.
pub(crate) struct Waited {
    pub(crate) pid: c_int,
    pub(crate) status: c_int,
    pub(crate) max_rss_kib: u64,
    pub(crate) user_us: u64,
    pub(crate) system_us: u64,
}

impl Waited {
    pub(crate) fn stopped_by(&self) -> Option<c_int> {
        (self.status & 0xFF == 0x7F).then_some((self.status >> 8) & 0xFF)
    }

    pub(crate) fn continued(&self) -> bool {
        self.status == 0xFFFF
    }
}

/// Reaps a child: -1 any, below that a group. `None` when nobody is ready (WNOHANG).
pub(crate) fn wait_child(pid: c_int, options: c_int) -> Result<Option<Waited>> {
    let mut status = 0;
    let mut usage = Rusage::default();
    let pid = retry(|| {
        // SAFETY: both results live through the call.
        check(unsafe { wait4(pid, &raw mut status, options, &raw mut usage) })
    })?;
    let micros = |time: [c_long; 2]| time[0] as u64 * 1_000_000 + time[1] as u64;
    Ok((pid > 0).then(|| Waited {
        pid,
        status,
        max_rss_kib: usage.max_rss as u64,
        user_us: micros(usage.user),
        system_us: micros(usage.system),
    }))
}

/// A child that has changed state, seen but not reaped: its pid and its group stay taken.
pub(crate) struct Peeked {
    pub(crate) pid: c_int,
    pub(crate) ended: bool,
}

/// The next child that has something to tell, if any.
pub(crate) fn peek_child() -> Option<Peeked> {
    const P_ALL: c_int = 0;
    const WEXITED: c_int = 4;
    const WNOWAIT: c_int = 0x0100_0000;
    const CLD_DUMPED: i32 = 3;
    let mut info = [0u8; 128];
    // SAFETY: siginfo_t has 128 bytes on every Linux.
    let result =
        unsafe { waitid(P_ALL, 0, &raw mut info, WEXITED | WUNTRACED | WCONTINUED | WNOHANG | WNOWAIT) };
    // si_signo, si_errno, si_code, padding, si_pid.
    let word = |at: usize| i32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    (result == 0 && word(16) != 0).then(|| Peeked { pid: word(16), ended: word(8) <= CLD_DUMPED })
}

pub(crate) fn send_signal(pid: c_int, signal: c_int) -> Result<()> {
    // SAFETY: no precondition on memory; the callers pass children that are not reaped, or their groups.
    check(unsafe { kill(pid, signal) })?;
    Ok(())
}

pub(crate) fn pidfd_open(pid: c_int) -> Result<OwnedFd> {
    // SAFETY: two integers.
    Ok(owned(check_long(unsafe { syscall(SYS_PIDFD_OPEN, pid, 0) })? as c_int))
}

pub(crate) fn pidfd_signal(pidfd: RawFd, signal: c_int) -> Result<()> {
    // SAFETY: integers and a null pointer that the call allows.
    check_long(unsafe { syscall(SYS_PIDFD_SEND_SIGNAL, pidfd, signal, std::ptr::null::<c_void>(), 0) })?;
    Ok(())
}

/// Closes every descriptor from 3 on except `keep`.
pub(crate) fn close_all_except(keep: &mut [RawFd]) -> Result<()> {
    keep.sort_unstable();
    let mut from = 3u32;
    for fd in keep.iter().map(|fd| *fd as u32).chain([u32::MAX]) {
        if fd > from {
            let to = if fd == u32::MAX { u32::MAX } else { fd - 1 };
            // SAFETY: integers; the descriptors in the range belong to nobody who is still to run.
            check_long(unsafe { syscall(SYS_CLOSE_RANGE, from, to, 0) })?;
        }
        from = from.max(fd.saturating_add(1));
    }
    Ok(())
}

/// A copy of a descriptor at or above `from`, close-on-exec.
pub(crate) fn duplicate_above(fd: RawFd, from: RawFd) -> Result<RawFd> {
    const F_DUPFD_CLOEXEC: c_int = 1030;
    // SAFETY: integers.
    check(unsafe { fcntl(fd, F_DUPFD_CLOEXEC, from) })
}

/// A copy of a descriptor at `target`, which survives exec.
pub(crate) fn duplicate_to(fd: RawFd, target: RawFd) -> Result<()> {
    // SAFETY: integers; what `target` was is given up on purpose.
    check(unsafe { dup2(fd, target) })?;
    Ok(())
}

pub(crate) fn become_subreaper() -> Result<()> {
    const PR_SET_CHILD_SUBREAPER: c_int = 36;
    // SAFETY: integers.
    check(unsafe { prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) })?;
    Ok(())
}

/// Dies by KILL when the thread that made this process ends.
pub(crate) fn die_with_parent() -> Result<()> {
    const PR_SET_PDEATHSIG: c_int = 1;
    // SAFETY: integers.
    check(unsafe { prctl(PR_SET_PDEATHSIG, SIGKILL as c_ulong, 0, 0, 0) })?;
    Ok(())
}

/// The name in `ps` and `/proc/PID/comm`: 15 characters at the most.
pub(crate) fn set_name(name: &CStr) {
    const PR_SET_NAME: c_int = 15;
    // SAFETY: a NUL-terminated string that lives through the call.
    unsafe { prctl(PR_SET_NAME, name.as_ptr() as c_ulong, 0, 0, 0) };
}

pub(crate) fn new_session() -> Result<()> {
    // SAFETY: no precondition.
    check(unsafe { setsid() })?;
    Ok(())
}

pub(crate) fn new_group() -> Result<()> {
    // SAFETY: no precondition.
    check(unsafe { setpgid(0, 0) })?;
    Ok(())
}

/// Makes the calling process's own group the terminal's foreground group.
pub(crate) fn take_terminal(terminal: RawFd) -> Result<()> {
    // SAFETY: integers.
    check(unsafe { tcsetpgrp(terminal, getpid()) })?;
    Ok(())
}

pub(crate) fn change_dir(path: &CStr) -> Result<()> {
    // SAFETY: a NUL-terminated string.
    check(unsafe { chdir(path.as_ptr()) })?;
    Ok(())
}

pub(crate) fn rlimit(resource: c_int) -> Result<(u64, u64)> {
    let mut pair = RlimitPair { soft: 0, hard: 0 };
    // SAFETY: the result lives through the call.
    check(unsafe { getrlimit(resource, &raw mut pair) })?;
    Ok((pair.soft, pair.hard))
}

pub(crate) fn set_rlimit(resource: c_int, soft: u64, hard: u64) -> Result<()> {
    let pair = RlimitPair { soft, hard };
    // SAFETY: the pair lives through the call.
    check(unsafe { setrlimit(resource, &raw const pair) })?;
    Ok(())
}

pub(crate) fn set_nice(nice: c_int) -> Result<()> {
    const PRIO_PROCESS: c_int = 0;
    // SAFETY: integers.
    check(unsafe { setpriority(PRIO_PROCESS, 0, nice) })?;
    Ok(())
}

/// Runs a program in place of this one; comes back only with an error.
pub(crate) fn exec(program: &CStr, argv: &[CString], envp: &[CString]) -> Error {
    let pointers = |strings: &[CString]| -> Vec<*const c_char> {
        strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (argv, envp) = (pointers(argv), pointers(envp));
    // SAFETY: both arrays end with null and point to strings that live through the call.
    unsafe { execve(program.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    Error::last_os_error()
}

pub(crate) fn mount_at(source: &CStr, target: &CStr, kind: &CStr, flags: c_ulong) -> Result<()> {
    // SAFETY: NUL-terminated strings; no data.
    check(unsafe { mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) })?;
    Ok(())
}

pub(crate) const O_WRONLY: c_int = 1;
pub(crate) const O_RDONLY: c_int = 0;
pub(crate) const O_CREAT: c_int = 0o100;
pub(crate) const O_TRUNC: c_int = 0o1000;
const O_CLOEXEC: c_int = 0o2_000_000;

pub(crate) fn open_at(dir: RawFd, path: &CStr, flags: c_int) -> Result<OwnedFd> {
    // SAFETY: a NUL-terminated string and integers.
    Ok(owned(retry(|| check(unsafe { openat(dir, path.as_ptr(), flags | O_CLOEXEC, 0o600) }))?))
}

pub(crate) fn rename_at(dir: RawFd, from: &CStr, to: &CStr) -> Result<()> {
    // SAFETY: NUL-terminated strings and integers.
    check(unsafe { renameat(dir, from.as_ptr(), dir, to.as_ptr()) })?;
    Ok(())
}

pub(crate) fn unlink_at(dir: RawFd, path: &CStr) -> Result<()> {
    // SAFETY: a NUL-terminated string and integers.
    check(unsafe { unlinkat(dir, path.as_ptr(), 0) })?;
    Ok(())
}

pub(crate) const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
pub(crate) const CLONE_NEWNS: u64 = 0x2_0000;
pub(crate) const CLONE_NEWUSER: u64 = 0x1000_0000;
pub(crate) const CLONE_NEWPID: u64 = 0x2000_0000;

/// Who one is after [`clone_process`].
pub(crate) enum Cloned {
    Child,
    Parent { pid: c_int, pidfd: OwnedFd },
}

/// Forks, with namespaces or into a cgroup where asked; the parent gets a pidfd besides.
pub(crate) fn clone_process(flags: u64, cgroup: Option<RawFd>) -> Result<Cloned> {
    const SYS_CLONE3: c_long = 435;
    const CLONE_PIDFD: u64 = 0x1000;
    #[repr(C)]
    struct CloneArgs {
        flags: u64,
        pidfd: u64,
        child_tid: u64,
        parent_tid: u64,
        exit_signal: u64,
        stack: u64,
        stack_size: u64,
        tls: u64,
        set_tid: u64,
        set_tid_size: u64,
        cgroup: u64,
    }
    let mut pidfd: c_int = -1;
    let args = CloneArgs {
        flags: flags | CLONE_PIDFD | if cgroup.is_some() { CLONE_INTO_CGROUP } else { 0 },
        pidfd: (&raw mut pidfd) as u64,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: SIGCHLD as u64,
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: cgroup.unwrap_or(0) as u64,
    };
    // SAFETY: without CLONE_VM this is fork. Keeper and shim have one thread each, so that the copy finds
    // the allocator and everything else in a state that it can go on from.
    match check_long(unsafe { syscall(SYS_CLONE3, &raw const args, size_of::<CloneArgs>()) })? {
        0 => Ok(Cloned::Child),
        pid => Ok(Cloned::Parent { pid: pid as c_int, pidfd: owned(pidfd) }),
    }
}
