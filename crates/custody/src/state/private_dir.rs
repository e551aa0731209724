//! A directory in which only the current user and root can change anything, held by its descriptor.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};

use super::kept_file::{self, Kept, KeptFile};
use super::owner::{Owner, TrustedUsers};
use super::walk::{self, MissingDirs};
use super::{DirError, KeepError};

/// A directory from which programs are run, such as the keeper and a worker's Python. Only the current user and root
/// can change its contents, or replace it.
///
/// Every directory above it was checked, from the root of the file system down: each belongs to root or to the current
/// user, and no other user may write to it, unless it is sticky like `/tmp`. A group may write if the current user is
/// provably its only member. A symbolic link on the way is followed if it belongs to root or to the current user. The
/// directory itself must not be a link.
#[derive(Debug)]
pub struct PrivateDir {
    path: PathBuf,
    dir: OwnedFd,
}

impl PrivateDir {
    /// Opens the directory. Creates missing parts, with access to the last one for its owner only.
    pub fn open(path: &Path, owner: Owner) -> Result<Self, DirError> {
        match Self::walk(path, owner, MissingDirs::Make)? {
            Some(dir) => Ok(dir),
            None => Err(DirError::io("open", path)(rustix::io::Errno::NOENT)),
        }
    }

    /// Opens the directory if it exists.
    pub fn open_existing(path: &Path, owner: Owner) -> Result<Option<Self>, DirError> {
        Self::walk(path, owner, MissingDirs::Leave)
    }

    fn walk(path: &Path, owner: Owner, missing: MissingDirs) -> Result<Option<Self>, DirError> {
        let path = std::path::absolute(path).map_err(DirError::io("find", path))?;
        Ok(walk::open(&path, owner, missing)?.map(|dir| Self { path, dir }))
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.dir
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a directory in it, which must belong only to the current user. Creates the directory if it is missing.
    pub fn subdir(&self, name: &str) -> Result<Self, DirError> {
        let path = self.path.join(name);
        walk::make(&self.dir, OsStr::new(name), &path, 0o700)?;
        Ok(Self { dir: open_own(&self.dir, name, &path)?, path })
    }

    /// Ensures that a file in it has exactly these contents. The file is read and compared. If it differs, it is
    /// replaced in one step by a file that has reached the disk.
    pub fn keep_file(&self, name: &str, contents: &[u8]) -> Result<Kept, KeepError> {
        let mode = Mode::RUSR | Mode::WUSR;
        self.keep(name, contents, mode).map(|(_, kept)| kept)
    }

    /// Like [`PrivateDir::keep_file`], for a program, which is run through its descriptor. All runs share its pages.
    pub(crate) fn keep_program(&self, name: &str, contents: &[u8]) -> Result<(OwnedFd, Kept), KeepError> {
        self.keep(name, contents, Mode::RWXU)
    }

    fn keep(&self, name: &str, contents: &[u8], mode: Mode) -> Result<(OwnedFd, Kept), KeepError> {
        kept_file::keep(&KeptFile { dir: &self.dir, path: self.path.join(name), name, contents, mode })
    }

    /// Removes the temporary files of writers that are gone.
    pub(crate) fn remove_temporaries(&self) {
        kept_file::remove_temporaries(&self.dir);
    }

    /// Removes a file in it, or a directory with everything in it. Succeeds if it does not exist.
    pub fn remove(&self, name: &str) -> std::io::Result<()> {
        super::file_removal::remove_tree(&self.dir, OsStr::new(name))
    }
}

impl AsFd for PrivateDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

/// Opens a directory that must belong only to the current user, in a checked directory.
pub(super) fn open_own(parent: &OwnedFd, name: impl AsRef<OsStr>, path: &Path) -> Result<OwnedFd, DirError> {
    let name = name.as_ref();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(parent, name, flags, Mode::empty()).map_err(|errno| {
        let linked = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_symlink());
        if linked { DirError::IsLink { path: path.to_owned() } } else { DirError::io("open", path)(errno) }
    })?;
    let stat = rustix::fs::fstat(&dir).map_err(DirError::io("examine", path))?;
    if stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o022 == 0 {
        return Ok(dir);
    }
    let root = rustix::fs::stat("/").map_err(DirError::io("examine", Path::new("/")))?;
    TrustedUsers::new(&root)?.check_own(path, &dir, &stat, Owner::Us)?;
    Ok(dir)
}
