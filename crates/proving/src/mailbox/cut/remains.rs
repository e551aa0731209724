//! The files as they could be found after a cut.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::log::{Change, Entry};
use crate::mailbox::load::Dice;

/// A disk writes whole sectors.
const SECTOR: usize = 512;

/// What a cut leaves behind.
#[derive(Clone, Debug, Default)]
pub struct Remains {
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// How many changes were lost, or kept in part.
    pub lost: usize,
}

impl Remains {
    /// After these entries, with this chance for what was not synced.
    pub fn after(entries: &[Entry], dice: &mut Dice) -> Self {
        let mut remains = Self::default();
        let paths: BTreeSet<&Path> = entries.iter().map(|entry| entry.path.as_path()).collect();
        for path in paths {
            let changes: Vec<&Change> =
                entries.iter().filter(|entry| entry.path == path).map(|entry| &entry.change).collect();
            remains.file(path, &changes, dice);
        }
        remains
    }

    fn file(&mut self, path: &Path, changes: &[&Change], dice: &mut Dice) {
        let is_sync = |change: &&Change| matches!(change, Change::Sync | Change::Delete { is_synced: true });
        let synced = changes.iter().rposition(is_sync).map_or(0, |at| at + 1);
        // In some cuts all that was not synced is lost, in some nothing is, in most chance decides of each.
        let mood = dice.below(6);
        let mut content: Option<Vec<u8>> = None;
        for (index, change) in changes.iter().enumerate() {
            let fate = if index < synced || mood == 0 {
                2
            } else if mood == 1 {
                0
            } else {
                dice.below(3)
            };
            if !matches!(change, Change::Sync | Change::Returned(_)) && fate < 2 {
                self.lost += 1;
            }
            match (change, fate) {
                (Change::Write(at, bytes), 2) => put(&mut content, *at as usize, bytes),
                (Change::Write(at, bytes), 1) => {
                    let sectors = bytes.len() / SECTOR;
                    let kept = dice.below(sectors as u64 + 1) as usize * SECTOR;
                    put(&mut content, *at as usize, &bytes[..kept]);
                }
                (Change::Truncate(size), 2) => content.get_or_insert_default().resize(*size as usize, 0),
                (Change::Delete { .. }, 2) => content = None,
                // The old file is back; what was written since is in another one, which is lost with its name.
                (Change::Delete { .. }, _) => break,
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
