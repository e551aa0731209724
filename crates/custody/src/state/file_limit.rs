//! Writes under a limit on the size of files (`ulimit -f`): the write returns an error that names the limit, instead of
//! raising SIGXFSZ, which ends the process.
//!
//! A library must not change what signals do in its host. So the signal is blocked only in the writing thread and only
//! during the write, and a pending signal is consumed before it is unblocked. The kernel sends SIGXFSZ to the thread
//! that writes.

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Runs a function that writes to files. If it reaches a limit on their size, SIGXFSZ does not kill the host, and the
/// error names the limit.
///
/// ```no_run
/// let path = std::path::Path::new("report.json");
/// snakepit_custody::catch_file_size_limit(|| std::fs::write(path, "{}"))?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn catch_file_size_limit<T>(write: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    without_file_size_signal(write).map_err(in_words)
}

/// Like [`catch_file_size_limit`], for writers with their own error types.
pub fn without_file_size_signal<T>(write: impl FnOnce() -> T) -> T {
    let _blocked = SignalBlock::new();
    write()
}

/// Replaces the system's error for the limit by an error that says what to do.
pub(crate) fn in_words(error: io::Error) -> io::Error {
    if error.raw_os_error() == Some(libc::EFBIG) {
        let words = "the limit on the size of files is too low: raise it with `ulimit -f unlimited`";
        return io::Error::new(io::ErrorKind::FileTooLarge, words);
    }
    error
}

/// Blocks SIGXFSZ in the current thread until this value is dropped.
pub(crate) struct SignalBlock {
    /// The mask to restore, unless the signal was blocked before.
    before: Option<libc::sigset_t>,
    /// Keeps the value in its thread, because a mask belongs to a thread.
    of_this_thread: PhantomData<*const ()>,
}

impl SignalBlock {
    pub(crate) fn new() -> Self {
        let (signal, mut before) = (signal(), MaybeUninit::uninit());
        // SAFETY: both sets are valid for the call, which fills the second one. It fails only for a wrong first
        // argument, and then nothing is restored later.
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

impl Drop for SignalBlock {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            take_pending();
            // SAFETY: the set is valid, and the previous mask is not requested.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const *before, std::ptr::null_mut()) };
        }
    }
}

fn signal() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset fills the set, and the signal exists.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGXFSZ);
        set.assume_init()
    }
}

#[cfg(not(target_vendor = "apple"))]
fn take_pending() {
    let (signal, now) = (signal(), libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: the set and the time are valid, and no information about the signal is requested.
    while unsafe { libc::sigtimedwait(&raw const signal, std::ptr::null_mut(), &raw const now) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}

/// Does the same without `sigtimedwait`: waits only if the signal is pending.
#[cfg(target_vendor = "apple")]
fn take_pending() {
    let (signal, mut pending, mut taken) = (signal(), MaybeUninit::uninit(), 0);
    // SAFETY: sigpending fills the set, and sigwait returns at once, because such a signal is pending.
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

    /// Not a test on its own: the process with the limit, which applies to a whole process and cannot be undone.
    #[test]
    fn a_limited_process() {
        if std::env::var_os("SNAKEPIT_TEST_LIMITED").is_none() {
            return;
        }
        let limit = libc::rlimit { rlim_cur: 100, rlim_max: 100 };
        // SAFETY: sets a limit of this process only.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
        let mut file = tempfile::tempfile().unwrap();
        for _ in 0..3 {
            let error = catch_file_size_limit(|| file.write_all(&[0; 200])).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
            assert!(error.to_string().contains("ulimit -f"), "{error}");
        }
        // Outside of the block, the signal acts as before and ends the process.
        let _ = file.write_all(&[0; 200]);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the process is this program")]
    fn the_limit_is_an_error_inside_and_still_a_signal_outside() {
        use std::os::unix::process::ExitStatusExt;
        let mut process = std::process::Command::new(std::env::current_exe().unwrap());
        process
            .args(["--exact", "state::file_limit::tests::a_limited_process"])
            .env("SNAKEPIT_TEST_LIMITED", "1");
        let output = process.output().unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGXFSZ), "{output:?}");
    }
}
