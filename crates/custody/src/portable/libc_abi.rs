//! The constants and structures of each system that the portable keeper uses.
//!
//! Compiled into the keeper, which is built from std alone, and into the library, which compares each of them with the
//! libc crate at compile time, for every target system (`libc_check.rs`).

use std::ffi::{c_int, c_uint, c_void};

pub(crate) const SIGHUP: c_int = 1;
pub(crate) const SIGINT: c_int = 2;
pub(crate) const SIGQUIT: c_int = 3;
pub(crate) const SIGKILL: c_int = 9;
pub(crate) const SIGPIPE: c_int = 13;
pub(crate) const SIGTERM: c_int = 15;
pub(crate) const SIGTTIN: c_int = 21;
pub(crate) const SIGTTOU: c_int = 22;
pub(crate) const SIGXFSZ: c_int = 25;
pub(crate) const WNOHANG: c_int = 1;
pub(crate) const SCM_RIGHTS: c_int = 1;
pub(crate) const CLD_STOPPED: c_int = 5;
pub(crate) const CLD_CONTINUED: c_int = 6;
pub(crate) const F_DUPFD: c_int = 0;
pub(crate) const F_SETFD: c_int = 2;
pub(crate) const FD_CLOEXEC: c_int = 1;
pub(crate) const PRIO_PROCESS: c_int = 0;
pub(crate) const POLLIN: i16 = 1;
pub(crate) const POLLOUT: i16 = 4;
pub(crate) const ESRCH: c_int = 3;
pub(crate) const EINVAL: c_int = 22;
pub(crate) const EMFILE: c_int = 24;
/// The offset of the code in `siginfo_t`. Its first word is the signal on every system.
pub(crate) const SI_CODE_AT: usize = 8;

pub(crate) use system::*;

#[cfg(target_os = "linux")]
mod system {
    use std::ffi::{c_int, c_uint, c_ulong};

    pub(crate) const SIGCHLD: c_int = 17;
    pub(crate) const SIGTSTP: c_int = 20;
    pub(crate) const SIG_SETMASK: c_int = 2;
    pub(crate) const WEXITED: c_int = 4;
    pub(crate) const WSTOPPED: c_int = 2;
    pub(crate) const WCONTINUED: c_int = 8;
    pub(crate) const WNOWAIT: c_int = 0x0100_0000;
    pub(crate) const P_PID: c_uint = 1;
    pub(crate) const SOL_SOCKET: c_int = 1;
    pub(crate) const MSG_CTRUNC: c_int = 8;
    pub(crate) const RLIMIT_NOFILE: c_int = 7;
    pub(crate) const SI_STATUS_AT: usize = 24;
    /// The offset of the data in an ancillary message.
    pub(crate) const CMSG_DATA_AT: usize = 16;
    pub(crate) const CMSG_ALIGN: usize = 8;
    /// The number of bytes per unit of `ru_maxrss`.
    pub(crate) const RSS_UNIT: u64 = 1024;
    pub(crate) type Id = c_uint;
    pub(crate) type PollCount = c_ulong;
    pub(crate) type SliceCount = usize;
    pub(crate) type ControlLength = usize;
}

#[cfg(target_os = "macos")]
mod system {
    use std::ffi::{c_int, c_uint};

    pub(crate) const SIGCHLD: c_int = 20;
    pub(crate) const SIGTSTP: c_int = 18;
    pub(crate) const SIG_SETMASK: c_int = 3;
    pub(crate) const WEXITED: c_int = 4;
    pub(crate) const WSTOPPED: c_int = 8;
    pub(crate) const WCONTINUED: c_int = 0x10;
    pub(crate) const WNOWAIT: c_int = 0x20;
    pub(crate) const P_PID: c_uint = 1;
    pub(crate) const SOL_SOCKET: c_int = 0xFFFF;
    pub(crate) const MSG_CTRUNC: c_int = 0x20;
    pub(crate) const RLIMIT_NOFILE: c_int = 8;
    pub(crate) const SI_STATUS_AT: usize = 20;
    pub(crate) const CMSG_DATA_AT: usize = 12;
    pub(crate) const CMSG_ALIGN: usize = 4;
    pub(crate) const RSS_UNIT: u64 = 1;
    pub(crate) type Id = c_uint;
    pub(crate) type PollCount = c_uint;
    pub(crate) type SliceCount = c_int;
    pub(crate) type ControlLength = u32;
}

#[cfg(target_os = "freebsd")]
mod system {
    use std::ffi::{c_int, c_uint};

    pub(crate) const SIGCHLD: c_int = 20;
    pub(crate) const SIGTSTP: c_int = 18;
    pub(crate) const SIG_SETMASK: c_int = 3;
    pub(crate) const WEXITED: c_int = 16;
    pub(crate) const WSTOPPED: c_int = 2;
    pub(crate) const WCONTINUED: c_int = 4;
    pub(crate) const WNOWAIT: c_int = 8;
    pub(crate) const P_PID: c_uint = 0;
    pub(crate) const SOL_SOCKET: c_int = 0xFFFF;
    pub(crate) const MSG_CTRUNC: c_int = 0x20;
    pub(crate) const RLIMIT_NOFILE: c_int = 8;
    pub(crate) const SI_STATUS_AT: usize = 20;
    pub(crate) const CMSG_DATA_AT: usize = 16;
    pub(crate) const CMSG_ALIGN: usize = 8;
    pub(crate) const RSS_UNIT: u64 = 1024;
    pub(crate) type Id = i64;
    pub(crate) type PollCount = c_uint;
    pub(crate) type SliceCount = c_int;
    pub(crate) type ControlLength = u32;
}

/// `struct iovec`.
#[repr(C)]
pub(crate) struct IoSlice {
    pub(crate) at: *mut c_void,
    pub(crate) len: usize,
}

/// `struct msghdr`.
#[repr(C)]
pub(crate) struct MessageHeader {
    pub(crate) name: *mut c_void,
    pub(crate) name_len: c_uint,
    pub(crate) slices: *mut IoSlice,
    pub(crate) slice_count: SliceCount,
    pub(crate) control: *mut c_void,
    pub(crate) control_len: ControlLength,
    pub(crate) flags: c_int,
}

/// `struct cmsghdr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ControlHeader {
    pub(crate) len: ControlLength,
    pub(crate) level: c_int,
    pub(crate) kind: c_int,
}

/// `struct pollfd`.
#[repr(C)]
pub(crate) struct PollFd {
    pub(crate) fd: c_int,
    pub(crate) events: i16,
    pub(crate) revents: i16,
}

/// `struct rlimit`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ResourceLimit {
    pub(crate) soft: u64,
    pub(crate) hard: u64,
}

/// `struct timeval`. If the system's microseconds have 64 bits, these are the lower 32. If they have 32 bits, padding
/// follows.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct TimeValue {
    pub(crate) seconds: i64,
    pub(crate) micros: u32,
    pub(crate) rest: u32,
}

impl TimeValue {
    pub(crate) fn in_micros(self) -> u64 {
        self.seconds.cast_unsigned() * 1_000_000 + u64::from(self.micros)
    }
}

/// `struct rusage`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) user: TimeValue,
    pub(crate) system: TimeValue,
    pub(crate) max_rss: i64,
    pub(crate) rest: [i64; 13],
}

/// Room for any system's `siginfo_t`.
#[repr(C, align(8))]
pub(crate) struct SignalInfo(pub(crate) [u8; 128]);

/// Room for any system's `sigset_t`. The system's own calls fill it.
#[repr(C, align(8))]
pub(crate) struct SignalSet(pub(crate) [u8; 128]);
