//! All processes at one moment, with their parents and groups.
//!
//! The rows are read one after another, so the table does not show a single instant. Before acting on a row, callers
//! open a pidfd and compare. The table must not judge runs.

use std::collections::BTreeMap;
use std::io;

use crate::Pid;
use crate::process::machine;
use crate::process::proc_stat::ProcStat;

/// The rows that were read, by pid.
#[derive(Debug, Default)]
pub(crate) struct ProcessTable {
    rows: BTreeMap<i32, ProcStat>,
    children: BTreeMap<i32, Vec<Pid>>,
}

impl ProcessTable {
    /// Reads all visible processes. Leaves out processes that `/proc` hides, such as those of other users. Any other
    /// error fails the whole table.
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

    pub(crate) fn rows(&self) -> impl Iterator<Item = (Pid, ProcStat)> {
        self.rows.iter().filter_map(|(pid, stat)| Some((Pid::new(*pid)?, *stat)))
    }

    pub(crate) fn row(&self, pid: Pid) -> Option<ProcStat> {
        self.rows.get(&pid.as_raw()).copied()
    }

    pub(crate) fn children_of(&self, pid: Pid) -> &[Pid] {
        self.children.get(&pid.as_raw()).map_or(&[], Vec::as_slice)
    }
}
