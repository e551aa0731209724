//! The keeper's side of the run's ledger: opened, compacted and removed by name.
//!
//! On Linux, `keeper/ledger.rs` does the same through descriptors. Here, the host starts the keeper in the run's
//! directory.

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
    pub(crate) slots: SlotFile,
}

impl LedgerWriter {
    /// Opens the ledger in the current directory. The next record goes to slot `next`.
    pub(crate) fn open(next: u64, sync: bool, boot: [u8; 16], tier: u8) -> Result<Self> {
        let dir = std::env::current_dir()?;
        let file = File::options().read(true).write(true).open(dir.join("ledger"))?;
        Ok(Self { dir, boot, tier, slots: SlotFile::take_over(file, next, sync)? })
    }

    /// Creates a record with the fields that all records of the run share. Pids mean the same on the whole machine
    /// here.
    pub(crate) fn record(&self, kind: RecordKind, key: u64, text: &[u8]) -> Record {
        Record { key, ..Record::new(kind, self.tier, self.boot, 0, text.to_vec()) }
    }

    /// Atomically replaces the file by one that contains only the living workers.
    pub(crate) fn compact(&mut self, living: &[&Record]) -> Result<()> {
        let new = self.dir.join("ledger.new");
        let fresh = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        let living = living.iter().copied();
        self.slots.compact(living, fresh, || std::fs::rename(new, self.dir.join("ledger")))
    }

    /// Removes the run's files, the lock first, and its directory. A directory with neither lock nor ledger is not a
    /// run.
    pub(crate) fn remove(&self) {
        for name in ["lock", "ledger"] {
            let _ = std::fs::remove_file(self.dir.join(name));
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
