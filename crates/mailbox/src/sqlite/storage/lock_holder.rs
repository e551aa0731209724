//! Finds the process that keeps the file locked.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::beside;

/// Says which process holds the file's write lock, and what to do about it.
pub(crate) fn describe_holder(path: &Path) -> String {
    let file = path.display();
    match holder(path) {
        Some(pid) => {
            let (name, state) = describe(pid);
            let remedy = match state {
                "stopped" => format!("continue it with `kill -CONT {pid}`, or end it"),
                _ => "wait for it, or end it".to_owned(),
            };
            format!("{file} is locked by process {pid} ({name}, {state}): {remedy}")
        }
        None => {
            format!(
                "{file} is locked by another process, which does not release it: end or continue that process"
            )
        }
    }
}

/// Returns the process that holds a write lock on the file, or on the index of its write-ahead log, according
/// to `/proc/locks`.
fn holder(path: &Path) -> Option<u32> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let locks: Vec<WriteLock> = locks.lines().filter_map(WriteLock::read).collect();
    // In WAL mode, writers lock the index. The file itself is locked only while its journal mode is changed.
    let files = [beside(path, "-shm"), path.to_owned()];
    files.iter().filter_map(|path| fs::metadata(path).ok()).find_map(|file| {
        let lock = locks.iter().find(|lock| lock.is_of(&file))?;
        Some(lock.pid)
    })
}

/// A write lock of another process.
#[derive(PartialEq, Eq, Debug)]
struct WriteLock {
    pid: u32,
    device: (u64, u64),
    inode: u64,
}

impl WriteLock {
    /// Reads a line such as `12: POSIX  ADVISORY  WRITE 345 08:02:6789 120 120`. Lines of waiting processes
    /// have an arrow after the number, and are not read.
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace().skip(1);
        if words.next() != Some("POSIX") || words.nth(1) != Some("WRITE") {
            return None;
        }
        let pid: u32 = words.next()?.parse().ok()?;
        let mut file = words.next()?.split(':');
        let mut device = || u64::from_str_radix(file.next()?, 16).ok();
        let device = (device()?, device()?);
        let inode = file.next()?.parse().ok()?;
        // The number is 0 for a holder in a PID namespace that is not visible from here.
        (pid != 0 && pid != std::process::id()).then_some(Self { pid, device, inode })
    }

    /// Reports whether the lock is on this file. The inode alone does not prove it: file systems in memory
    /// all count from 1. Some file systems show another device number in `/proc/locks`; then the process must
    /// have the file open.
    fn is_of(&self, file: &fs::Metadata) -> bool {
        self.inode == file.ino() && (self.device == device_of(file) || has_open(self.pid, file))
    }
}

/// Returns the major and minor number of the file's device, as Linux packs them.
fn device_of(file: &fs::Metadata) -> (u64, u64) {
    let dev = file.dev();
    ((dev >> 8) & 0xfff | (dev >> 32) & !0xfff, dev & 0xff | (dev >> 12) & !0xff)
}

fn has_open(pid: u32, file: &fs::Metadata) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let open = descriptors.flatten().filter_map(|entry| fs::metadata(entry.path()).ok());
    open.into_iter().any(|open| (open.dev(), open.ino()) == (file.dev(), file.ino()))
}

/// Returns the name and the state of a process.
fn describe(pid: u32) -> (String, &'static str) {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let letter = status.lines().find_map(|line| line.strip_prefix("State:")?.trim().chars().next());
    let state = match letter {
        Some('T' | 't') => "stopped",
        Some('D') => "waiting for a disk",
        Some('Z') => "dead but not reaped",
        Some(_) => "running",
        None => "in an unknown state",
    };
    (name.trim().to_owned(), state)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::{WriteLock, device_of};

    #[test]
    fn the_holder_of_a_write_lock_is_read_from_the_line() {
        let lock = WriteLock { pid: 345, device: (8, 0x1a), inode: 6789 };
        assert_eq!(WriteLock::read("1: POSIX  ADVISORY  WRITE 345 08:1a:6789 120 120"), Some(lock));
    }

    #[test]
    fn readers_waiters_and_hidden_holders_are_ignored() {
        for line in [
            "1: POSIX  ADVISORY  READ  345 08:02:6789 123 123",
            "1: -> POSIX  ADVISORY  WRITE 345 08:02:6789 120 120",
            "1: FLOCK  ADVISORY  WRITE 345 08:02:6789 0 EOF",
            "1: POSIX  ADVISORY  WRITE 0 08:02:6789 120 120",
            "",
        ] {
            assert_eq!(WriteLock::read(line), None, "{line}");
        }
    }

    /// A person may end the named process, so it must be the right one.
    #[test]
    fn the_holder_of_a_file_with_the_same_inode_on_another_device_is_ignored() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let meta = fs::metadata(file.path()).expect("its data");
        let device = device_of(&meta);
        let ours = std::process::id();
        // This process has the file open, and its parent does not.
        let parent = std::os::unix::process::parent_id();
        let lock = |pid, device, inode| WriteLock { pid, device, inode };
        assert!(lock(parent, device, meta.ino()).is_of(&meta));
        assert!(!lock(parent, (device.0, device.1 + 1), meta.ino()).is_of(&meta));
        assert!(!lock(parent, device, meta.ino() + 1).is_of(&meta));
        assert!(lock(ours, (device.0, device.1 + 1), meta.ino()).is_of(&meta), "it is open there");
    }
}
