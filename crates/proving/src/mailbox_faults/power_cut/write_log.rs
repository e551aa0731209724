//! A log of all changes to files, in order.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One change to a file.
#[derive(Clone, Debug)]
pub struct WriteLogEntry {
    /// The file.
    pub path: PathBuf,
    /// The change.
    pub change: FileChange,
}

/// A change to a file.
#[derive(Clone, Debug)]
pub enum FileChange {
    /// Bytes were written at an offset.
    Write(u64, Vec<u8>),
    /// The length was set.
    Truncate(u64),
    /// All earlier changes reached the disk.
    Sync,
    /// The file was removed.
    Delete {
        /// Whether the directory was synced. Then the removal is durable.
        is_synced: bool,
    },
    /// At this point, this many operations of the test had returned.
    Returned(usize),
}

/// The log that the VFS writes.
#[derive(Debug)]
pub struct WriteLog;

static ENTRIES: Mutex<Vec<WriteLogEntry>> = Mutex::new(Vec::new());

impl WriteLog {
    fn entries() -> MutexGuard<'static, Vec<WriteLogEntry>> {
        ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a change.
    pub fn note(path: &Path, change: FileChange) {
        Self::entries().push(WriteLogEntry { path: path.to_owned(), change });
    }

    /// Returns all changes in a directory, in order.
    pub fn of(dir: &Path) -> Vec<WriteLogEntry> {
        Self::entries().iter().filter(|entry| entry.path.starts_with(dir)).cloned().collect()
    }
}
