//! The text of a run's opening record: the run's id, in which cgroups its host was, and the processes that it descends from.
//!
//! The first version had the id alone; whoever reads that finds no more.

use super::record::{MAX_TEXT, Process};
use crate::RunId;

const ID: usize = 16;
const CGROUPS: usize = 8;
const ENTRY: usize = 20;

/// The text for a run of a host in these cgroups, as a digest or 0, with these ancestors, the nearest first; as many as
/// there is room for.
pub(crate) fn text(run: RunId, cgroups: u64, ancestors: &[Process]) -> Vec<u8> {
    let mut text = run.as_bytes().to_vec();
    text.extend_from_slice(&cgroups.to_le_bytes());
    for process in ancestors.iter().take((MAX_TEXT - ID - CGROUPS) / ENTRY) {
        text.extend_from_slice(&process.pid.to_le_bytes());
        text.extend_from_slice(&process.start.to_le_bytes());
        text.extend_from_slice(&process.pidfs.to_le_bytes());
    }
    text
}

#[cfg(any(test, not(portable)))]
fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap_or_default())
}

/// The digest of the host's cgroups in such a text; 0 where they are not known.
#[cfg(any(test, not(portable)))]
pub(super) fn cgroups(text: &[u8]) -> u64 {
    text.get(ID..ID + CGROUPS).map_or(0, number)
}

/// The ancestors in such a text.
#[cfg(any(test, not(portable)))]
pub(super) fn ancestors(text: &[u8]) -> Vec<Process> {
    let entries = text.get(ID + CGROUPS..).unwrap_or_default().as_chunks::<ENTRY>().0;
    let process = |entry: &[u8; ENTRY]| Process {
        pid: i32::from_le_bytes(entry[..4].try_into().unwrap_or_default()),
        start: number(&entry[4..12]),
        pidfs: number(&entry[12..]),
    };
    entries.iter().map(process).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ancestors_read_back_and_too_many_are_cut() {
        let many: Vec<Process> = (1..40).map(|pid| Process { pid, start: 7, pidfs: 1 << 40 }).collect();
        let read = ancestors(&text(RunId::new(), 9, &many));
        assert_eq!(read, many[..18]);
        assert_eq!(cgroups(&text(RunId::new(), 9, &many)), 9);
        assert!(text(RunId::new(), 9, &many).len() <= MAX_TEXT);
    }

    #[test]
    fn an_opening_of_the_first_version_has_no_ancestors() {
        assert_eq!(ancestors(&[7; 16]), []);
        assert_eq!(ancestors(&[]), []);
        assert_eq!(cgroups(&[7; 16]), 0);
    }
}
