//! Who keeps the others from writing.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::beside;

/// Names whoever holds the file's write lock, and how to get rid of that.
pub(super) fn who_locks(path: &Path) -> String {
    let file = path.display();
    match holder(path) {
        Some(pid) => {
            let (name, state) = describe(pid);
            format!("{file} is locked by process {pid} ({name}, {state}): {}", way_out(pid, &state))
        }
        None => {
            format!("{file} is locked by another process, which does not let go of it: end or continue it")
        }
    }
}

fn way_out(pid: u32, state: &str) -> String {
    if state == "stopped" {
        format!("continue it with `kill -CONT {pid}`, or end it")
    } else {
        "wait for it, or end it".to_owned()
    }
}

/// The process with a write lock on the file or on its index of the write-ahead log, as `/proc/locks` tells.
fn holder(path: &Path) -> Option<u32> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    // The lock of writers in WAL mode is in the index; the file itself is locked only while its mode is changed.
    let inodes: Vec<u64> = [beside(path, "-shm"), path.to_owned()]
        .iter()
        .filter_map(|path| Some(fs::metadata(path).ok()?.ino()))
        .collect();
    inodes.iter().find_map(|inode| locks.lines().find_map(|line| holds(line, *inode)))
}

/// The holder of a lock, if the line is about a write lock of this file. `12: POSIX  ADVISORY  WRITE 345 08:02:6789 120 120`;
/// one who waits for a lock has an arrow after the number.
fn holds(line: &str, inode: u64) -> Option<u32> {
    let mut words = line.split_ascii_whitespace().skip(1);
    if words.next() != Some("POSIX") || words.nth(1) != Some("WRITE") {
        return None;
    }
    let pid: u32 = words.next()?.parse().ok()?;
    let found: u64 = words.next()?.rsplit(':').next()?.parse().ok()?;
    // A holder in a PID namespace that cannot be seen from here has the number 0.
    (found == inode && pid != 0 && pid != std::process::id()).then_some(pid)
}

/// What it is called, and what it does.
fn describe(pid: u32) -> (String, String) {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let letter = status.lines().find_map(|line| line.strip_prefix("State:")?.trim().chars().next());
    let state = match letter {
        Some('T' | 't') => "stopped",
        Some('D') => "waiting for a disk",
        Some('Z') => "dead but not reaped",
        Some(_) => "running",
        None => "of which nothing is known",
    };
    (name.trim().to_owned(), state.to_owned())
}

#[cfg(test)]
mod tests {
    use super::holds;

    #[test]
    fn the_holder_of_a_write_lock_is_read_from_the_line() {
        assert_eq!(holds("1: POSIX  ADVISORY  WRITE 345 08:02:6789 120 120", 6789), Some(345));
    }

    #[test]
    fn readers_waiters_other_files_and_hidden_holders_are_not_it() {
        for line in [
            "1: POSIX  ADVISORY  READ  345 08:02:6789 123 123",
            "1: -> POSIX  ADVISORY  WRITE 345 08:02:6789 120 120",
            "1: FLOCK  ADVISORY  WRITE 345 08:02:6789 0 EOF",
            "1: POSIX  ADVISORY  WRITE 345 08:02:67 120 120",
            "1: POSIX  ADVISORY  WRITE 0 08:02:6789 120 120",
            "",
        ] {
            assert_eq!(holds(line, 6789), None, "{line}");
        }
    }
}
