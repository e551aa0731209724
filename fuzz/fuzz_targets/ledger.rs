//! The ledger of a run as it is read from a disk: arbitrary bytes, and slots with a correct checksum.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/custody/src/ledger/mod.rs"]
#[allow(dead_code, reason = "the host writes, and this only reads")]
mod ledger;

use ledger::contents::LedgerContents;
use ledger::record::{Record, SLOT};

fuzz_target!(|data: &[u8]| {
    // A random checksum is never correct, so half of the inputs get correct ones.
    let mut bytes = data.to_vec();
    if data.first().is_some_and(|byte| byte % 2 == 0) {
        for slot in bytes.as_chunks_mut::<SLOT>().0 {
            slot[..4].copy_from_slice(b"SPIT");
            let sum = crc32(&slot[..SLOT - 4]);
            slot[SLOT - 4..].copy_from_slice(&sum.to_le_bytes());
        }
    }
    read_whole(&bytes);
    for slot in bytes.as_chunks::<SLOT>().0 {
        if let Ok(record) = Record::decode(slot) {
            assert_eq!(Record::decode(&record.encode()), Ok(record), "what is written is read back");
        }
    }
});

/// Asserts that every slot is either a record or damaged, and that nothing is counted twice.
fn read_whole(bytes: &[u8]) {
    let contents = LedgerContents::parse(bytes);
    assert_eq!(contents.slots * SLOT as u64 + contents.torn, bytes.len() as u64);
    let records = contents.slots - contents.damaged.len() as u64;
    let kept = contents.keepers.len() + contents.living.len();
    let kept = kept + usize::from(contents.open.is_some()) + usize::from(contents.cgroup.is_some());
    assert!(kept as u64 <= records, "{kept} of {records}");
    let troubled = contents.torn > 0 || !contents.damaged.is_empty() || contents.open.is_none();
    assert_eq!(contents.troubles().is_empty(), !troubled, "unreadable is never empty");
    assert_eq!(contents.any_record().is_none(), kept == 0, "what is kept is found");
}

/// Computes CRC-32 as in zlib.
fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut index = 0;
        while index < 2048 {
            // Eight steps per byte.
            let at = index / 8;
            let before: u32 = if index % 8 == 0 { at as u32 } else { table[at] };
            table[at] = (before >> 1) ^ (0xEDB8_8320 & (before & 1).wrapping_neg());
            index += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |crc: u32, byte| TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8))
}
