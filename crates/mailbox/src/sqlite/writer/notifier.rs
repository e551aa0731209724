//! Wakes the other processes that use the file. After each commit that may concern others, a process writes
//! one byte to a file beside the mailbox. Processes with waiting operations watch that file.
//!
//! Watching the mailbox file or its log would not work: both change before a commit is visible. A
//! notification is only a hint: if one is lost, the next regular look finds the commit. The name of the file
//! ends in `-bell` for compatibility with all earlier versions.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::sqlite::storage::lock_wait::WriteTurn;
use crate::sqlite::storage::{beside, ownership};

pub(crate) struct Notifier {
    path: PathBuf,
    file: Option<File>,
    watch: Option<OwnedFd>,
}

impl Notifier {
    pub(crate) fn of(path: &Path) -> Self {
        let mut notifier = Self { path: beside(path, "-bell"), file: None, watch: None };
        notifier.renew();
        notifier
    }

    /// Tells other processes that there may be a message to receive or a reply.
    pub(crate) fn notify(&self) {
        // Always the same byte at the same place: the file must not grow, and its content does not matter.
        let written = self.file.as_ref().map(|file| file.write_at(b"!", 0));
        if let Some(Err(error)) = written {
            tracing::debug!(path = %self.path.display(), %error, "a mailbox cannot notify other processes");
        }
    }

    /// Waits for the turn of this process to write. The lock is on the notifier's file, because that is the
    /// only file beside the mailbox that SQLite does not use.
    pub(crate) fn write_turn(&self) -> WriteTurn<'_> {
        WriteTurn::take(self.file.as_ref())
    }

    /// Returns a descriptor that becomes readable after a notification. `None` on systems that cannot watch
    /// files.
    pub(crate) fn notified(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }

    /// Discards all notifications so far.
    pub(crate) fn clear(&self) {
        if let Some(watch) = &self.watch {
            drain(watch);
        }
    }

    /// Opens the notification file again if it was removed or replaced, so that all processes use the same
    /// file.
    pub(crate) fn renew(&mut self) {
        let here = self.file.as_ref().and_then(|file| file.metadata().ok()).map(|it| (it.dev(), it.ino()));
        let there = std::fs::symlink_metadata(&self.path).ok().map(|it| (it.dev(), it.ino()));
        if here.is_some() && here == there {
            return;
        }
        match ownership::open_own(&self.path) {
            Ok(file) => {
                self.file = Some(file);
                self.watch = watch(&self.path);
            }
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "a mailbox cannot be notified of the commits of others: it sees them late");
            }
        }
    }
}

/// Returns a descriptor that becomes readable after a write to the file. `None` if the file cannot be
/// watched.
#[cfg(target_os = "linux")]
fn watch(path: &Path) -> Option<OwnedFd> {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    let watch = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
        .and_then(|fd| add_watch(&fd, path, WatchFlags::MODIFY | WatchFlags::DONT_FOLLOW).map(|_| fd));
    if let Err(error) = &watch {
        tracing::warn!(path = %path.display(), %error, "a mailbox cannot watch for the commits of others: it sees them late");
    }
    watch.ok()
}

#[cfg(target_os = "linux")]
fn drain(watch: &OwnedFd) {
    let mut buffer = [std::mem::MaybeUninit::<u8>::uninit(); 1024];
    let mut reader = rustix::fs::inotify::Reader::new(watch, &mut buffer);
    while reader.next().is_ok() {}
}

#[cfg(not(target_os = "linux"))]
fn watch(_: &Path) -> Option<OwnedFd> {
    None
}

#[cfg(not(target_os = "linux"))]
fn drain(_: &OwnedFd) {}
