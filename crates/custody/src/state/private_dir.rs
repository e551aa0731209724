//! A directory in which nobody but us, and root, can change anything, held by its descriptor.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};

use super::kept_file::{self, Kept, Target};
use super::owner::{Owner, Trust};
use super::walk::{self, Missing};
use super::{DirError, KeepError};

/// A directory from which things are run, such as the keeper and a worker's Python: nobody but us and root can change what
/// is in it, or put another one in its place.
///
/// Every directory above it was looked at, from the root of the file system down: each belongs to root or to us, and nobody
/// else may write to it, unless it is sticky as `/tmp` is. A group may write where it provably has no members but us. A
/// symbolic link on the way is followed if it is root's or ours; the directory itself must not be one.
#[derive(Debug)]
pub struct PrivateDir {
    path: PathBuf,
    dir: OwnedFd,
}

impl PrivateDir {
    /// Opens it. What is missing of it is made, for its owner alone.
    pub fn open(path: &Path, owner: Owner) -> Result<Self, DirError> {
        match Self::walk(path, owner, Missing::Make)? {
            Some(dir) => Ok(dir),
            None => Err(DirError::io("open", path)(rustix::io::Errno::NOENT)),
        }
    }

    /// Opens it if it is there.
    pub fn open_existing(path: &Path, owner: Owner) -> Result<Option<Self>, DirError> {
        Self::walk(path, owner, Missing::Leave)
    }

    fn walk(path: &Path, owner: Owner, missing: Missing) -> Result<Option<Self>, DirError> {
        let path = std::path::absolute(path).map_err(DirError::io("find", path))?;
        Ok(walk::open(&path, owner, missing)?.map(|dir| Self { path, dir }))
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.dir
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A directory in it, made if it is missing, which must be ours alone.
    pub fn subdir(&self, name: &str) -> Result<Self, DirError> {
        let path = self.path.join(name);
        walk::make(&self.dir, OsStr::new(name), &path, 0o700)?;
        Ok(Self { dir: open_own(&self.dir, name, &path)?, path })
    }

    /// Sees to it that a file in it holds just this. It is read and compared; if it does not, it is replaced in one step
    /// by one that has reached the disk.
    pub fn keep_file(&self, name: &str, contents: &[u8]) -> Result<Kept, KeepError> {
        let mode = Mode::RUSR | Mode::WUSR;
        self.keep(name, contents, mode).map(|(_, kept)| kept)
    }

    /// The same for a program, to be run through its descriptor. All runs share its pages, and no keeper's end has to free
    /// them.
    pub(crate) fn keep_program(&self, name: &str, contents: &[u8]) -> Result<(OwnedFd, Kept), KeepError> {
        self.keep(name, contents, Mode::RWXU)
    }

    fn keep(&self, name: &str, contents: &[u8], mode: Mode) -> Result<(OwnedFd, Kept), KeepError> {
        kept_file::keep(&Target { dir: &self.dir, path: self.path.join(name), name, contents, mode })
    }

    /// Removes the temporary files of writers that are gone.
    pub(crate) fn remove_temporaries(&self) {
        kept_file::remove_temporaries(&self.dir);
    }

    /// Removes something in it, a directory with all that it holds. What is not there is removed.
    pub fn remove(&self, name: &str) -> std::io::Result<()> {
        super::remove::remove_tree(&self.dir, OsStr::new(name))
    }
}

impl AsFd for PrivateDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

/// Opens a directory that must be ours alone, in one that is known to be.
pub(super) fn open_own(parent: &OwnedFd, name: impl AsRef<OsStr>, path: &Path) -> Result<OwnedFd, DirError> {
    let name = name.as_ref();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(parent, name, flags, Mode::empty()).map_err(|errno| {
        let linked = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_symlink());
        if linked { DirError::IsLink { path: path.to_owned() } } else { DirError::io("open", path)(errno) }
    })?;
    let stat = rustix::fs::fstat(&dir).map_err(DirError::io("look at", path))?;
    if stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o022 == 0 {
        return Ok(dir);
    }
    let root = rustix::fs::stat("/").map_err(DirError::io("look at", Path::new("/")))?;
    Trust::new(&root)?.check_own(path, &dir, &stat, Owner::Us)?;
    Ok(dir)
}
