//! What was written to files, in order.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One thing that happened to a file.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Which file.
    pub path: PathBuf,
    /// What happened.
    pub change: Change,
}

/// What can happen to a file.
#[derive(Clone, Debug)]
pub enum Change {
    /// Bytes were written there.
    Write(u64, Vec<u8>),
    /// It was cut, or lengthened, to this.
    Truncate(u64),
    /// All before this is on the disk.
    Sync,
    /// It was removed.
    Delete {
        /// Whether its directory was synced, so that it stays removed.
        is_synced: bool,
    },
    /// So many operations of the test had returned by now.
    Returned(usize),
}

/// The recorder that the file layer writes to.
#[derive(Debug)]
pub struct Log;

static ENTRIES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

impl Log {
    fn entries() -> MutexGuard<'static, Vec<Entry>> {
        ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes something.
    pub fn note(path: &Path, change: Change) {
        Self::entries().push(Entry { path: path.to_owned(), change });
    }

    /// All that happened in a directory, in order.
    pub fn of(dir: &Path) -> Vec<Entry> {
        Self::entries().iter().filter(|entry| entry.path.starts_with(dir)).cloned().collect()
    }
}
