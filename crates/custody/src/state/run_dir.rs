//! The directory of one run: its lock and its ledger.
//!
//! A failed look is not an answer: the caller learns that the run cannot be judged.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::file_limit::SignalBlock;
use super::file_removal::remove_tree;
use crate::failpoint::hit;
use crate::ledger::record::{Record, SLOT};

pub(super) const LOCK: &str = "lock";
pub(super) const LEDGER: &str = "ledger";

/// The size of the largest ledger that is read. A keeper rewrites its ledger at eight records for each living worker,
/// so a ledger of this size would have tens of thousands of workers.
const LARGEST_LEDGER: u64 = 128 * 1024 * 1024;

/// The directory of one run.
#[derive(Debug)]
pub(crate) struct RunDir {
    pub(super) path: PathBuf,
    pub(super) dir: OwnedFd,
    /// The parent directory, and the name of this directory in it.
    pub(super) runs: Arc<OwnedFd>,
    pub(super) name: OsString,
}

/// Whether host, keeper or a shim holds the run's lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LockState {
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

    /// Returns the ledger's bytes, or `None` if there is no ledger.
    pub(crate) fn read_ledger(&self) -> io::Result<Option<Vec<u8>>> {
        hit("look.ledger")?;
        let Some(file) = open_regular(&self.dir, LEDGER, OFlags::RDONLY)? else { return Ok(None) };
        let size = file.metadata()?.len();
        let too_large = || {
            let words =
                format!("{LEDGER} is too large to be a ledger ({size} bytes, at most {LARGEST_LEDGER})");
            io::Error::new(io::ErrorKind::FileTooLarge, words)
        };
        if size > LARGEST_LEDGER {
            return Err(too_large());
        }
        let mut bytes = Vec::with_capacity(size as usize);
        // The ledger may grow while it is read, within the limit.
        file.take(LARGEST_LEDGER + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > LARGEST_LEDGER { Err(too_large()) } else { Ok(Some(bytes)) }
    }

    /// Opens the ledger for writing, while no keeper lives.
    pub(crate) fn ledger_for_writing(&self) -> io::Result<File> {
        open_regular(&self.dir, LEDGER, OFlags::WRONLY)?.ok_or_else(|| Errno::NOENT.into())
    }

    /// Checks the lock without keeping it. A missing lock counts as free.
    pub(crate) fn lock(&self) -> io::Result<LockState> {
        hit("look.lock")?;
        look_at_lock(&self.dir)
    }

    /// Removes the run. The lock goes first, because a directory with neither lock nor ledger is not a run. Two
    /// removals at the same time do no harm.
    pub(crate) fn remove(&self) -> io::Result<()> {
        for name in [LOCK, LEDGER] {
            let _ = rustix::fs::unlinkat(&self.dir, name, AtFlags::empty());
        }
        remove_tree(&self.runs, &self.name)
    }

    /// Returns whether the directory was left by an interrupted removal.
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

/// Checks whether the lock in a run's directory is held.
pub(super) fn look_at_lock(dir: &OwnedFd) -> io::Result<LockState> {
    let Some(file) = open_regular(dir, LOCK, OFlags::RDWR)? else { return Ok(LockState::Free) };
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => return Ok(LockState::Free),
            Err(Errno::WOULDBLOCK) => return Ok(LockState::Held),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Opens a regular file. Returns `None` if it does not exist. Any other kind of file is an error: a FIFO would block,
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
        // The open file is checked again.
        Ok(file) if is_regular(rustix::fs::fstat(&file)?) => Ok(Some(file.into())),
        Ok(_) => Err(odd()),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Writes records from slot `at` on, and returns the next free slot. For the host, while no keeper lives.
pub(crate) fn write_records(file: &File, at: u64, records: &[Record]) -> io::Result<u64> {
    let bytes: Vec<u8> = records.iter().flat_map(Record::encode).collect();
    let _blocked = SignalBlock::new();
    file.write_all_at(&bytes, at * SLOT as u64)?;
    Ok(at + records.len() as u64)
}
