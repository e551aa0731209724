//! The text of a run's opening record: the run's id, a digest of its host's cgroups, and the host's ancestors.
//!
//! The first version of the format had only the id.

use super::record::{MAX_TEXT, ProcessIdentity};

const ID: usize = 16;
const CGROUPS: usize = 8;
const ENTRY: usize = 20;

/// Returns the text for a run whose host has this digest of cgroups (0 if unknown) and these ancestors, the nearest
/// first. Ancestors that do not fit are dropped.
pub(crate) fn text(run: &[u8; ID], cgroups: u64, ancestors: &[ProcessIdentity]) -> Vec<u8> {
    let mut text = run.to_vec();
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

/// Returns the digest of the host's cgroups, or 0 if it is unknown.
#[cfg(any(test, not(portable)))]
pub(super) fn cgroups(text: &[u8]) -> u64 {
    text.get(ID..ID + CGROUPS).map_or(0, number)
}

/// Returns the host's ancestors.
#[cfg(any(test, not(portable)))]
pub(super) fn ancestors(text: &[u8]) -> Vec<ProcessIdentity> {
    let entries = text.get(ID + CGROUPS..).unwrap_or_default().as_chunks::<ENTRY>().0;
    let process = |entry: &[u8; ENTRY]| ProcessIdentity {
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
    fn ancestors_are_read_back_up_to_a_limit() {
        let many: Vec<ProcessIdentity> =
            (1..40).map(|pid| ProcessIdentity { pid, start: 7, pidfs: 1 << 40 }).collect();
        let read = ancestors(&text(&[3; ID], 9, &many));
        assert_eq!(read, many[..18]);
        assert_eq!(cgroups(&text(&[3; ID], 9, &many)), 9);
        assert!(text(&[3; ID], 9, &many).len() <= MAX_TEXT);
    }

    #[test]
    fn an_opening_of_the_first_version_has_no_ancestors() {
        assert_eq!(ancestors(&[7; 16]), []);
        assert_eq!(ancestors(&[]), []);
        assert_eq!(cgroups(&[7; 16]), 0);
    }
}
