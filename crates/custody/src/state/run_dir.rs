//! One run's directory: its lock and its ledger, and what may be in their place.
//!
//! An error while looking is not an answer: whoever asks learns that it cannot be judged.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::remove::remove_tree;
use crate::failpoint::hit;

pub(super) const LOCK: &str = "lock";
pub(super) const LEDGER: &str = "ledger";

/// The largest ledger there can be, with room to spare: a keeper rewrites it when it has eight records for each living
/// worker, so this is one of a run with tens of thousands of them.
const LARGEST_LEDGER: u64 = 128 * 1024 * 1024;

/// One run's directory.
#[derive(Debug)]
pub(crate) struct RunDir {
    pub(super) path: PathBuf,
    pub(super) dir: OwnedFd,
    /// In which directory it has which name.
    pub(super) runs: Arc<OwnedFd>,
    pub(super) name: OsString,
}

/// Whether somebody of the run holds its lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lock {
    Held,
    Free,
}

impl RunDir {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    #[cfg(not(portable))]
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.dir
    }

    /// The ledger's bytes; `None` if there is no ledger.
    pub(crate) fn read_ledger(&self) -> io::Result<Option<Vec<u8>>> {
        hit("look.ledger")?;
        let Some(file) = open_regular(&self.dir, LEDGER, OFlags::RDONLY)? else { return Ok(None) };
        let size = file.metadata()?.len();
        let too_large = || {
            let words =
                format!("{LEDGER} is too large to be a ledger ({size} of at most {LARGEST_LEDGER} bytes)");
            io::Error::new(io::ErrorKind::FileTooLarge, words)
        };
        if size > LARGEST_LEDGER {
            return Err(too_large());
        }
        let mut bytes = Vec::with_capacity(size as usize);
        // It may grow while it is read, but not without end.
        file.take(LARGEST_LEDGER + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > LARGEST_LEDGER { Err(too_large()) } else { Ok(Some(bytes)) }
    }

    /// The ledger, to be written while no keeper lives.
    pub(crate) fn ledger_for_writing(&self) -> io::Result<File> {
        open_regular(&self.dir, LEDGER, OFlags::WRONLY)?.ok_or_else(|| Errno::NOENT.into())
    }

    /// Looks at the lock without keeping it. One that is not there is free.
    pub(crate) fn lock(&self) -> io::Result<Lock> {
        hit("look.lock")?;
        look_at_lock(&self.dir)
    }

    /// Removes the run. The lock goes first: a directory with neither lock nor ledger is no run. Somebody who
    /// does the same at the same time is no harm.
    pub(crate) fn remove(&self) -> io::Result<()> {
        for name in [LOCK, LEDGER] {
            let _ = rustix::fs::unlinkat(&self.dir, name, AtFlags::empty());
        }
        remove_tree(&self.runs, &self.name)
    }

    /// Whether it is only what a removal has left that did not come to its end.
    pub(crate) fn is_empty_shell(&self) -> io::Result<bool> {
        Ok(!is_there(&self.dir, LOCK)? && !is_there(&self.dir, LEDGER)?)
    }

    pub(crate) fn exists(&self) -> io::Result<bool> {
        is_there(&self.runs, &self.name)
    }
}

fn is_there(dir: &OwnedFd, name: impl rustix::path::Arg) -> io::Result<bool> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether the lock in a run's directory is held.
pub(super) fn look_at_lock(dir: &OwnedFd) -> io::Result<Lock> {
    let Some(file) = open_regular(dir, LOCK, OFlags::RDWR)? else { return Ok(Lock::Free) };
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => return Ok(Lock::Free),
            Err(Errno::WOULDBLOCK) => return Ok(Lock::Held),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Opens a plain file; `None` if there is nothing. Anything else of that name is an error: a FIFO would be waited for,
/// and a device has no end.
fn open_regular(dir: &OwnedFd, name: &str, flags: OFlags) -> io::Result<Option<File>> {
    let is_regular = |stat: rustix::fs::Stat| FileType::from_raw_mode(stat.st_mode).is_file();
    let odd = || io::Error::new(io::ErrorKind::InvalidData, format!("{name} is not a regular file"));
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if is_regular(stat) => {}
        Ok(_) => return Err(odd()),
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    }
    let flags = flags | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        // Again, of what was opened.
        Ok(file) if is_regular(rustix::fs::fstat(&file)?) => Ok(Some(file.into())),
        Ok(_) => Err(odd()),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}
