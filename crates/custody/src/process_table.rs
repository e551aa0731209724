//! All processes at one moment: who descends from whom, and who is in which group.
//!
//! Rows are read one after another, so the table is not of one instant; whoever acts on a row makes sure of it with a
//! pidfd first. It owns no judgement about runs.

use std::collections::BTreeMap;
use std::io;

use crate::Pid;
use crate::machine::{self, Stat};

/// What was seen, by pid.
#[derive(Debug, Default)]
pub(crate) struct ProcessTable {
    rows: BTreeMap<i32, Stat>,
    children: BTreeMap<i32, Vec<Pid>>,
}

impl ProcessTable {
    /// Reads everybody who can be seen. Whoever may not be looked at, as of another user where `/proc` hides them, is
    /// left out; every other error is one of the whole table.
    pub(crate) fn read() -> io::Result<Self> {
        let mut table = Self::default();
        for pid in machine::all_pids()? {
            match machine::stat(pid) {
                Ok(Some(stat)) => {
                    table.rows.insert(pid.as_raw(), stat);
                    table.children.entry(stat.parent).or_default().push(pid);
                }
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                Err(error) => return Err(error),
            }
        }
        Ok(table)
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = (Pid, Stat)> {
        self.rows.iter().filter_map(|(pid, stat)| Some((Pid::new(*pid)?, *stat)))
    }

    pub(crate) fn row(&self, pid: Pid) -> Option<Stat> {
        self.rows.get(&pid.as_raw()).copied()
    }

    pub(crate) fn children_of(&self, pid: Pid) -> &[Pid] {
        self.children.get(&pid.as_raw()).map_or(&[], Vec::as_slice)
    }
}
