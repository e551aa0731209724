//! The slots of a ledger. Records are appended whole or not at all, and the file is rewritten once it has grown.
//!
//! Compiled into both keepers, which open and remove the file in different ways. This file uses only std.

use std::fs::File;
use std::io::Result;
use std::os::unix::fs::FileExt;

use crate::record::{Record, RecordKind, SLOT};

/// How many slots the file may have before it is rewritten with the living workers only.
const COMPACT_ABOVE: u64 = 8192;

/// A ledger file that the keeper writes.
pub(crate) struct SlotFile {
    file: File,
    next: u64,
    sync: bool,
    /// The records about the run itself, which compaction must carry over.
    heads: Vec<[u8; SLOT]>,
    /// Ends that could not be written yet. They must be written before any new intent.
    unwritten: Vec<Record>,
}

impl SlotFile {
    /// Takes over a file that the host created, open for reading and writing. The next record goes to slot `next`.
    pub(crate) fn take_over(file: File, next: u64, sync: bool) -> Result<Self> {
        let mut heads = Vec::new();
        for slot in 0..next {
            let mut bytes = [0; SLOT];
            file.read_exact_at(&mut bytes, slot * SLOT as u64)?;
            // The host has made sure that only records about the run itself are in force at this point.
            if bytes[6] == RecordKind::Open as u8 || bytes[6] == RecordKind::Cgroup as u8 {
                heads.push(bytes);
            }
        }
        Ok(Self { file, next, sync, heads, unwritten: Vec::new() })
    }

    /// Appends a record about the run itself.
    pub(crate) fn append_head(&mut self, record: &Record) -> Result<()> {
        self.append(&[record])?;
        self.heads.push(record.encode());
        Ok(())
    }

    /// Appends all of the records or none. The next write reuses the slots of a failed one, so that no slot stays
    /// half-written.
    pub(crate) fn append(&mut self, records: &[&Record]) -> Result<()> {
        while let Some(overdue) = self.unwritten.first().cloned() {
            self.write(&[&overdue])?;
            self.unwritten.remove(0);
        }
        self.write(records)
    }

    /// Appends a worker's end. If the write fails, the end is kept and written before any other record.
    pub(crate) fn append_exit(&mut self, record: Record) -> Result<()> {
        let result = self.append(&[&record]);
        if result.is_err() {
            self.unwritten.push(record);
        }
        result
    }

    fn write(&mut self, records: &[&Record]) -> Result<()> {
        let at = self.next * SLOT as u64;
        let bytes: Vec<u8> = records.iter().flat_map(|record| record.encode()).collect();
        if let Err(error) = self.file.write_all_at(&bytes, at) {
            // A part that a full disk accepted must not look like a torn record for ever.
            let _ = self.file.set_len(at);
            return Err(error);
        }
        if self.sync {
            self.file.sync_data()?;
        }
        self.next += records.len() as u64;
        Ok(())
    }

    /// Reports whether the file has grown enough to be rewritten with the living workers only.
    pub(crate) fn wants_compaction(&self, living: usize) -> bool {
        self.next > COMPACT_ABOVE && (living as u64 + 8) * 8 < self.next
    }

    /// Writes only the living workers into a fresh file, which `replace` then puts in the place of the old one.
    pub(crate) fn compact<'a>(
        &mut self,
        living: impl IntoIterator<Item = &'a Record>,
        fresh: File,
        replace: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut bytes = self.heads.concat();
        bytes.extend(living.into_iter().flat_map(Record::encode));
        bytes.extend(self.unwritten.iter().flat_map(Record::encode));
        fresh.write_all_at(&bytes, 0)?;
        if self.sync {
            fresh.sync_data()?;
        }
        replace()?;
        self.file = fresh;
        self.next = (bytes.len() / SLOT) as u64;
        self.unwritten.clear();
        Ok(())
    }
}
