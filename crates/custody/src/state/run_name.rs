//! The name of a run's directory: the run's id and, if the kernel has pidfs, the identity of its host.
//!
//! The format is `<run id>.<scope>.<pid>.<inode>`. With the host's identity in the name, one look at a process shows
//! that a run is live, and no file has to be opened. Otherwise, a start next to 500 live runs would read 500 ledgers.
//! The name can only prove that a run is live. The ledger decides everything else. Directories of older versions have
//! only the id.

use std::fmt;

use crate::RunId;
use crate::ledger::record::ProcessIdentity;
use crate::process::pid_scope::PidScope;

/// The parsed name of a run's directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RunName {
    pub(crate) run: RunId,
    host: Option<NamedHost>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NamedHost {
    scope: u64,
    pid: i32,
    inode: u64,
}

impl RunName {
    pub(crate) fn new(run: RunId, scope: PidScope, host: &ProcessIdentity) -> Self {
        let host = NamedHost { scope: scope.digest(), pid: host.pid, inode: host.pidfs };
        Self { run, host: (host.inode != 0).then_some(host) }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('.');
        let run = parts.next()?.parse().ok()?;
        let Some(scope) = parts.next() else { return Some(Self { run, host: None }) };
        let host = NamedHost {
            scope: u64::from_str_radix(scope, 16).ok()?,
            pid: parts.next()?.parse().ok()?,
            inode: parts.next()?.parse().ok()?,
        };
        let parsed = Self { run, host: Some(host) };
        // Accept only the canonical spelling, so that one run has one name.
        (parsed.to_string() == name).then_some(parsed)
    }

    /// Returns the host in the name, if its pid has a meaning in this scope.
    pub(crate) fn host_at(&self, scope: PidScope) -> Option<ProcessIdentity> {
        let host = self.host.filter(|host| host.scope == scope.digest())?;
        Some(ProcessIdentity { pid: host.pid, start: 0, pidfs: host.inode })
    }
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.run)?;
        match self.host {
            Some(NamedHost { scope, pid, inode }) => write!(f, ".{scope:016x}.{pid}.{inode}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCOPE: PidScope = PidScope { boot: [7; 16], pidns: 9 };

    #[test]
    fn a_name_reads_back_as_it_was_written_and_names_its_host_only_where_that_means_something() {
        let host = ProcessIdentity { pid: 4711, start: 99, pidfs: 1234 };
        let name = RunName::new(RunId::new(), SCOPE, &host);
        let read = RunName::parse(&name.to_string()).unwrap();
        assert_eq!(read, name);
        assert_eq!(read.host_at(SCOPE), Some(ProcessIdentity { start: 0, ..host }));
        assert_eq!(read.host_at(PidScope { pidns: 8, ..SCOPE }), None);
        assert_eq!(read.host_at(PidScope { boot: [8; 16], ..SCOPE }), None);
    }

    #[test]
    fn a_run_name_is_an_id_alone_or_with_a_complete_host() {
        let run = RunId::new();
        assert_eq!(RunName::parse(&run.to_string()), Some(RunName { run, host: None }));
        for bad in [".", "x", &format!("{run}."), &format!("{run}.1.2"), &format!("{run}.1.2.3.4")] {
            assert_eq!(RunName::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn without_pidfs_inodes_the_name_of_a_run_is_its_id() {
        let host = ProcessIdentity { pid: 4711, start: 99, pidfs: 0 };
        let run = RunId::new();
        assert_eq!(RunName::new(run, SCOPE, &host).to_string(), run.to_string());
    }
}
