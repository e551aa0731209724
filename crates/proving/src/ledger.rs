//! Damaged ledgers: changes the bytes of a run's ledger as a failing disk or another boot would.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The size of a record's slot.
pub const SLOT: usize = 512;

/// Returns the path of the ledger in a run's directory.
pub fn file_of(run_dir: &Path) -> PathBuf {
    run_dir.join("ledger")
}

/// Reads a ledger's bytes.
pub fn read(run_dir: &Path) -> Vec<u8> {
    fs::read(file_of(run_dir)).expect("the ledger's bytes")
}

/// Replaces the bytes of a ledger.
pub fn write(run_dir: &Path, bytes: &[u8]) {
    fs::write(file_of(run_dir), bytes).expect("write the ledger");
}

const BOOT: std::ops::Range<usize> = 24..40;
const PID_NAMESPACE: std::ops::Range<usize> = 40..48;
const KIND_AT: usize = 6;
const KEY_AT: usize = 8;
const MAIN_AT: usize = 48;
const MAIN_PID_AT: usize = 64;
/// Opening and cgroup.
const HOST_KINDS: [u8; 2] = [1, 2];
const KEEPER_KIND: u8 = 3;
/// Intent and record.
const WORKER_KINDS: [u8; 2] = [4, 5];
const CRC_AT: usize = SLOT - 4;

/// Makes every record belong to another boot.
pub fn move_to_another_boot(bytes: &mut [u8]) {
    change(bytes, BOOT);
}

/// Makes every record belong to another PID namespace.
pub fn move_to_another_pid_namespace(bytes: &mut [u8]) {
    change(bytes, PID_NAMESPACE);
}

/// Makes every record belong to this boot and to the caller's PID namespace.
pub fn move_here(bytes: &mut [u8]) {
    use std::os::unix::fs::MetadataExt;
    let boot =
        fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("the boot's name").replace('-', "");
    let boot = u128::from_str_radix(boot.trim(), 16).expect("hexadecimal digits").to_be_bytes();
    let namespace = fs::metadata("/proc/self/ns/pid").expect("the PID namespace").ino();
    for slot in bytes.chunks_exact_mut(SLOT) {
        slot[BOOT].copy_from_slice(&boot);
        slot[PID_NAMESPACE].copy_from_slice(&namespace.to_le_bytes());
        seal(slot);
    }
}

/// Returns the workers that a slot other than `damaged` names with a process. These must not be skipped.
pub fn named_outside(bytes: &[u8], damaged: usize) -> BTreeSet<u64> {
    let number = |slot: &[u8], at: usize, len: usize| {
        slot[at..at + len].iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let slots = bytes.chunks_exact(SLOT).enumerate();
    slots
        .filter(|&(at, slot)| at != damaged && WORKER_KINDS.contains(&slot[KIND_AT]))
        .filter(|(_, slot)| number(slot, MAIN_PID_AT, 4) != 0)
        .map(|(_, slot)| number(slot, KEY_AT, 8))
        .collect()
}

/// A process as a record identifies it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LedgerIdentity {
    /// The clock ticks from boot to its start.
    pub start: u64,
    /// Its inode in pidfs.
    pub pidfs: u64,
    /// Its pid.
    pub pid: i32,
}

impl LedgerIdentity {
    /// Reads the identity of a living process, on a kernel that has pidfs.
    pub fn of(process: &crate::ObservedProcess) -> Self {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.pid())).expect("a living process");
        let after_name = stat.rsplit_once(')').expect("a name").1;
        let start = after_name.split_ascii_whitespace().nth(19).and_then(|start| start.parse().ok());
        let pidfs = rustix::fs::fstat(process).expect("fstat of a pidfd").st_ino;
        Self { start: start.expect("a start time"), pidfs, pid: process.pid() }
    }
}

/// Makes every record of a worker name this process.
pub fn rename_worker(bytes: &mut [u8], key: u64, identity: LedgerIdentity) {
    rename(bytes, |slot| slot[KEY_AT..KEY_AT + 8] == key.to_le_bytes(), identity);
}

/// Makes the records of the run itself name this host.
pub fn rename_host(bytes: &mut [u8], identity: LedgerIdentity) {
    rename(bytes, |slot| HOST_KINDS.contains(&slot[KIND_AT]), identity);
}

/// Makes the record of the keeper name this process.
pub fn rename_keeper(bytes: &mut [u8], identity: LedgerIdentity) {
    rename(bytes, |slot| slot[KIND_AT] == KEEPER_KIND, identity);
}

fn rename(bytes: &mut [u8], which: impl Fn(&[u8]) -> bool, identity: LedgerIdentity) {
    for slot in bytes.chunks_exact_mut(SLOT).filter(|slot| which(slot)) {
        slot[MAIN_AT..MAIN_AT + 8].copy_from_slice(&identity.start.to_le_bytes());
        slot[MAIN_AT + 8..MAIN_PID_AT].copy_from_slice(&identity.pidfs.to_le_bytes());
        slot[MAIN_PID_AT..MAIN_PID_AT + 4].copy_from_slice(&identity.pid.to_le_bytes());
        seal(slot);
    }
}

fn change(bytes: &mut [u8], place: std::ops::Range<usize>) {
    for slot in bytes.chunks_exact_mut(SLOT) {
        for byte in &mut slot[place.clone()] {
            *byte ^= 0x5A;
        }
        seal(slot);
    }
}

/// Updates the checksum of a changed record.
fn seal(slot: &mut [u8]) {
    let crc = crc32(&slot[..CRC_AT]).to_le_bytes();
    slot[CRC_AT..].copy_from_slice(&crc);
}

/// Computes CRC-32 as in zlib. It is written a second time on purpose: the ledger's own CRC must agree with it.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { 0xEDB8_8320 ^ (crc >> 1) } else { crc >> 1 };
    !bytes.iter().fold(!0_u32, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_standard_crc32() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }
}
