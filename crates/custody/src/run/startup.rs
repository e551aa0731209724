//! How the host was started: the signals and standard streams that it inherited, recorded before `main`.
//!
//! Before `main`, the Rust runtime ignores SIGPIPE and opens /dev/null over closed standard streams, and the host may
//! change more. A worker has to find what the host found, so a constructor records it. The loader runs the constructor
//! first, without a call from the host.

use std::sync::atomic::{AtomicU64, Ordering};

static IGNORED: AtomicU64 = AtomicU64::new(0);
static BLOCKED: AtomicU64 = AtomicU64::new(0);
static CLOSED: AtomicU64 = AtomicU64::new(0);

#[used]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
static NOTE_STARTUP: extern "C" fn() = note_startup;

extern "C" fn note_startup() {
    let mut ignored = 0;
    for signal in 1..=64 {
        // SAFETY: the all-zero sigaction is valid, and the call only reads the current action into it.
        let action = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &raw mut action) != 0 {
                continue;
            }
            action
        };
        if action.sa_sigaction == libc::SIG_IGN {
            ignored |= 1 << (signal - 1);
        }
    }
    let mut blocked = 0;
    // SAFETY: the call only reads the current mask into `set`, and every requested signal is in range.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &raw mut set);
        for signal in 1..=64 {
            if libc::sigismember(&raw const set, signal) == 1 {
                blocked |= 1 << (signal - 1);
            }
        }
    }
    let mut closed = 0;
    for fd in 0..3 {
        // SAFETY: the call only reads flags.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            closed |= 1 << fd;
        }
    }
    IGNORED.store(ignored, Ordering::Relaxed);
    BLOCKED.store(blocked, Ordering::Relaxed);
    CLOSED.store(closed, Ordering::Relaxed);
}

/// Returns the signals that were ignored when the host was started. Bit n-1 is signal n.
pub(crate) fn ignored_signals() -> u64 {
    IGNORED.load(Ordering::Relaxed)
}

/// Returns the signals that were blocked when the host was started.
pub(crate) fn blocked_signals() -> u64 {
    BLOCKED.load(Ordering::Relaxed)
}

/// Returns which of standard input, output and error were closed when the host was started.
pub fn closed_stdio() -> [bool; 3] {
    let closed = CLOSED.load(Ordering::Relaxed);
    [0, 1, 2].map(|fd| closed & (1 << fd) != 0)
}
