//! One ledger record: a slot of 512 bytes with magic, version and checksum.
//!
//! Compiled into the library, which reads records, and into the keeper, which writes them, so the file uses only std.
//! All slots have the same size, so a damaged slot never hides the next one.

/// The size of every record on disk.
pub(crate) const SLOT: usize = 512;
/// The longest text that a record carries: a worker's name or a cgroup's path.
pub(crate) const MAX_TEXT: usize = 384;

const MAGIC: [u8; 4] = *b"SPIT";
const VERSION: u16 = 1;
const CRC_AT: usize = SLOT - 4;
const TEXT_AT: usize = 116;

/// The kind of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum RecordKind {
    /// The run was opened. `main` is the host, and the text is the run's id.
    Open = 1,
    /// The run has a cgroup. The text is its path.
    Cgroup = 2,
    /// A keeper serves. `main` is the keeper.
    Keeper = 3,
    /// A worker is about to be started.
    Intent = 4,
    /// A worker waits at the gate. `main` is its process, and `shim` is its shim.
    Record = 5,
    /// A worker and everything that it started are gone, or the worker never ran.
    Exit = 6,
}

impl RecordKind {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Open, Self::Cgroup, Self::Keeper, Self::Intent, Self::Record, Self::Exit]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// A process as the ledger records it. Start time and inode distinguish processes that share a pid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ProcessIdentity {
    /// The pid in the run's PID namespace; 0 if there is no process.
    pub(crate) pid: i32,
    /// The time from boot to the process's start, in clock ticks; 0 if only the inode was recorded.
    pub(crate) start: u64,
    /// The process's inode in pidfs, unique until the next boot; 0 if the kernel has no pidfs.
    pub(crate) pidfs: u64,
}

/// A decoded record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    /// The kind of the record.
    pub(crate) kind: RecordKind,
    /// The tier's wire number.
    pub(crate) tier: u8,
    /// The key of the spawn that the record belongs to, counted from 1 within the run; 0 for the run itself.
    pub(crate) key: u64,
    /// The wall clock in nanoseconds since 1970, for people.
    pub(crate) time: u64,
    /// The boot id of the machine.
    pub(crate) boot: [u8; 16],
    /// The inode of the PID namespace in which the pids are valid.
    pub(crate) pidns: u64,
    /// The host, keeper or worker.
    pub(crate) main: ProcessIdentity,
    /// The worker's shim.
    pub(crate) shim: ProcessIdentity,
    /// The worker's process group.
    pub(crate) pgid: i32,
    /// The worker's wait status, or -1 if there is none.
    pub(crate) status: i32,
    /// The run id, worker name or cgroup path.
    pub(crate) text: Vec<u8>,
}

/// Why a slot is not a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecordDamage {
    /// The checksum does not match: bits changed, or only a part of the slot was written.
    Checksum,
    /// The checksum matches, but the version or kind is newer than this code.
    Unknown,
}

impl Record {
    /// Creates a record with the current time. It names no process yet.
    pub(crate) fn new(kind: RecordKind, tier: u8, boot: [u8; 16], pidns: u64, text: Vec<u8>) -> Self {
        // The time is for people who read the ledger. No decision depends on it.
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            kind,
            tier,
            key: 0,
            time: since.map_or(0, |since| since.as_nanos() as u64),
            boot,
            pidns,
            main: ProcessIdentity::default(),
            shim: ProcessIdentity::default(),
            pgid: 0,
            status: -1,
            text,
        }
    }

    /// Encodes the record as a slot.
    pub(crate) fn encode(&self) -> [u8; SLOT] {
        let mut slot = [0; SLOT];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            slot[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&MAGIC);
        put(&VERSION.to_le_bytes());
        put(&[self.kind as u8, self.tier]);
        put(&self.key.to_le_bytes());
        put(&self.time.to_le_bytes());
        put(&self.boot);
        put(&self.pidns.to_le_bytes());
        for process in [self.main, self.shim] {
            put(&process.start.to_le_bytes());
            put(&process.pidfs.to_le_bytes());
            put(&process.pid.to_le_bytes());
        }
        put(&self.pgid.to_le_bytes());
        put(&self.status.to_le_bytes());
        put(&[0; 18]);
        let text = &self.text[..self.text.len().min(MAX_TEXT)];
        put(&(text.len() as u16).to_le_bytes());
        put(text);
        let crc = crc32(&slot[..CRC_AT]);
        slot[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        slot
    }

    /// Decodes a slot.
    pub(crate) fn decode(slot: &[u8; SLOT]) -> Result<Self, RecordDamage> {
        let number = |at: usize| u64::from_le_bytes(slot[at..at + 8].try_into().unwrap_or_default());
        let small = |at: usize| i32::from_le_bytes(slot[at..at + 4].try_into().unwrap_or_default());
        if slot[..4] != MAGIC || crc32(&slot[..CRC_AT]).to_le_bytes() != slot[CRC_AT..] {
            return Err(RecordDamage::Checksum);
        }
        let process =
            |at: usize| ProcessIdentity { start: number(at), pidfs: number(at + 8), pid: small(at + 16) };
        let text_len = usize::from(u16::from_le_bytes([slot[TEXT_AT - 2], slot[TEXT_AT - 1]]));
        if u16::from_le_bytes([slot[4], slot[5]]) != VERSION || text_len > MAX_TEXT {
            return Err(RecordDamage::Unknown);
        }
        Ok(Self {
            kind: RecordKind::from_byte(slot[6]).ok_or(RecordDamage::Unknown)?,
            tier: slot[7],
            key: number(8),
            time: number(16),
            boot: slot[24..40].try_into().unwrap_or_default(),
            pidns: number(40),
            main: process(48),
            shim: process(68),
            pgid: small(88),
            status: small(92),
            text: slot[TEXT_AT..TEXT_AT + text_len].to_vec(),
        })
    }
}

/// Computes CRC-32 as zlib does. Written here because the keeper is built from std alone.
fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0u32; 256];
        let mut index = 0;
        while index < 256 {
            let mut value = index as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 { 0xEDB8_8320 ^ (value >> 1) } else { value >> 1 };
                bit += 1;
            }
            table[index] = value;
            index += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |crc, byte| TABLE[((crc ^ u32::from(*byte)) & 0xFF) as usize] ^ (crc >> 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Record {
        Record {
            kind: RecordKind::Record,
            tier: 2,
            key: 7,
            time: 1_700_000_000_000_000_000,
            boot: *b"0123456789abcdef",
            pidns: 4_026_531_836,
            main: ProcessIdentity { pid: 4711, start: 99, pidfs: 1234 },
            shim: ProcessIdentity { pid: 4710, start: 98, pidfs: 1233 },
            pgid: 4711,
            status: -1,
            text: b"python/3".to_vec(),
        }
    }

    #[test]
    fn a_record_reads_back_as_written() {
        assert_eq!(Record::decode(&sample().encode()), Ok(sample()));
        let longest = Record { text: vec![b'x'; MAX_TEXT], ..sample() };
        assert_eq!(Record::decode(&longest.encode()), Ok(longest));
    }

    #[test]
    fn every_single_bit_flip_is_noticed() {
        let good = sample().encode();
        for bit in 0..SLOT * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Record::decode(&bad), Err(RecordDamage::Checksum), "bit {bit}");
        }
    }

    #[test]
    fn a_record_of_the_first_version_is_still_read() {
        let sample_on_disk = include_bytes!("../../tests/data/record-v1.bin");
        assert_eq!(Record::decode(sample_on_disk), Ok(sample()));
    }

    /// A newer version has another number, or a kind of record that this version does not know.
    #[test]
    fn a_record_of_a_newer_version_is_unknown_and_not_corrupt() {
        for byte in [4, 6] {
            let mut newer = sample().encode();
            newer[byte] = 0x77;
            let crc = crc32(&newer[..CRC_AT]);
            newer[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(Record::decode(&newer), Err(RecordDamage::Unknown));
        }
    }

    #[test]
    fn the_checksum_is_standard_crc32() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }
}
