//! Writing under a limit on the size of files (`ulimit -f`): an error in words in the place of SIGXFSZ, which ends a
//! process without one.
//!
//! A library must not change what signals do in its host. So the signal is blocked in the calling thread alone and for
//! as long as it writes, and what came of it is taken away before it is let in again. The kernel sends it to the very
//! thread that writes.

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Does something that writes to files. Where a limit on their size is in the way, the host is not killed by SIGXFSZ,
/// and the error names the limit.
pub fn catch_file_size_limit<T>(write: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    without_file_size_signal(write).map_err(in_words)
}

/// The same for what has errors of its own.
pub fn without_file_size_signal<T>(write: impl FnOnce() -> T) -> T {
    let _blocked = Blocked::new();
    write()
}

/// What the system says of the limit, and what to do about it.
pub(crate) fn in_words(error: io::Error) -> io::Error {
    if error.raw_os_error() == Some(libc::EFBIG) {
        let words = "the limit on the size of files is too low: raise it with `ulimit -f unlimited`";
        return io::Error::new(io::ErrorKind::FileTooLarge, words);
    }
    error
}

/// SIGXFSZ is blocked in the thread that has made this, until it is dropped.
pub(crate) struct Blocked {
    /// The mask to go back to, unless the signal was blocked before.
    before: Option<libc::sigset_t>,
    /// A mask belongs to a thread.
    of_this_thread: PhantomData<*const ()>,
}

impl Blocked {
    pub(crate) fn new() -> Self {
        let (signal, mut before) = (signal(), MaybeUninit::uninit());
        // SAFETY: both sets are valid for the call, which fills the second one. It fails only for a wrong first
        // argument, and then nothing is undone.
        let before = unsafe {
            if libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signal, before.as_mut_ptr()) == 0 {
                let before = before.assume_init();
                (libc::sigismember(&raw const before, libc::SIGXFSZ) == 0).then_some(before)
            } else {
                None
            }
        };
        Self { before, of_this_thread: PhantomData }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            take_pending();
            // SAFETY: the set is valid, and nothing is read back.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const *before, std::ptr::null_mut()) };
        }
    }
}

fn signal() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset fills the set, and the signal is one that exists.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGXFSZ);
        set.assume_init()
    }
}

#[cfg(not(target_vendor = "apple"))]
fn take_pending() {
    let (signal, now) = (signal(), libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: the set and the time are valid, and nothing is asked about the signal.
    while unsafe { libc::sigtimedwait(&raw const signal, std::ptr::null_mut(), &raw const now) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}

/// Without a wait that has an end: only what is seen to be there is taken.
#[cfg(target_vendor = "apple")]
fn take_pending() {
    let (signal, mut pending, mut taken) = (signal(), MaybeUninit::uninit(), 0);
    // SAFETY: sigpending fills the set, and sigwait comes back at once, since a signal of it is pending.
    unsafe {
        if libc::sigpending(pending.as_mut_ptr()) == 0
            && libc::sigismember(pending.as_ptr(), libc::SIGXFSZ) == 1
        {
            libc::sigwait(&raw const signal, &raw mut taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Not a test by itself: the process that has the limit. A limit is for good, and a whole process's.
    #[test]
    fn a_limited_process() {
        if std::env::var_os("SNAKEPIT_TEST_LIMITED").is_none() {
            return;
        }
        let limit = libc::rlimit { rlim_cur: 100, rlim_max: 100 };
        // SAFETY: sets a limit of this very process.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
        let mut file = tempfile::tempfile().unwrap();
        for _ in 0..3 {
            let error = catch_file_size_limit(|| file.write_all(&[0; 200])).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
            assert!(error.to_string().contains("ulimit -f"), "{error}");
        }
        // As outside, once it is over: this ends the process.
        let _ = file.write_all(&[0; 200]);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the process is this very program")]
    fn the_limit_is_an_error_inside_and_the_signal_that_it_was_outside() {
        use std::os::unix::process::ExitStatusExt;
        let mut process = std::process::Command::new(std::env::current_exe().unwrap());
        process.args(["--exact", "file_limit::tests::a_limited_process"]).env("SNAKEPIT_TEST_LIMITED", "1");
        let output = process.output().unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGXFSZ), "{output:?}");
    }
}
