//! The contents of a run's ledger. The parser distinguishes absent, torn and corrupt records.

use std::collections::BTreeMap;

use super::record::{Record, RecordDamage, RecordKind, SLOT};
#[cfg(not(portable))]
use super::{opening_record, record};

/// How many damaged records are named individually.
const NAMED_DAMAGES: usize = 8;

/// The contents of a run's ledger.
#[derive(Debug, Default)]
pub(crate) struct LedgerContents {
    /// The opening record, if it can be read.
    pub(crate) open: Option<Record>,
    /// The run's cgroup, if it has one.
    pub(crate) cgroup: Option<Record>,
    /// All keepers that the run had. The last one serves.
    pub(crate) keepers: Vec<Record>,
    /// The latest record of each worker that the ledger records as living.
    pub(crate) living: BTreeMap<u64, Record>,
    /// The number of slots, without a torn one.
    pub(crate) slots: u64,
    /// The number of bytes of an unfinished record.
    pub(crate) torn: u64,
    /// Slots that cannot be read, and why.
    pub(crate) damaged: Vec<(u64, RecordDamage)>,
}

impl LedgerContents {
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
            RecordKind::Open => self.open = Some(record),
            RecordKind::Cgroup => self.cgroup = Some(record),
            RecordKind::Keeper => self.keepers.push(record),
            RecordKind::Intent | RecordKind::Record => {
                self.living.insert(record.key, record);
            }
            RecordKind::Exit => {
                self.living.remove(&record.key);
            }
        }
    }

    /// Returns the digest of the host's cgroups, or 0 if it is unknown.
    #[cfg(not(portable))]
    pub(crate) fn host_cgroups(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| opening_record::cgroups(&open.text))
    }

    /// Returns the recorded ancestors of the host, the nearest first. Living ancestors may have adopted orphans of the
    /// run.
    #[cfg(not(portable))]
    pub(crate) fn ancestors(&self) -> Vec<record::ProcessIdentity> {
        self.open.as_ref().map_or_else(Vec::new, |open| opening_record::ancestors(&open.text))
    }

    /// Returns any record, for the fields that all records of a run share.
    pub(crate) fn any_record(&self) -> Option<&Record> {
        self.open.as_ref().or(self.keepers.first()).or(self.cgroup.as_ref()).or(self.living.values().next())
    }

    /// Describes for people what is wrong with the file.
    pub(crate) fn troubles(&self) -> Vec<String> {
        let mut troubles = Vec::new();
        for (slot, damage) in self.damaged.iter().take(NAMED_DAMAGES) {
            troubles.push(match damage {
                RecordDamage::Checksum => format!("record {slot} is corrupt: its checksum does not match"),
                RecordDamage::Unknown => format!("record {slot} was written by a newer snakepit"),
            });
        }
        if let Some(more) = self.damaged.len().checked_sub(NAMED_DAMAGES).filter(|more| *more > 0) {
            let records = if more == 1 { "record" } else { "records" };
            troubles.push(format!("{more} more {records} cannot be read"));
        }
        if self.torn > 0 {
            troubles.push(format!("the last record is torn: {} of {SLOT} bytes", self.torn));
        }
        if self.open.is_none() {
            // A run gets its name only after this record is written. If the record is missing, something was lost.
            troubles.push("the record of the run's opening is missing or corrupt".to_owned());
        }
        troubles
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::record::ProcessIdentity;

    fn record(kind: RecordKind, key: u64) -> Record {
        Record {
            kind,
            tier: 2,
            key,
            time: 0,
            boot: [7; 16],
            pidns: 1,
            main: ProcessIdentity { pid: 100 + key as i32, start: 5, pidfs: 6 },
            shim: ProcessIdentity::default(),
            pgid: 0,
            status: -1,
            text: b"w".to_vec(),
        }
    }

    fn bytes(records: &[Record]) -> Vec<u8> {
        records.iter().flat_map(Record::encode).collect()
    }

    #[test]
    fn an_exit_removes_a_worker_from_the_living_and_a_bare_intent_counts_as_living() {
        let contents = LedgerContents::parse(&bytes(&[
            record(RecordKind::Open, 0),
            record(RecordKind::Intent, 1),
            record(RecordKind::Record, 1),
            record(RecordKind::Intent, 2),
            record(RecordKind::Exit, 1),
        ]));
        assert_eq!(contents.living.keys().copied().collect::<Vec<_>>(), [2]);
        assert!(contents.troubles().is_empty());
    }

    #[test]
    fn one_damaged_record_does_not_hide_the_others() {
        let whole = bytes(&[
            record(RecordKind::Open, 0),
            record(RecordKind::Record, 1),
            record(RecordKind::Record, 2),
        ]);
        for byte in 0..SLOT {
            let mut bad = whole.clone();
            bad[SLOT + byte] ^= 0x40;
            let contents = LedgerContents::parse(&bad);
            assert_eq!(contents.living.keys().copied().collect::<Vec<_>>(), [2]);
            assert_eq!(contents.damaged, [(1, RecordDamage::Checksum)]);
        }
    }

    #[test]
    fn a_torn_tail_is_not_corruption_and_an_empty_ledger_is_not_clean() {
        let whole = bytes(&[record(RecordKind::Open, 0), record(RecordKind::Record, 1)]);
        for cut in SLOT + 1..whole.len() {
            let contents = LedgerContents::parse(&whole[..cut]);
            assert!(contents.damaged.is_empty());
            assert_eq!(contents.torn, (cut - SLOT) as u64);
        }
        assert_eq!(LedgerContents::parse(&[]).troubles().len(), 1);
    }
}
