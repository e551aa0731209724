//! Removes files by descriptors, so that no other user can replace them by something else on the way.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

/// A depth below everything that Snakepit creates.
const DEEPEST: usize = 64;

/// Removes a file, or a directory with everything in it. Succeeds if it does not exist.
pub(super) fn remove_tree(parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
    remove_below(parent, name, DEEPEST)
}

fn remove_below(parent: &OwnedFd, name: &OsStr, depth: usize) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = match rustix::fs::openat(parent, name, flags, Mode::empty()) {
        Ok(dir) => dir,
        Err(Errno::NOTDIR | Errno::LOOP | Errno::MLINK) => return unlink(parent, name, AtFlags::empty()),
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    };
    if depth == 0 {
        return Err(Errno::NAMETOOLONG.into());
    }
    for entry in names(&dir)? {
        remove_below(&dir, &entry, depth - 1)?;
    }
    unlink(parent, name, AtFlags::REMOVEDIR)
}

fn unlink(parent: &OwnedFd, name: &OsStr, flags: AtFlags) -> io::Result<()> {
    match rustix::fs::unlinkat(parent, name, flags) {
        // Another process may have removed it first.
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns the names in a directory. An incomplete list is an error.
pub(super) fn names(dir: impl AsFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name));
        }
    }
    Ok(names)
}
