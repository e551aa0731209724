//! The keeper's side of the run's ledger: opened, compacted and removed by name.
//!
//! On Linux, `keeper/ledger.rs` does the same by descriptors. Here the host starts the keeper in the run's directory.

#[path = "../../keeper/slots.rs"]
mod slots;

use std::fs::File;
use std::io::Result;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use crate::record::{Record, RecordKind};
use slots::SlotFile;

pub(crate) struct LedgerWriter {
    dir: PathBuf,
    boot: [u8; 16],
    tier: u8,
    slots: SlotFile,
}

impl LedgerWriter {
    /// Opens the ledger in the current directory; the next record goes to slot `next`.
    pub(crate) fn open(next: u64, sync: bool, boot: [u8; 16], tier: u8) -> Result<Self> {
        let dir = std::env::current_dir()?;
        let file = File::options().read(true).write(true).open(dir.join("ledger"))?;
        Ok(Self { dir, boot, tier, slots: SlotFile::take_over(file, next, sync)? })
    }

    /// A record with what all of the run's have in common. Pids mean the same on the whole machine here.
    pub(crate) fn record(&self, kind: RecordKind, key: u64, text: &[u8]) -> Record {
        Record { key, ..Record::new(kind, self.tier, self.boot, 0, text.to_vec()) }
    }

    /// Appends a record of the run itself.
    pub(crate) fn append_head(&mut self, record: &Record) -> Result<()> {
        self.slots.append_head(record)
    }

    /// Appends a record, or nothing.
    pub(crate) fn append(&mut self, record: &Record) -> Result<()> {
        self.slots.append(&[record])
    }

    /// Appends a worker's end; if the disk refuses it, it is written before anything else.
    pub(crate) fn append_exit(&mut self, record: Record) -> Result<()> {
        self.slots.append_exit(record)
    }

    /// Whether the file has grown enough that the living should be written anew.
    pub(crate) fn wants_compaction(&self, living: usize) -> bool {
        self.slots.wants_compaction(living)
    }

    /// Replaces the file, in one step, by one that names the living alone.
    pub(crate) fn compact(&mut self, living: &[&Record]) -> Result<()> {
        let new = self.dir.join("ledger.new");
        let fresh = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        let living = living.iter().copied();
        self.slots.compact(living, fresh, || std::fs::rename(new, self.dir.join("ledger")))
    }

    /// Removes the run. The lock goes first: a directory with neither lock nor ledger is no run.
    pub(crate) fn remove(&self) {
        for name in ["lock", "ledger"] {
            let _ = std::fs::remove_file(self.dir.join(name));
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
