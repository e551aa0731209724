//! The tag: a file that every hostile process keeps mapped, so that a test finds the process without custody.
//!
//! A mapping survives fork, setsid, an empty environment, closed descriptors and changed credentials; a
//! program that executes itself again carries an open descriptor across. Two questions can be put to it:
//! *who* holds it (`/proc/*/maps`, see [`crate::census`]), and, free of races, whether *anybody* does: the
//! kernel grants a write lease only if nobody else has the file open or mapped. The end of the last
//! mapping closes the file, and inotify tells us, so nothing is polled.

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
/// Chooses the signal that announces a broken lease; the libc crate has no name for it on this target.
const F_SETSIG: libc::c_int = 10;

/// The test's side of a tag.
#[derive(Debug)]
pub struct Tag {
    path: PathBuf,
    file: File,
    watch: OwnedFd,
}

impl Tag {
    /// Makes the file `name` in `dir`; the name has to be unique on this machine.
    pub fn create(dir: &Path, name: &str) -> io::Result<Self> {
        let path = dir.join(name);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o644).open(&path)?;
        file.set_len(PAGE as u64)?;
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        inotify::add_watch(&watch, &path, inotify::WatchFlags::CLOSE_NOWRITE)?;
        Ok(Self { path, file, watch })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether no process has the file open or mapped.
    pub fn is_free(&self) -> bool {
        // A lease that is broken is announced by SIGIO, which would end us; SIGURG is ignored by default. To give
        // a lease back forgets the choice, so it is made anew for each.
        // SAFETY: fcntl on a descriptor we own, with an integer argument.
        let chosen = unsafe { libc::fcntl(self.file.as_raw_fd(), F_SETSIG, libc::SIGURG) };
        assert_eq!(chosen, 0, "choose the lease's signal: {}", io::Error::last_os_error());
        let lease = |kind: i32| {
            // SAFETY: fcntl on a descriptor we own, with an integer argument.
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

    /// Waits until nobody holds it. False: the deadline came first.
    pub fn is_free_before(&self, deadline: Deadline) -> bool {
        loop {
            // Emptied before the question, so that a close after it wakes us.
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

    /// Tells holders that fork faster than they can be killed to exit.
    pub fn halt(&self) {
        self.file.write_all_at(&[1], 0).expect("write to the tag");
    }
}

/// A hostile process's side: mapped until the process ends.
#[derive(Debug)]
pub struct TagMapping {
    page: *const AtomicU8,
    fd: RawFd,
}

impl TagMapping {
    /// Maps the tag. The descriptor stays open until [`TagMapping::close`], so that an exec can pass it on.
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
        // SAFETY: a fresh shared read-only mapping of a file of one page; nothing is overwritten.
        let page =
            unsafe { libc::mmap(std::ptr::null_mut(), PAGE, libc::PROT_READ, libc::MAP_SHARED, fd, 0) };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { page: page.cast(), fd })
    }

    /// Whether the test asks the process to exit.
    pub fn halted(&self) -> bool {
        // SAFETY: the page stays mapped and readable as long as the process lives.
        unsafe { &*self.page }.load(Ordering::Relaxed) != 0
    }

    /// The descriptor, for an exec.
    pub fn fd(&self) -> RawFd {
        self.fd
    }

    /// Closes the descriptor; the mapping stays.
    pub fn close(&self) {
        // SAFETY: the descriptor came from `open` or was passed to us, and is used nowhere afterwards.
        drop(unsafe { OwnedFd::from_raw_fd(self.fd) });
    }
}
