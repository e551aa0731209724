//! Packets with descriptors, and waiting for them.

use std::ffi::{c_int, c_long, c_ulong, c_void};
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::{ECONNRESET, EPROTO, check, check_long, errno, owned, retry};

pub(crate) const POLLIN: i16 = 1;
pub(crate) const POLLPRI: i16 = 2;
pub(crate) const POLLOUT: i16 = 4;

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

unsafe extern "C" {
    fn socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int;
    fn sendmsg(fd: c_int, msg: *const Msghdr, flags: c_int) -> isize;
    fn recvmsg(fd: c_int, msg: *mut Msghdr, flags: c_int) -> isize;
    fn poll(fds: *mut PollFd, count: c_ulong, timeout: c_int) -> c_int;
    fn epoll_create1(flags: c_int) -> c_int;
    fn epoll_ctl(epoll: c_int, op: c_int, fd: c_int, event: *mut EpollEvent) -> c_int;
    fn epoll_wait(epoll: c_int, events: *mut EpollEvent, max: c_int, timeout: c_int) -> c_int;
}

/// Creates a pair of connected packet sockets that close on exec.
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

/// Sends one packet with descriptors. Never raises SIGPIPE and never blocks: it fails with `WouldBlock` instead.
pub(crate) fn send(socket: RawFd, bytes: &[u8], fds: &[RawFd]) -> Result<()> {
    const MSG_DONTWAIT_NOSIGNAL: c_int = 0x40 | 0x4000;
    // Eight-byte units align the control buffer as a cmsghdr requires.
    let mut control = [0u64; 2 + 128];
    assert!(fds.len() <= 256, "more descriptors than a packet takes");
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
        // SAFETY: the buffer holds the header and up to 256 descriptors.
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

/// Receives one packet with its descriptors. Length 0 means the end of the stream.
pub(crate) fn receive(socket: RawFd, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>)> {
    const MSG_DONTWAIT: c_int = 0x40;
    receive_with(socket, bytes, MSG_DONTWAIT)
}

/// Like [`receive`], but waits for a packet.
pub(crate) fn receive_blocking(socket: RawFd, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>)> {
    receive_with(socket, bytes, 0)
}

fn receive_with(socket: RawFd, bytes: &mut [u8], flags: c_int) -> Result<(usize, Vec<OwnedFd>)> {
    const MSG_CMSG_CLOEXEC: c_int = 0x4000_0000;
    const MSG_CTRUNC: c_int = 0x8;
    const MSG_TRUNC: c_int = 0x20;
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
    let mut receive = || {
        retry(|| {
            msg.controllen = size_of_val(&control);
            // SAFETY: `msg` points to buffers that live through the call, with their true lengths.
            check_long(unsafe { recvmsg(socket, &raw mut msg, flags | MSG_CMSG_CLOEXEC) } as c_long)
        })
    };
    // A peer that ended with unread messages causes this error. The error is reported once, before the peer's last
    // messages.
    let received = match receive() {
        Err(error) if errno(&error) == ECONNRESET => receive()?,
        result => result?,
    };
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
    if msg.flags & MSG_TRUNC != 0 {
        return Err(Error::from_raw_os_error(EPROTO));
    }
    if msg.flags & MSG_CTRUNC != 0 {
        // The process has no free descriptor. Some of the descriptors would be worse than none.
        fds.clear();
    }
    Ok((received as usize, fds))
}

/// Waits until one of the descriptors is ready or the time is over.
pub(crate) fn poll_any(fds: &mut [PollFd], timeout_ms: c_int) -> Result<()> {
    // SAFETY: pointer and length belong to one slice.
    retry(|| check(unsafe { poll(fds.as_mut_ptr(), fds.len() as c_ulong, timeout_ms) }))?;
    Ok(())
}

/// Returns whether the process of a pidfd has ended.
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

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub(crate) fn add(&self, fd: RawFd, data: u64) -> Result<()> {
        const EPOLL_CTL_ADD: c_int = 1;
        const EPOLLIN: u32 = 1;
        let mut event = EpollEvent { events: EPOLLIN, data };
        // SAFETY: `event` lives through the call.
        check(unsafe { epoll_ctl(self.0.as_raw_fd(), EPOLL_CTL_ADD, fd, &raw mut event) })?;
        Ok(())
    }

    /// Removes a descriptor. Closing is not enough once a forked copy of the descriptor exists.
    pub(crate) fn remove(&self, fd: RawFd) {
        const EPOLL_CTL_DEL: c_int = 2;
        let mut event = EpollEvent::default();
        // SAFETY: `event` lives through the call. Removing a descriptor that was never added does no harm.
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
