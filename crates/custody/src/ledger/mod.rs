//! The ledger as its readers see it: what was recorded of a run, and what of it is damaged.
//!
//! Absent, torn and corrupt are three answers. The pen is the keeper's, see `keeper/ledger.rs`; the host
//! writes only before its first keeper starts and after one was lost.

pub(crate) mod opening;
pub(crate) mod record;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::file_limit::Blocked;
use record::{Damage, Kind, Record, SLOT};

/// How many damaged records are named one by one.
const NAMED_DAMAGES: usize = 8;

/// A run's ledger, read as a whole.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// The run's opening, if it can be read.
    pub(crate) open: Option<Record>,
    /// The run's cgroup, if it has one.
    pub(crate) cgroup: Option<Record>,
    /// Every keeper that the run had; the last one serves.
    pub(crate) keepers: Vec<Record>,
    /// Workers that are on record as living: the latest word on each.
    pub(crate) living: BTreeMap<u64, Record>,
    /// How many slots there are, a torn one not counted.
    pub(crate) slots: u64,
    /// Bytes of a record that was never finished.
    pub(crate) torn: u64,
    /// Slots that cannot be read, and why.
    pub(crate) damaged: Vec<(u64, Damage)>,
}

impl Contents {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let mut contents = Self::default();
        let (slots, torn) = bytes.as_chunks::<SLOT>();
        for (index, slot) in slots.iter().enumerate() {
            match Record::decode(slot) {
                Ok(record) => contents.take(record),
                Err(damage) => contents.damaged.push((index as u64, damage)),
            }
        }
        contents.slots = slots.len() as u64;
        contents.torn = torn.len() as u64;
        contents
    }

    fn take(&mut self, record: Record) {
        match record.kind {
            Kind::Open => self.open = Some(record),
            Kind::Cgroup => self.cgroup = Some(record),
            Kind::Keeper => self.keepers.push(record),
            Kind::Intent | Kind::Record => {
                self.living.insert(record.key, record);
            }
            Kind::Exit => {
                self.living.remove(&record.key);
            }
        }
    }

    /// A digest of the cgroups that the host was in; 0 where they are not known.
    #[cfg(not(portable))]
    pub(crate) fn host_cgroups(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| opening::cgroups(&open.text))
    }

    /// The processes that the host descended from, the nearest first, as far as they were recorded: whoever of them
    /// lives may have adopted orphans of the run.
    #[cfg(not(portable))]
    pub(crate) fn ancestors(&self) -> Vec<record::Process> {
        self.open.as_ref().map_or_else(Vec::new, |open| opening::ancestors(&open.text))
    }

    /// Any record at all, for what all records of a run have in common.
    pub(crate) fn any_record(&self) -> Option<&Record> {
        self.open.as_ref().or(self.keepers.first()).or(self.cgroup.as_ref()).or(self.living.values().next())
    }

    /// What is wrong with the file, for a person.
    pub(crate) fn troubles(&self) -> Vec<String> {
        let mut troubles = Vec::new();
        for (slot, damage) in self.damaged.iter().take(NAMED_DAMAGES) {
            troubles.push(match damage {
                Damage::Checksum => format!("record {slot} is corrupt: its checksum does not match"),
                Damage::Unknown => format!("record {slot} was written by a newer snakepit"),
            });
        }
        if let Some(more) = self.damaged.len().checked_sub(NAMED_DAMAGES).filter(|more| *more > 0) {
            troubles.push(format!("{more} more records cannot be read"));
        }
        if self.torn > 0 {
            troubles.push(format!("the last record is torn: {} of {SLOT} bytes", self.torn));
        }
        if self.open.is_none() {
            // A run has its name only once this record is written: without it, something was lost.
            troubles.push("the record of the run's opening is missing or corrupt".to_owned());
        }
        troubles
    }
}

/// Writes records from slot `at` on and gives back the next free slot. For the host, while no keeper lives.
pub(crate) fn write_from(file: &File, at: u64, records: &[Record]) -> io::Result<u64> {
    let bytes: Vec<u8> = records.iter().flat_map(Record::encode).collect();
    let _blocked = Blocked::new();
    file.write_all_at(&bytes, at * SLOT as u64)?;
    Ok(at + records.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Process;

    fn record(kind: Kind, key: u64) -> Record {
        Record {
            kind,
            tier: 2,
            key,
            time: 0,
            boot: [7; 16],
            pidns: 1,
            main: Process { pid: 100 + key as i32, start: 5, pidfs: 6 },
            shim: Process::default(),
            pgid: 0,
            status: -1,
            text: b"w".to_vec(),
        }
    }

    fn bytes(records: &[Record]) -> Vec<u8> {
        records.iter().flat_map(Record::encode).collect()
    }

    #[test]
    fn an_end_takes_a_worker_off_the_living_and_an_intent_alone_counts_as_living() {
        let contents = Contents::parse(&bytes(&[
            record(Kind::Open, 0),
            record(Kind::Intent, 1),
            record(Kind::Record, 1),
            record(Kind::Intent, 2),
            record(Kind::Exit, 1),
        ]));
        assert_eq!(contents.living.keys().copied().collect::<Vec<_>>(), [2]);
        assert!(contents.troubles().is_empty());
    }

    #[test]
    fn a_damaged_record_hides_no_other() {
        let whole = bytes(&[record(Kind::Open, 0), record(Kind::Record, 1), record(Kind::Record, 2)]);
        for byte in 0..SLOT {
            let mut bad = whole.clone();
            bad[SLOT + byte] ^= 0x40;
            let contents = Contents::parse(&bad);
            assert_eq!(contents.living.keys().copied().collect::<Vec<_>>(), [2]);
            assert_eq!(contents.damaged, [(1, Damage::Checksum)]);
        }
    }

    #[test]
    fn a_torn_tail_is_not_corruption_and_an_empty_file_is_never_a_clean_one() {
        let whole = bytes(&[record(Kind::Open, 0), record(Kind::Record, 1)]);
        for cut in SLOT + 1..whole.len() {
            let contents = Contents::parse(&whole[..cut]);
            assert!(contents.damaged.is_empty());
            assert_eq!(contents.torn, (cut - SLOT) as u64);
        }
        assert_eq!(Contents::parse(&[]).troubles().len(), 1);
    }
}
