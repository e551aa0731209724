//! One look for everybody of dead runs, without pidfds, cgroups and environments that could be read.
//!
//! Only whoever is on record, and proven by its start time, is of a run; whoever may be is let be.

use std::io;
use std::time::Instant;

use crate::identity;
use crate::ledger::record::Process;
use crate::look;
use crate::{Pid, WorkerId};

use super::{DeadRun, LetBe, LetBeReason, Member};

/// What one look saw.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) members: Vec<Member>,
    pub(super) let_be: Vec<(usize, LetBe)>,
    /// Runs of which something could not be looked at.
    pub(super) troubles: Vec<(usize, io::Error)>,
}

/// What is the same for all looks of a sweep.
pub(super) struct Search<'a>(&'a [DeadRun<'a>]);

impl<'a> Search<'a> {
    pub(super) fn new(runs: &'a [DeadRun<'a>], _deadline: Instant) -> Self {
        Self(runs)
    }

    /// Looks once.
    #[expect(clippy::unnecessary_wraps, reason = "on Linux it can fail, and callers are the same")]
    pub(super) fn look(&mut self) -> io::Result<Seen> {
        let mut seen = Seen::default();
        for (run, dead) in self.0.iter().enumerate() {
            let keepers = dead.contents.keepers.iter().map(|record| (record.main, None));
            let workers = dead.contents.living.values().map(|record| {
                let worker = std::str::from_utf8(&record.text).ok().and_then(|text| WorkerId::new(text).ok());
                (record.main, worker)
            });
            for (process, worker) in
                keepers.chain(workers).filter(|(process, _)| *process != Process::default())
            {
                let known = |member: &Member| member.pid().as_raw() == process.pid;
                match identity::find_of_run(&process, dead.id) {
                    Ok(Some(found)) if !seen.members.iter().any(known) => {
                        seen.members.push(Member { run, process: found, start: process.start, worker });
                    }
                    Ok(_) => {}
                    Err(error) => seen.troubles.push((run, error)),
                }
            }
            for record in dead.contents.living.values() {
                let ours = seen.members.iter().any(|member| member.pid().as_raw() == record.main.pid);
                if let (false, Some((pid, reason))) = (ours, doubt(&record.main, record.pgid)) {
                    let command = crate::machine::command_line(pid);
                    seen.let_be.push((run, LetBe { pid, command, reason }));
                }
            }
        }
        Ok(seen)
    }
}

/// Who may be of the run, but cannot be proven to be.
fn doubt(main: &Process, group: i32) -> Option<(Pid, LetBeReason)> {
    let pid = Pid::new(main.pid)?;
    if matches!(identity::find(main), Ok(Some(_)) | Err(_)) {
        Some((pid, LetBeReason::Unreadable))
    } else if look::group_lives(group) {
        Some((pid, LetBeReason::GroupWithoutLeader(group)))
    } else {
        None
    }
}
