//! The keeper's pen: appends records to the run's ledger, whole or not at all.
//!
//! As `keeper/ledger.rs` does for Linux, by names instead of descriptors: the host starts the keeper in the run's
//! directory.

use std::fs::File;
use std::io::Result;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use crate::record::{Kind, Record, SLOT};

/// How many slots the file may have before it is rewritten with the living alone.
const COMPACT_ABOVE: u64 = 8192;

pub(crate) struct Pen {
    dir: PathBuf,
    file: File,
    next: u64,
    sync: bool,
    boot: [u8; 16],
    tier: u8,
    /// The run's own records, which compaction must carry over.
    heads: Vec<[u8; SLOT]>,
    /// Ends that could not be written yet. No intent may precede them.
    unwritten: Vec<Record>,
}

impl Pen {
    /// Opens the ledger in the current directory; the next record goes to slot `next`.
    pub(crate) fn open(next: u64, sync: bool, boot: [u8; 16], tier: u8) -> Result<Self> {
        let dir = std::env::current_dir()?;
        let file = File::options().read(true).write(true).open(dir.join("ledger"))?;
        let mut heads = Vec::new();
        for slot in 0..next {
            let mut bytes = [0; SLOT];
            file.read_exact_at(&mut bytes, slot * SLOT as u64)?;
            if bytes[6] == Kind::Open as u8 {
                heads.push(bytes);
            }
        }
        Ok(Self { dir, file, next, sync, boot, tier, heads, unwritten: Vec::new() })
    }

    /// A record with what all of the run's have in common. Pids mean the same on the whole machine here.
    pub(crate) fn record(&self, kind: Kind, key: u64, text: &[u8]) -> Record {
        Record { key, ..Record::new(kind, self.tier, self.boot, 0, text.to_vec()) }
    }

    /// Appends a record of the run itself.
    pub(crate) fn append_head(&mut self, record: &Record) -> Result<()> {
        self.append(record)?;
        self.heads.push(record.encode());
        Ok(())
    }

    /// Appends a record, or nothing: a failed write leaves its slot to the next one.
    pub(crate) fn append(&mut self, record: &Record) -> Result<()> {
        while let Some(overdue) = self.unwritten.first().cloned() {
            self.write(&overdue)?;
            self.unwritten.remove(0);
        }
        self.write(record)
    }

    /// Appends a worker's end; if the disk will not take it, it is kept and written before anything else.
    pub(crate) fn append_exit(&mut self, record: Record) -> Result<()> {
        let result = self.append(&record);
        if result.is_err() {
            self.unwritten.push(record);
        }
        result
    }

    fn write(&mut self, record: &Record) -> Result<()> {
        let at = self.next * SLOT as u64;
        if let Err(error) = self.file.write_all_at(&record.encode(), at) {
            // What a full disk took of it must not look like a torn record for ever.
            let _ = self.file.set_len(at);
            return Err(error);
        }
        if self.sync {
            self.file.sync_data()?;
        }
        self.next += 1;
        Ok(())
    }

    /// Whether the file has grown enough that the living should be written anew.
    pub(crate) fn wants_compaction(&self, living: usize) -> bool {
        self.next > COMPACT_ABOVE && (living as u64 + 8) * 8 < self.next
    }

    /// Replaces the file, in one step, by one that names the living alone.
    pub(crate) fn compact(&mut self, living: &[&Record]) -> Result<()> {
        let fresh = self.dir.join("ledger.new");
        let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        let mut bytes = self.heads.concat();
        for record in living.iter().copied().chain(&self.unwritten) {
            bytes.extend_from_slice(&record.encode());
        }
        file.write_all_at(&bytes, 0)?;
        if self.sync {
            file.sync_data()?;
        }
        std::fs::rename(fresh, self.dir.join("ledger"))?;
        self.file = file;
        self.next = (bytes.len() / SLOT) as u64;
        self.unwritten.clear();
        Ok(())
    }

    /// Removes the run. The lock goes first: a directory with neither lock nor ledger is no run.
    pub(crate) fn remove(&self) {
        for name in ["lock", "ledger"] {
            let _ = std::fs::remove_file(self.dir.join(name));
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
