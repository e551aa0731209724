//! The keeper's side of the run's ledger. It opens, compacts and removes the ledger through the descriptor of its
//! directory.

#[path = "slots.rs"]
mod slots;

use std::ffi::CString;
use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::record::{Record, RecordKind};
use crate::sys;
use slots::SlotFile;

/// The name of an emptied run directory, which the next start removes. See `state/mod.rs` of the library.
const SET_ASIDE: &str = ".old";

/// The fields that all records of the run share.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) tier: u8,
    pub(crate) boot: [u8; 16],
    pub(crate) pidns: u64,
}

impl Common {
    pub(crate) fn record(&self, kind: RecordKind, key: u64, text: &[u8]) -> Record {
        Record { key, ..Record::new(kind, self.tier, self.boot, self.pidns, text.to_vec()) }
    }
}

pub(crate) struct Ledger {
    dir: OwnedFd,
    path: PathBuf,
    pub(crate) slots: SlotFile,
}

impl Ledger {
    /// Opens the ledger that the host created. The next record goes to slot `next`.
    pub(crate) fn open(dir: OwnedFd, next: u64, sync: bool) -> Result<Self> {
        let file = File::from(sys::open_at(dir.as_raw_fd(), c"ledger", sys::O_RDWR)?);
        let path = std::fs::read_link(format!("/proc/self/fd/{}", dir.as_raw_fd()))?;
        Ok(Self { dir, path, slots: SlotFile::take_over(file, next, sync)? })
    }

    /// Atomically replaces the file by one that contains only the living workers.
    pub(crate) fn compact(&mut self, living: &[Record]) -> Result<()> {
        let dir = self.dir.as_raw_fd();
        let flags = sys::O_WRONLY | sys::O_CREAT | sys::O_TRUNC;
        let fresh = File::from(sys::open_at(dir, c"ledger.new", flags)?);
        self.slots.compact(living, fresh, || sys::rename_at(dir, c"ledger.new", c"ledger"))
    }

    /// Removes the run's directory.
    pub(crate) fn remove(self) -> Result<()> {
        self.empty()?;
        self.remove_dir()
    }

    /// Removes the run's files and renames its empty directory, which the next start removes, to a name that is not a
    /// run's. Removing a directory makes some file systems wait for the disk, which would delay the end of the run
    /// after a `kill -9`. One such directory is enough: if the name is taken, this directory is removed now.
    pub(crate) fn remove_soon(self) -> Result<()> {
        self.empty()?;
        let path = |path: PathBuf| CString::new(path.into_os_string().into_vec()).map_err(Error::other);
        let (own, aside) = (path(self.path.clone())?, path(self.path.with_file_name(SET_ASIDE))?);
        sys::rename_if_free(&own, &aside).or_else(|_| self.remove_dir())
    }

    /// Removes the lock and then the ledger. A directory with neither lock nor ledger is not a run.
    fn empty(&self) -> Result<()> {
        [c"lock", c"ledger"].iter().try_for_each(|name| sys::unlink_at(self.dir.as_raw_fd(), name))
    }

    fn remove_dir(&self) -> Result<()> {
        // A compaction that was killed half-way leaves a file, so the fallback removes the directory with its contents.
        // Usually there is none.
        std::fs::remove_dir(&self.path).or_else(|_| std::fs::remove_dir_all(&self.path))
    }
}
