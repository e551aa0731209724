//! The way to a directory, from the root of the file system down, by descriptors.
//!
//! A user who owns a directory on the way, or may write to it, can replace everything below. So each directory is
//! opened relative to its parent, never through a link, and checked: see `owner`. This code itself reads and follows a
//! symbolic link on the way if the link belongs to root or to the current user, because `/home` and `/var/run` are
//! links on some systems. No untrusted user can replace a directory that is opened in this way.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::DirError;
use super::owner::{Owner, TrustedUsers};

/// The most links on the way: as many as the kernel follows.
const MOST_LINKS: usize = 40;

/// Opens a directory only for passing through, because not every directory on the way may be read.
#[cfg(target_os = "linux")]
const PASS: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const PASS: OFlags = OFlags::from_bits_retain(libc::O_SEARCH as u32);

/// What to do about missing directories.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MissingDirs {
    /// Create them.
    Make,
    /// Report that the directory is missing.
    Leave,
}

/// Opens a directory by its absolute path. Returns `None` if it is missing and must not be created.
pub(super) fn open(path: &Path, owner: Owner, missing: MissingDirs) -> Result<Option<OwnedFd>, DirError> {
    let root = rustix::fs::open("/", PASS | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(DirError::io("open", Path::new("/")))?;
    let stat = rustix::fs::fstat(&root).map_err(DirError::io("examine", Path::new("/")))?;
    let trust = TrustedUsers::new(&stat)?;
    let mut walk = PathWalk {
        trust,
        at: root,
        shown: PathBuf::from("/"),
        left: parts(path).collect(),
        of_links: 0,
        links: 0,
    };
    while let Some(name) = walk.left.pop_front() {
        if !walk.step(&name, missing)? {
            return Ok(None);
        }
    }
    walk.arrive(owner).map(Some)
}

/// Returns the names in a path, without `.`.
fn parts(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

struct PathWalk {
    trust: TrustedUsers,
    at: OwnedFd,
    /// The path of the current directory, for error messages.
    shown: PathBuf,
    left: VecDeque<OsString>,
    /// How many of the names at the front came from a link.
    of_links: usize,
    links: usize,
}

/// The meaning of a name.
enum PathEntry {
    Dir(OwnedFd),
    /// The target and the owner of a link.
    Link(PathBuf, u32),
    Nothing,
}

impl PathWalk {
    /// Enters the directory with this name. Returns false if it is missing.
    fn step(&mut self, name: &OsStr, missing: MissingDirs) -> Result<bool, DirError> {
        // Another name follows, so the current directory is on the way to the target.
        let stat = rustix::fs::fstat(&self.at).map_err(DirError::io("examine", &self.shown))?;
        self.trust.check_parent(&self.shown, &self.at, &stat)?;
        let is_last = self.left.is_empty();
        let named_by_link = self.of_links > 0;
        self.of_links = self.of_links.saturating_sub(1);
        let path = if name == ".." {
            self.shown.parent().unwrap_or(&self.shown).to_owned()
        } else {
            self.shown.join(name)
        };
        let mut found = self.look(name).map_err(DirError::io("open", &path))?;
        if matches!(found, PathEntry::Nothing) && missing == MissingDirs::Make && !named_by_link {
            make(&self.at, name, &path, if is_last { 0o700 } else { 0o755 })?;
            found = self.look(name).map_err(DirError::io("open", &path))?;
        }
        match found {
            PathEntry::Dir(dir) => {
                self.at = dir;
                self.shown = path;
                Ok(true)
            }
            PathEntry::Link(..) if is_last => Err(DirError::IsLink { path }),
            PathEntry::Link(target, owner) => self.follow(&path, &target, owner).map(|()| true),
            // The target of a dangling link is not created.
            PathEntry::Nothing if missing == MissingDirs::Make => {
                Err(DirError::io("open", &path)(Errno::NOENT))
            }
            PathEntry::Nothing => Ok(false),
        }
    }

    fn look(&self, name: &OsStr) -> Result<PathEntry, Errno> {
        let flags = PASS | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.at, name, flags, Mode::empty()) {
            Ok(dir) => Ok(PathEntry::Dir(dir)),
            Err(Errno::NOENT) => Ok(PathEntry::Nothing),
            Err(errno @ (Errno::NOTDIR | Errno::LOOP | Errno::MLINK)) => {
                match read_link(&self.at, name) {
                    Ok((target, owner)) => Ok(PathEntry::Link(OsString::from_vec(target).into(), owner)),
                    // Linux returns NOENT for a descriptor that is not a link.
                    Err(Errno::INVAL | Errno::NOENT) => Err(errno),
                    Err(other) => Err(other),
                }
            }
            Err(errno) => Err(errno),
        }
    }

    /// Replaces the name of a link by the names in its target.
    fn follow(&mut self, path: &Path, target: &Path, owner: u32) -> Result<(), DirError> {
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(DirError::TooManyLinks { path: path.to_owned() });
        }
        self.trust.check_owner(path, owner)?;
        if target.is_absolute() {
            let flags = PASS | OFlags::DIRECTORY | OFlags::CLOEXEC;
            self.at =
                rustix::fs::open("/", flags, Mode::empty()).map_err(DirError::io("open", Path::new("/")))?;
            self.shown = PathBuf::from("/");
        }
        let parts: Vec<OsString> = parts(target).collect();
        self.of_links += parts.len();
        for part in parts.into_iter().rev() {
            self.left.push_front(part);
        }
        Ok(())
    }

    /// Opens the directory at the end of the way for use.
    fn arrive(self, owner: Owner) -> Result<OwnedFd, DirError> {
        let stat = rustix::fs::fstat(&self.at).map_err(DirError::io("examine", &self.shown))?;
        self.trust.check_own(&self.shown, &self.at, &stat, owner)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.at, ".", flags, Mode::empty()).map_err(DirError::io("open", &self.shown))
    }
}

/// Returns the target and the owner of a link. Both belong to the same link, even if it is replaced meanwhile.
#[cfg(target_os = "linux")]
fn read_link(dir: &OwnedFd, name: &OsStr) -> Result<(Vec<u8>, u32), Errno> {
    let link =
        rustix::fs::openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let owner = rustix::fs::fstat(&link)?.st_uid;
    Ok((rustix::fs::readlinkat(&link, "", Vec::new())?.into_bytes(), owner))
}

/// Does the same on systems where a link cannot be held open: reads the owner before and after.
#[cfg(not(target_os = "linux"))]
fn read_link(dir: &OwnedFd, name: &OsStr) -> Result<(Vec<u8>, u32), Errno> {
    let stat = || rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    let before = stat()?;
    let target = rustix::fs::readlinkat(dir, name, Vec::new())?.into_bytes();
    let after = stat()?;
    let same = (before.st_ino, before.st_uid) == (after.st_ino, after.st_uid);
    if same { Ok((target, before.st_uid)) } else { Err(Errno::AGAIN) }
}

/// Creates a directory. Whatever the umask, its owner can use it and no group can write to it.
pub(super) fn make(parent: &OwnedFd, name: &OsStr, path: &Path, mode: u32) -> Result<(), DirError> {
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode as _)) {
        // Another process created it at the same moment. It is checked like all others.
        Err(Errno::EXIST) => return Ok(()),
        made => made.map_err(DirError::io("create", path))?,
    }
    let stat = match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        // The directory was removed again. Opening it fails.
        Err(Errno::NOENT) => return Ok(()),
        stat => stat.map_err(DirError::io("examine", path))?,
    };
    let made = Mode::from_raw_mode(stat.st_mode);
    if made.contains(Mode::RWXU) {
        return Ok(());
    }
    rustix::fs::chmodat(parent, name, made | Mode::RWXU, AtFlags::empty())
        .map_err(DirError::io("set the permissions of", path))
}
