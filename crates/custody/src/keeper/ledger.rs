//! The keeper's pen: appends records to the run's ledger, whole or not at all.

use std::ffi::CString;
use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::record::{Kind, Record, SLOT};
use crate::sys;

/// How many slots the file may have before it is rewritten with the living alone.
const COMPACT_ABOVE: u64 = 8192;

/// The name of an emptied run directory, which the next start removes; see `state.rs`.
const SET_ASIDE: &str = ".old";

/// What every record of the run has in common.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) tier: u8,
    pub(crate) boot: [u8; 16],
    pub(crate) pidns: u64,
}

impl Common {
    pub(crate) fn record(&self, kind: Kind, key: u64, text: &[u8]) -> Record {
        Record { key, ..Record::new(kind, self.tier, self.boot, self.pidns, text.to_vec()) }
    }
}

pub(crate) struct Ledger {
    dir: OwnedFd,
    path: PathBuf,
    file: File,
    next: u64,
    sync: bool,
    /// The run's own records, which compaction must carry over.
    heads: Vec<[u8; SLOT]>,
    /// Ends that could not be written yet. No intent may precede them.
    unwritten: Vec<Record>,
}

impl Ledger {
    /// Opens the ledger that the host has begun; the next record goes to slot `next`.
    pub(crate) fn open(dir: OwnedFd, next: u64, sync: bool) -> Result<Self> {
        let file = File::from(sys::open_at(dir.as_raw_fd(), c"ledger", sys::O_WRONLY)?);
        let reader = File::from(sys::open_at(dir.as_raw_fd(), c"ledger", sys::O_RDONLY)?);
        let mut heads = Vec::new();
        for slot in 0..next {
            let mut bytes = [0; SLOT];
            reader.read_exact_at(&mut bytes, slot * SLOT as u64)?;
            // The host has made sure that only heads are living at this point.
            if bytes[6] == Kind::Open as u8 || bytes[6] == Kind::Cgroup as u8 {
                heads.push(bytes);
            }
        }
        let path = std::fs::read_link(format!("/proc/self/fd/{}", dir.as_raw_fd()))?;
        Ok(Self { dir, path, file, next, sync, heads, unwritten: Vec::new() })
    }

    /// Appends a record of the run itself.
    pub(crate) fn append_head(&mut self, record: &Record) -> Result<()> {
        self.append(&[record])?;
        self.heads.push(record.encode());
        Ok(())
    }

    /// Appends records, all or none. A failed write leaves the slots to the next one, so that none is ever
    /// half-written for good.
    pub(crate) fn append(&mut self, records: &[&Record]) -> Result<()> {
        self.write_overdue()?;
        self.write(records)
    }

    /// Appends a worker's end; if the disk will not take it, it is kept and written before anything else.
    pub(crate) fn append_exit(&mut self, record: Record) -> Result<()> {
        let result = self.append(&[&record]);
        if result.is_err() {
            self.unwritten.push(record);
        }
        result
    }

    fn write_overdue(&mut self) -> Result<()> {
        while let Some(record) = self.unwritten.first().cloned() {
            self.write(&[&record])?;
            self.unwritten.remove(0);
        }
        Ok(())
    }

    fn write(&mut self, records: &[&Record]) -> Result<()> {
        let at = self.next * SLOT as u64;
        let bytes: Vec<u8> = records.iter().flat_map(|record| record.encode()).collect();
        if let Err(error) = self.file.write_all_at(&bytes, at) {
            // What a full disk took of it must not look like a torn record for ever.
            let _ = self.file.set_len(at);
            return Err(error);
        }
        if self.sync {
            self.file.sync_data()?;
        }
        self.next += records.len() as u64;
        Ok(())
    }

    /// Whether the file has grown enough that the living should be written anew.
    pub(crate) fn wants_compaction(&self, living: usize) -> bool {
        self.next > COMPACT_ABOVE && (living as u64 + 8) * 8 < self.next
    }

    /// Replaces the file, in one step, by one that names the living alone.
    pub(crate) fn compact(&mut self, living: &[Record]) -> Result<()> {
        let dir = self.dir.as_raw_fd();
        let fresh =
            File::from(sys::open_at(dir, c"ledger.new", sys::O_WRONLY | sys::O_CREAT | sys::O_TRUNC)?);
        let mut bytes: Vec<u8> = self.heads.concat();
        for record in living.iter().chain(&self.unwritten) {
            bytes.extend_from_slice(&record.encode());
        }
        fresh.write_all_at(&bytes, 0)?;
        if self.sync {
            fresh.sync_data()?;
        }
        sys::rename_at(dir, c"ledger.new", c"ledger")?;
        self.file = fresh;
        self.next = (bytes.len() / SLOT) as u64;
        self.unwritten.clear();
        Ok(())
    }

    /// Removes the run.
    pub(crate) fn remove(self) -> Result<()> {
        self.empty()?;
        self.remove_dir()
    }

    /// Removes the run, but leaves its emptied directory to the next start under a name that is no run's: the
    /// removal makes some file systems wait for the disk, and after a `kill -9` that wait would be the last of
    /// everything. One is enough; whoever finds the place taken removes its own.
    pub(crate) fn remove_soon(self) -> Result<()> {
        self.empty()?;
        let path = |path: PathBuf| CString::new(path.into_os_string().into_vec()).map_err(Error::other);
        let (own, aside) = (path(self.path.clone())?, path(self.path.with_file_name(SET_ASIDE))?);
        sys::rename_if_free(&own, &aside).or_else(|_| self.remove_dir())
    }

    /// The lock goes first: a directory with neither lock nor ledger is no run.
    fn empty(&self) -> Result<()> {
        [c"lock", c"ledger"].iter().try_for_each(|name| sys::unlink_at(self.dir.as_raw_fd(), name))
    }

    fn remove_dir(&self) -> Result<()> {
        // What a compaction left that was killed half-way; mostly there is nothing.
        std::fs::remove_dir(&self.path).or_else(|_| std::fs::remove_dir_all(&self.path))
    }
}
