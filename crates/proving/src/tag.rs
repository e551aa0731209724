//! The tag: a file that every hostile process keeps mapped, so that a test finds the process without custody.
//!
//! A mapping survives fork, setsid, an empty environment, closed descriptors and changed credentials. A program that
//! executes itself again passes on an open descriptor. The tag answers two questions: *which* processes hold it
//! (`/proc/*/maps`, see [`crate::census`]), and, free of races, whether *any* process does. The kernel grants a write
//! lease only if no other process has the file open or mapped. The end of the last mapping closes the file, and inotify
//! reports it, so nothing is polled.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::event::PollFd;
use rustix::fs::inotify;

use crate::Deadline;
use crate::deadline::READABLE;

const PAGE: usize = 4096;
/// Chooses the signal that announces a broken lease. The libc crate has no name for it on this target.
const F_SETSIG: libc::c_int = 10;

/// The test's side of a tag.
#[derive(Debug)]
pub struct Tag {
    path: PathBuf,
    file: File,
    watch: OwnedFd,
}

impl Tag {
    /// Creates the file `name` in `dir`. The name must be unique on this machine.
    pub fn create(dir: &Path, name: &str) -> io::Result<Self> {
        let path = dir.join(name);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o644).open(&path)?;
        file.set_len(PAGE as u64)?;
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        inotify::add_watch(&watch, &path, inotify::WatchFlags::CLOSE_NOWRITE)?;
        Ok(Self { path, file, watch })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reports whether no process has the file open or mapped.
    pub fn is_free(&self) -> bool {
        // A broken lease is announced by SIGIO, which would end this process. SIGURG is ignored by default. Releasing a
        // lease discards the choice, so it is set for each lease.
        // SAFETY: fcntl on a descriptor that we own, with an integer argument.
        let chosen = unsafe { libc::fcntl(self.file.as_raw_fd(), F_SETSIG, libc::SIGURG) };
        assert_eq!(chosen, 0, "choose the lease's signal: {}", io::Error::last_os_error());
        let lease = |kind: i32| {
            // SAFETY: fcntl on a descriptor that we own, with an integer argument.
            unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_SETLEASE, kind) }
        };
        if lease(libc::F_WRLCK) == 0 {
            assert_eq!(lease(libc::F_UNLCK), 0, "give the lease back");
            return true;
        }
        let error = io::Error::last_os_error();
        assert_eq!(error.raw_os_error(), Some(libc::EAGAIN), "lease on the tag: {error}");
        false
    }

    /// Waits until no process holds the tag. Returns `false` if the deadline came first.
    pub fn is_free_before(&self, deadline: Deadline) -> bool {
        loop {
            // Emptied before the question, so that a later close wakes this thread.
            let mut events = [0_u8; 4096];
            while rustix::io::read(&self.watch, &mut events).is_ok_and(|count| count > 0) {}
            if self.is_free() {
                return true;
            }
            if !deadline.readable(&mut [PollFd::new(&self.watch, READABLE)]) {
                return self.is_free();
            }
        }
    }

    /// Tells holders to exit that fork faster than they can be killed.
    pub fn halt(&self) {
        self.file.write_all_at(&[1], 0).expect("write to the tag");
    }
}

/// A hostile process's side of a tag, mapped until the process ends.
#[derive(Debug)]
pub struct TagMapping {
    page: *const AtomicU8,
    fd: RawFd,
}

impl TagMapping {
    /// Maps the tag. The descriptor stays open until [`TagMapping::close`], so an exec can pass it on.
    pub fn put_on(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_CLOEXEC).open(path)?;
        let fd = std::os::fd::IntoRawFd::into_raw_fd(file);
        Self::map(fd)
    }

    /// Maps the tag again after an exec that passed its descriptor.
    pub fn put_on_again(fd: RawFd) -> io::Result<Self> {
        Self::map(fd)
    }

    fn map(fd: RawFd) -> io::Result<Self> {
        // SAFETY: a fresh shared read-only mapping of a file of one page. Nothing is overwritten.
        let page =
            unsafe { libc::mmap(std::ptr::null_mut(), PAGE, libc::PROT_READ, libc::MAP_SHARED, fd, 0) };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { page: page.cast(), fd })
    }

    /// Reports whether the test asks the process to exit.
    pub fn halted(&self) -> bool {
        // SAFETY: the page stays mapped and readable as long as the process lives.
        unsafe { &*self.page }.load(Ordering::Relaxed) != 0
    }

    /// Returns the descriptor, for an exec.
    pub fn fd(&self) -> RawFd {
        self.fd
    }

    /// Closes the descriptor. The mapping stays.
    pub fn close(&self) {
        // SAFETY: the descriptor came from `open` or was passed to us, and is not used afterwards.
        drop(unsafe { OwnedFd::from_raw_fd(self.fd) });
    }
}
