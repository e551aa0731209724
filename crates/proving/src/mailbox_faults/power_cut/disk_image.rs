//! The files as a power cut could leave them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::write_log::{FileChange, WriteLogEntry};
use crate::random::SeededRandom;

/// The size of a sector. A disk writes whole sectors.
const SECTOR: usize = 512;

/// The files after a cut.
#[derive(Clone, Debug, Default)]
pub struct DiskImage {
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// The number of changes that were lost or only partly kept.
    pub lost: usize,
}

impl DiskImage {
    /// Returns the files after these writes. Writes that were not synced survive at random.
    pub fn after(entries: &[WriteLogEntry], random: &mut SeededRandom) -> Self {
        let mut disk_image = Self::default();
        let paths: BTreeSet<&Path> = entries.iter().map(|entry| entry.path.as_path()).collect();
        for path in paths {
            let changes: Vec<&FileChange> =
                entries.iter().filter(|entry| entry.path == path).map(|entry| &entry.change).collect();
            disk_image.file(path, &changes, random);
        }
        disk_image
    }

    fn file(&mut self, path: &Path, changes: &[&FileChange], random: &mut SeededRandom) {
        let is_sync = |change: &&FileChange| {
            matches!(change, FileChange::Sync | FileChange::Delete { is_synced: true })
        };
        let synced = changes.iter().rposition(is_sync).map_or(0, |at| at + 1);
        // Some cuts lose everything that was not synced, some lose nothing, and most lose some of it at random.
        let mood = random.below(6);
        let mut content: Option<Vec<u8>> = None;
        for (index, change) in changes.iter().enumerate() {
            let fate = if index < synced || mood == 0 {
                2
            } else if mood == 1 {
                0
            } else {
                random.below(3)
            };
            if !matches!(change, FileChange::Sync | FileChange::Returned(_)) && fate < 2 {
                self.lost += 1;
            }
            match (change, fate) {
                (FileChange::Write(at, bytes), 2) => put(&mut content, *at as usize, bytes),
                (FileChange::Write(at, bytes), 1) => {
                    let sectors = bytes.len() / SECTOR;
                    let kept = random.below(sectors as u64 + 1) as usize * SECTOR;
                    put(&mut content, *at as usize, &bytes[..kept]);
                }
                (FileChange::Truncate(size), 2) => content.get_or_insert_default().resize(*size as usize, 0),
                (FileChange::Delete { .. }, 2) => content = None,
                // The old file is back. Later writes went to another file, which is lost together with its name.
                (FileChange::Delete { .. }, _) => break,
                _ => {}
            }
        }
        if let Some(content) = content {
            self.files.insert(path.to_owned(), content);
        }
    }

    /// Writes the files of `from` into another directory.
    pub fn write(&self, from: &Path, to: &Path) {
        for (path, content) in &self.files {
            let name = path.strip_prefix(from).expect("a file of the directory");
            fs::write(to.join(name), content).expect("a file");
        }
    }
}

fn put(content: &mut Option<Vec<u8>>, at: usize, bytes: &[u8]) {
    let content = content.get_or_insert_default();
    if bytes.is_empty() {
        return;
    }
    if content.len() < at + bytes.len() {
        content.resize(at + bytes.len(), 0);
    }
    content[at..at + bytes.len()].copy_from_slice(bytes);
}
