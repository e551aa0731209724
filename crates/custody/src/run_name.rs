//! The name of a run's directory: the run's id and, where the kernel can prove it, who its host is.
//!
//! `<run id>.<place>.<pid>.<inode>`: with the host's identity in the name, one look at a process tells that a run is
//! live, and nothing of it has to be opened. A start beside 500 live runs would otherwise read 500 ledgers. The name
//! only ever says "live": whoever is not, is judged by the ledger. Runs of older versions have their id alone.

use std::fmt;

use crate::RunId;
use crate::ledger::record::Process;
use crate::machine::Place;

/// A run's directory name, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RunName {
    pub(crate) run: RunId,
    host: Option<Host>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Host {
    place: u64,
    pid: i32,
    inode: u64,
}

impl RunName {
    pub(crate) fn new(run: RunId, place: Place, host: &Process) -> Self {
        let host = Host { place: place.digest(), pid: host.pid, inode: host.pidfs };
        Self { run, host: (host.inode != 0).then_some(host) }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('.');
        let run = parts.next()?.parse().ok()?;
        let Some(place) = parts.next() else { return Some(Self { run, host: None }) };
        let host = Host {
            place: u64::from_str_radix(place, 16).ok()?,
            pid: parts.next()?.parse().ok()?,
            inode: parts.next()?.parse().ok()?,
        };
        let parsed = Self { run, host: Some(host) };
        // Only the canonical spelling, so that one run has one name.
        (parsed.to_string() == name).then_some(parsed)
    }

    /// The host as the name has it, if its pid means something here.
    pub(crate) fn host_at(&self, place: Place) -> Option<Process> {
        let host = self.host.filter(|host| host.place == place.digest())?;
        Some(Process { pid: host.pid, start: 0, pidfs: host.inode })
    }
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.run)?;
        match self.host {
            Some(Host { place, pid, inode }) => write!(f, ".{place:016x}.{pid}.{inode}"),
            None => Ok(()),
        }
    }
}

impl Place {
    /// Boot and PID namespace in a few digits.
    fn digest(self) -> u64 {
        let bytes = self.boot.into_iter().chain(self.pidns.to_le_bytes());
        // FNV-1a: nobody's safety depends on it, only that two boots do not meet by chance.
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { boot: [7; 16], pidns: 9 };

    #[test]
    fn a_name_reads_back_as_it_was_written_and_names_its_host_only_where_that_means_something() {
        let host = Process { pid: 4711, start: 99, pidfs: 1234 };
        let name = RunName::new(RunId::new(), PLACE, &host);
        let read = RunName::parse(&name.to_string()).unwrap();
        assert_eq!(read, name);
        assert_eq!(read.host_at(PLACE), Some(Process { start: 0, ..host }));
        assert_eq!(read.host_at(Place { pidns: 8, ..PLACE }), None);
        assert_eq!(read.host_at(Place { boot: [8; 16], ..PLACE }), None);
    }

    #[test]
    fn a_bare_id_is_a_name_and_all_else_is_none() {
        let run = RunId::new();
        assert_eq!(RunName::parse(&run.to_string()), Some(RunName { run, host: None }));
        for bad in [".", "x", &format!("{run}."), &format!("{run}.1.2"), &format!("{run}.1.2.3.4")] {
            assert_eq!(RunName::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn where_the_kernel_has_no_inode_the_name_is_the_id() {
        let host = Process { pid: 4711, start: 99, pidfs: 0 };
        let run = RunId::new();
        assert_eq!(RunName::new(run, PLACE, &host).to_string(), run.to_string());
    }
}
