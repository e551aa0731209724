//! The bell beside the file: whoever has committed something for others to receive writes to it, whoever waits watches it.
//!
//! Watching the file itself, or its log, would not do: they change before a commit can be seen. The bell rings after that. It
//! is a hint and no more: a ring that is lost is made up for by the next look at the file.

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::{beside, private};

/// One end of the bell: it rings, and it hears.
pub(super) struct Bell {
    path: PathBuf,
    file: Option<File>,
    watch: Watch,
}

impl Bell {
    pub(super) fn of(path: &Path) -> Self {
        let mut bell = Self { path: beside(path, "-bell"), file: None, watch: Watch::none() };
        bell.renew();
        bell
    }

    /// Others may have something to receive.
    pub(super) fn ring(&self) {
        // Always the same byte: the file must not grow, and what it says does not matter.
        let rung = self.file.as_ref().map(|file| file.write_at(b"!", 0));
        if let Some(Err(error)) = rung {
            tracing::debug!(path = %self.path.display(), %error, "the bell of a mailbox cannot be rung");
        }
    }

    /// Readable when it has rung. None where the system cannot watch a file.
    pub(super) fn heard(&self) -> Option<BorrowedFd<'_>> {
        self.watch.fd()
    }

    /// Forgets all rings so far.
    pub(super) fn quiet(&self) {
        self.watch.drain();
    }

    /// Makes sure that the bell is the one that others know: somebody may have removed it.
    pub(super) fn renew(&mut self) {
        let here = self.file.as_ref().and_then(|file| file.metadata().ok()).map(|it| (it.dev(), it.ino()));
        let there = std::fs::symlink_metadata(&self.path).ok().map(|it| (it.dev(), it.ino()));
        if here.is_some() && here == there {
            return;
        }
        match private::open_own(&self.path) {
            Ok(file) => {
                self.file = Some(file);
                self.watch = Watch::on(&self.path);
            }
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "a mailbox has no bell: others are heard late");
            }
        }
    }
}

#[cfg(target_os = "linux")]
use inotify::Watch;
#[cfg(not(target_os = "linux"))]
use nothing::Watch;

#[cfg(target_os = "linux")]
mod inotify {
    use std::mem::MaybeUninit;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::path::Path;

    use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};

    pub(super) struct Watch(Option<OwnedFd>);

    impl Watch {
        pub(super) fn none() -> Self {
            Self(None)
        }

        pub(super) fn on(path: &Path) -> Self {
            let watch = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).and_then(|fd| {
                add_watch(&fd, path, WatchFlags::MODIFY | WatchFlags::DONT_FOLLOW).map(|_| fd)
            });
            if let Err(error) = &watch {
                tracing::warn!(path = %path.display(), %error, "a mailbox's bell cannot be watched: others are heard late");
            }
            Self(watch.ok())
        }

        pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
            self.0.as_ref().map(AsFd::as_fd)
        }

        pub(super) fn drain(&self) {
            let Some(fd) = &self.0 else { return };
            let mut buffer = [MaybeUninit::<u8>::uninit(); 1024];
            let mut reader = Reader::new(fd, &mut buffer);
            while reader.next().is_ok() {}
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod nothing {
    use std::os::fd::BorrowedFd;
    use std::path::Path;

    pub(super) struct Watch;

    impl Watch {
        pub(super) fn none() -> Self {
            Self
        }

        pub(super) fn on(_: &Path) -> Self {
            Self
        }

        pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
            None
        }

        pub(super) fn drain(&self) {}
    }
}
