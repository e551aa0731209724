//! The system calls that std does not offer, with the system's numbers from `libc_abi`. `shared` has those that need no
//! numbers.

#[path = "../../keeper/sys/shared.rs"]
mod shared;

use std::ffi::{c_int, c_uint, c_void};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use crate::libc_abi::{
    CLD_CONTINUED, CLD_STOPPED, CMSG_ALIGN, CMSG_DATA_AT, ControlHeader, EINVAL, F_DUPFD, F_SETFD,
    FD_CLOEXEC, Id, IoSlice, MSG_CTRUNC, MessageHeader, P_PID, PRIO_PROCESS, PollCount, PollFd,
    RLIMIT_NOFILE, RSS_UNIT, ResourceLimit, SCM_RIGHTS, SI_CODE_AT, SI_STATUS_AT, SIG_SETMASK, SIGCHLD,
    SIGKILL, SOL_SOCKET, SignalInfo, SignalSet, Usage, WCONTINUED, WEXITED, WNOHANG, WNOWAIT, WSTOPPED,
};
use crate::wire::{MAX_FDS, WorkerEnd};

pub(crate) use shared::*;

unsafe extern "C" {
    fn fork() -> c_int;
    fn getpgrp() -> c_int;
    fn tcsetpgrp(fd: c_int, group: c_int) -> c_int;
    fn kill(pid: c_int, signal: c_int) -> c_int;
    fn waitid(kind: c_uint, id: Id, info: *mut SignalInfo, options: c_int) -> c_int;
    fn wait4(pid: c_int, status: *mut c_int, options: c_int, usage: *mut Usage) -> c_int;
    fn signal(signal: c_int, handler: usize) -> usize;
    fn sigemptyset(set: *mut SignalSet) -> c_int;
    fn sigaddset(set: *mut SignalSet, signal: c_int) -> c_int;
    fn sigprocmask(how: c_int, set: *const SignalSet, old: *mut SignalSet) -> c_int;
    fn poll(fds: *mut PollFd, count: PollCount, timeout: c_int) -> c_int;
    fn recvmsg(fd: c_int, message: *mut MessageHeader, flags: c_int) -> isize;
    fn write(fd: c_int, bytes: *const c_void, count: usize) -> isize;
    fn close(fd: c_int) -> c_int;
    fn fcntl(fd: c_int, command: c_int, ...) -> c_int;
    fn getrlimit(resource: c_int, limit: *mut ResourceLimit) -> c_int;
    fn setrlimit(resource: c_int, limit: *const ResourceLimit) -> c_int;
    fn setpriority(kind: c_int, id: c_int, nice: c_int) -> c_int;
}

/// Returns the number of an error. Every error here came from the system.
pub(crate) fn errno(error: &Error) -> i32 {
    error.raw_os_error().unwrap_or(EINVAL)
}

pub(crate) fn not_understood() -> Error {
    Error::from_raw_os_error(EINVAL)
}

/// Forks. The keeper has one thread, so the copy may do whatever the original may do.
pub(crate) fn fork_self() -> Result<c_int> {
    // SAFETY: single-threaded, see above.
    check(unsafe { fork() })
}

/// Makes the caller's group the foreground group of the terminal on standard input.
pub(crate) fn take_terminal() -> Result<()> {
    // SAFETY: integers.
    check(unsafe { tcsetpgrp(0, getpgrp()) }).map(drop)
}

/// The group that an unreaped child leads: never 0, never 1, never the keeper's own group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessGroup(c_int);

impl ProcessGroup {
    pub(crate) fn led_by(child: c_int) -> Option<Self> {
        // SAFETY: no precondition.
        let own = unsafe { getpgrp() };
        (child > 1 && child != own).then_some(Self(child))
    }

    pub(crate) fn as_raw(self) -> c_int {
        self.0
    }

    /// Sends a signal to the whole group.
    pub(crate) fn signal(self, number: c_int) {
        // SAFETY: the leader is a child that is not reaped, so the number cannot belong to another group.
        unsafe { kill(-self.0, number) };
    }

    pub(crate) fn kill(self) {
        self.signal(SIGKILL);
    }

    /// Sends a signal to the leader alone.
    pub(crate) fn signal_leader(self, number: c_int) {
        // SAFETY: a child that is not reaped.
        unsafe { kill(self.0, number) };
    }
}

/// A change of a child's state. The child is seen but not reaped, so its pid and its group stay taken.
pub(crate) enum ChildChange {
    Ended,
    Stopped { signal: c_int },
    Continued,
}

/// Asks a child for a change of state. Returns `None` if there is none.
pub(crate) fn ask_child(pid: c_int) -> Option<ChildChange> {
    if ask(pid, WEXITED | WNOWAIT).is_some() {
        return Some(ChildChange::Ended);
    }
    // Without WEXITED, the call never reaps, even if the child has ended meanwhile.
    let info = ask(pid, WSTOPPED | WCONTINUED)?;
    let word = |at: usize| i32::from_ne_bytes(info.0[at..at + 4].try_into().unwrap_or_default());
    match word(SI_CODE_AT) {
        CLD_STOPPED => Some(ChildChange::Stopped { signal: word(SI_STATUS_AT) }),
        CLD_CONTINUED => Some(ChildChange::Continued),
        _ => None,
    }
}

fn ask(pid: c_int, options: c_int) -> Option<SignalInfo> {
    // Zeroed first, because not every system does that if there is nothing to report.
    let mut info = SignalInfo([0; 128]);
    // SAFETY: the result has room for any siginfo_t and lives through the call.
    let answer = unsafe { waitid(P_PID, pid as Id, &raw mut info, options | WNOHANG) };
    (answer == 0 && info.0[..4] != [0; 4]).then_some(info)
}

/// Reaps a child that has ended, or waits until it has.
pub(crate) fn reap(pid: c_int) -> WorkerEnd {
    let mut status = 0;
    let mut usage = Usage::default();
    loop {
        // SAFETY: both results live through the call.
        match check(unsafe { wait4(pid, &raw mut status, 0, &raw mut usage) }) {
            Ok(_) => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return WorkerEnd::LOST,
        }
    }
    WorkerEnd {
        status,
        max_rss_kib: usage.max_rss.cast_unsigned() * RSS_UNIT / 1024,
        user_us: usage.user.in_micros(),
        system_us: usage.system.in_micros(),
    }
}

pub(crate) fn ignore(number: c_int) {
    // SAFETY: SIG_IGN is 1; this code installs no handler.
    unsafe { signal(number, 1) };
}

pub(crate) fn restore_default(number: c_int) {
    // SAFETY: SIG_DFL is 0; this code installs no handler.
    unsafe { signal(number, 0) };
}

static WAKE_FD: AtomicI32 = AtomicI32::new(-1);

extern "C" fn on_sigchld(_signal: c_int) {
    // SAFETY: a handler may call write, the byte is alive, and the descriptor stays open forever. A full socket wakes
    // the reader as well; the write does not block.
    unsafe { write(WAKE_FD.load(Ordering::Relaxed), c"!".as_ptr().cast(), 1) };
}

/// Makes every change of a child write a byte to this descriptor, which must not block and must stay open.
pub(crate) fn wake_on_child(wake_reader: RawFd) {
    WAKE_FD.store(wake_reader, Ordering::Relaxed);
    // SAFETY: the handler only writes.
    unsafe { signal(SIGCHLD, on_sigchld as extern "C" fn(c_int) as usize) };
}

/// Blocks exactly these signals. Bit n-1 is signal n.
pub(crate) fn set_blocked(bits: u64) {
    let mut set = SignalSet([0; 128]);
    // SAFETY: the set has room for any sigset_t and lives through the calls. Numbers that are not signals are rejected.
    unsafe {
        sigemptyset(&raw mut set);
        for number in (1..=64).filter(|number| bits & (1 << (number - 1)) != 0) {
            sigaddset(&raw mut set, number);
        }
        sigprocmask(SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

/// Waits until a descriptor is ready, a signal comes, or the time is over.
pub(crate) fn poll_any(fds: &mut [PollFd], timeout_ms: c_int) {
    // SAFETY: the list lives through the call and has the length that the call gets. If the call fails, no descriptor
    // is marked as ready, as after a timeout.
    if unsafe { poll(fds.as_mut_ptr(), fds.len() as PollCount, timeout_ms) } < 0 {
        for fd in fds {
            fd.revents = 0;
        }
    }
}

/// The number of bytes, 0 at the end of the stream, and the descriptors with them. There are fewer than were sent if
/// they did not all fit.
pub(crate) type Received = (usize, Option<Vec<OwnedFd>>);

/// Receives the available bytes and descriptors.
pub(crate) fn receive(socket: RawFd, bytes: &mut [u8]) -> Result<Received> {
    const ROOM: usize = CMSG_DATA_AT + MAX_FDS * size_of::<RawFd>() + CMSG_ALIGN;
    let mut control = [0u64; ROOM.div_ceil(8)];
    let mut slice = IoSlice { at: bytes.as_mut_ptr().cast(), len: bytes.len() };
    let mut message = MessageHeader {
        name: std::ptr::null_mut(),
        name_len: 0,
        slices: &raw mut slice,
        slice_count: 1,
        control: control.as_mut_ptr().cast(),
        control_len: size_of_val(&control) as _,
        flags: 0,
    };
    // SAFETY: everything that the message points to lives through the call, with the lengths that it names.
    let received = unsafe { recvmsg(socket, &raw mut message, 0) };
    let received = usize::try_from(received).map_err(|_| Error::last_os_error())?;
    let filled = (message.control_len as usize).min(size_of_val(&control));
    // SAFETY: the first `filled` bytes belong to the array, and any bytes are valid.
    let control = unsafe { std::slice::from_raw_parts(control.as_ptr().cast::<u8>(), filled) };
    let fds = take_descriptors(control);
    let beside = !fds.is_empty() || message.flags & MSG_CTRUNC != 0;
    Ok((received, beside.then_some(fds)))
}

fn take_descriptors(mut control: &[u8]) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    while control.len() >= CMSG_DATA_AT {
        // SAFETY: the slice is long enough, any bytes are a valid header, and the read needs no alignment.
        let header = unsafe { control.as_ptr().cast::<ControlHeader>().read_unaligned() };
        let len = (header.len as u64 as usize).clamp(CMSG_DATA_AT, control.len());
        if header.level == SOL_SOCKET && header.kind == SCM_RIGHTS {
            for number in control[CMSG_DATA_AT..len].as_chunks::<4>().0 {
                let number = RawFd::from_ne_bytes(*number);
                // SAFETY: the kernel has just made the descriptor for this process. No fork happens before it is
                // marked.
                fds.push(unsafe {
                    fcntl(number, F_SETFD, FD_CLOEXEC);
                    OwnedFd::from_raw_fd(number)
                });
            }
        }
        control = &control[len.next_multiple_of(CMSG_ALIGN).min(control.len())..];
    }
    fds
}

/// Duplicates a descriptor to a number at or above `from`. The copy closes on exec.
pub(crate) fn duplicate_above(fd: RawFd, from: RawFd) -> Result<RawFd> {
    // SAFETY: integers.
    let copy = check(unsafe { fcntl(fd, F_DUPFD, from) })?;
    // SAFETY: integers.
    check(unsafe { fcntl(copy, F_SETFD, FD_CLOEXEC) })?;
    Ok(copy)
}

/// Closes the descriptors that the host left open for its children: from 3 up to the limit, which may be absurdly high.
pub(crate) fn close_inherited() {
    const ENOUGH: u64 = 65_536;
    let limit = open_files().map_or(ENOUGH, |limit| limit.soft.min(ENOUGH));
    for fd in 3..limit as RawFd {
        // SAFETY: this is the first call of the program, which owns no descriptor from 3 on yet.
        unsafe { close(fd) };
    }
}

/// Returns how many descriptors may be open.
pub(crate) fn open_files() -> Result<ResourceLimit> {
    let mut limit = ResourceLimit::default();
    // SAFETY: the result lives through the call.
    check(unsafe { getrlimit(RLIMIT_NOFILE, &raw mut limit) })?;
    Ok(limit)
}

pub(crate) fn set_open_files(limit: ResourceLimit) -> Result<()> {
    set_limit(RLIMIT_NOFILE, limit)
}

pub(crate) fn set_limit(resource: c_int, limit: ResourceLimit) -> Result<()> {
    // SAFETY: the limit lives through the call.
    check(unsafe { setrlimit(resource, &raw const limit) }).map(drop)
}

pub(crate) fn set_nice(nice: c_int) -> Result<()> {
    // SAFETY: integers.
    check(unsafe { setpriority(PRIO_PROCESS, 0, nice) }).map(drop)
}

/// Returns one descriptor to wait for.
pub(crate) fn waiting(fd: &impl AsRawFd, events: i16) -> PollFd {
    PollFd { fd: fd.as_raw_fd(), events, revents: 0 }
}
