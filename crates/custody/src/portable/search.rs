//! One look for the processes of dead runs, without pidfds, cgroups and readable environments.
//!
//! A process belongs to a run only if it is recorded and its start time proves its identity. A process that may belong
//! to a run is left alone.

use std::io;
use std::time::Instant;

use crate::ledger::record::ProcessIdentity;
use crate::portable::process_state;
use crate::process::identity;
use crate::{Pid, WorkerId};

use super::report::{LetBe, LetBeReason};
use super::sweep::{DeadRun, RunMember};

/// The result of one look.
#[derive(Default)]
pub(super) struct SearchResult {
    pub(super) members: Vec<RunMember>,
    pub(super) let_be: Vec<(usize, LetBe)>,
    /// Runs about which some information could not be read.
    pub(super) troubles: Vec<(usize, io::Error)>,
}

/// The state that all looks of a sweep share.
pub(super) struct MemberSearch<'a>(&'a [DeadRun<'a>]);

impl<'a> MemberSearch<'a> {
    pub(super) fn new(runs: &'a [DeadRun<'a>], _deadline: Instant) -> Self {
        Self(runs)
    }

    /// Looks once.
    #[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux; all systems share the callers")]
    pub(super) fn look(&mut self) -> io::Result<SearchResult> {
        let mut seen = SearchResult::default();
        for (run, dead) in self.0.iter().enumerate() {
            let keepers = dead.contents.keepers.iter().map(|record| (record.main, None));
            let workers = dead.contents.living.values().map(|record| {
                let worker = std::str::from_utf8(&record.text).ok().and_then(|text| WorkerId::new(text).ok());
                (record.main, worker)
            });
            for (process, worker) in
                keepers.chain(workers).filter(|(process, _)| *process != ProcessIdentity::default())
            {
                let known = |member: &RunMember| member.pid().as_raw() == process.pid;
                match identity::find_of_run(&process, dead.id) {
                    Ok(Some(found)) if !seen.members.iter().any(known) => {
                        seen.members.push(RunMember { run, process: found, start: process.start, worker });
                    }
                    Ok(_) => {}
                    Err(error) => seen.troubles.push((run, error)),
                }
            }
            for record in dead.contents.living.values() {
                let ours = seen.members.iter().any(|member| member.pid().as_raw() == record.main.pid);
                if let (false, Some((pid, reason))) = (ours, doubt(&record.main, record.pgid)) {
                    let command = crate::process::machine::command_line(pid);
                    seen.let_be.push((run, LetBe { pid, command, reason }));
                }
            }
        }
        Ok(seen)
    }
}

/// Returns a process that may belong to the run, but cannot be proven to.
fn doubt(main: &ProcessIdentity, group: i32) -> Option<(Pid, LetBeReason)> {
    let pid = Pid::new(main.pid)?;
    if matches!(identity::find(main), Ok(Some(_)) | Err(_)) {
        Some((pid, LetBeReason::Unreadable))
    } else if process_state::group_lives(group) {
        Some((pid, LetBeReason::GroupWithoutLeader(group)))
    } else {
        None
    }
}
