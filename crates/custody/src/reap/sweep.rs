//! The sweep: finds the processes of dead runs, stops them, kills them, and repeats until two looks find no process.
//!
//! All dead runs are swept together, so the machine's processes are read once for all. All processes are stopped before
//! any is killed: a stopped process does not fork, so a fork bomb comes to rest, and descent can be followed while the
//! parents are alive. A sweep is bounded, and reports the information that it could not read and the processes that it
//! could not end.

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::ledger::contents::LedgerContents;
use crate::process::cgroup::Cgroup;
use crate::process::identity::LiveProcess;
use crate::process::machine;
use crate::{CustodyOptions, Pid, RunId, Survivor, WorkerId};

use super::report::{Killed, LetBe};
use super::search::{MemberSearch, SearchResult};

/// How long a sweep may take, for all runs together.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// How many rounds stop new processes before all are killed.
const STOPPING_ROUNDS: usize = 20;

/// A run whose host is dead, or whose keeper was lost.
pub(crate) struct DeadRun<'a> {
    pub(crate) id: RunId,
    pub(crate) contents: &'a LedgerContents,
    pub(crate) cgroup: Option<Cgroup>,
}

/// A living process of a run.
pub(super) struct RunMember {
    /// The index of the run in the list.
    pub(super) run: usize,
    pub(super) process: LiveProcess,
    pub(super) start: u64,
    pub(super) worker: Option<WorkerId>,
}

impl RunMember {
    pub(super) fn pid(&self) -> Pid {
        self.process.pid
    }

    /// Describes the process for the report, while its command line can be read.
    fn name(&self) -> Killed {
        Killed { pid: self.pid(), worker: self.worker.clone(), command: machine::command_line(self.pid()) }
    }
}

/// What a sweep did to one run.
#[derive(Debug, Default)]
pub(crate) struct SweepResult {
    pub(crate) killed: Vec<Killed>,
    pub(crate) survivors: Vec<Survivor>,
    pub(crate) let_be: Vec<LetBe>,
    /// What could not be inspected. The run may not be gone.
    pub(crate) trouble: Option<String>,
}

impl SweepResult {
    /// Returns whether no visible process of the run is left.
    pub(crate) fn is_clean(&self) -> bool {
        self.survivors.is_empty()
            && self.trouble.is_none()
            && !self.let_be.iter().any(|let_be| let_be.reason.is_doubt())
    }
}

/// Ends all processes of these runs before the deadline.
pub(crate) fn sweep(runs: &[DeadRun<'_>], config: &CustodyOptions, deadline: Instant) -> Vec<SweepResult> {
    let mut swept: Vec<SweepResult> = runs.iter().map(|_| SweepResult::default()).collect();
    let outcome = Sweep { runs, config, deadline }.run(&mut swept);
    if let Err(error) = outcome {
        for swept in &mut swept {
            swept.trouble.get_or_insert_with(|| cannot_look(&error));
        }
    }
    for (run, swept) in runs.iter().zip(&mut swept) {
        // A process that entered another PID namespace may have no number here. It ends with the cgroup.
        if let (true, Some(cgroup)) = (swept.is_clean(), &run.cgroup)
            && let Err(error) = cgroup.end(config.retry_interval())
        {
            let path = cgroup.path().display();
            swept.trouble = Some(format!("cannot remove its cgroup {path}: {error}"));
        }
    }
    swept
}

fn cannot_look(error: &io::Error) -> String {
    format!("cannot inspect its processes, so they were left alone: {error}")
}

struct Sweep<'a> {
    runs: &'a [DeadRun<'a>],
    config: &'a CustodyOptions,
    deadline: Instant,
}

impl Sweep<'_> {
    fn run(&self, swept: &mut [SweepResult]) -> io::Result<()> {
        let mut search = MemberSearch::new(self.runs, self.deadline);
        let mut stopped: BTreeSet<(i32, u64)> = BTreeSet::new();
        let mut members = Vec::new();
        let mut stopping = 0;
        let (mut clean_looks, mut unclear_looks) = (0, 0);
        // Only rounds without progress count against the limit: a process that forks a lot is not a survivor.
        let mut fruitless_rounds = 0;
        while clean_looks < 2 && unclear_looks < 2 {
            let seen = match search.look() {
                Ok(seen) => seen,
                Err(error) => {
                    // The known processes are stopped, and no other process would continue them.
                    self.kill(&members, swept);
                    return Err(error);
                }
            };
            note(&seen, swept);
            if seen.members.is_empty() {
                *if seen.troubles.is_empty() { &mut clean_looks } else { &mut unclear_looks } += 1;
                continue;
            }
            clean_looks = 0;
            if Instant::now() >= self.deadline {
                self.kill(&seen.members, swept);
                give_up(
                    &seen.members,
                    Some("the sweep ran out of time before all processes had ended: run the cleanup again"),
                    swept,
                );
                break;
            }
            if fruitless_rounds > self.config.cleanup_max_retries {
                give_up(&seen.members, None, swept);
                break;
            }
            let born =
                seen.members.iter().filter(|member| stopped.insert((member.pid().as_raw(), member.start)));
            let born = born.map(|member| member.process.signal(Signal::STOP)).count();
            if born > 0 && stopping < STOPPING_ROUNDS {
                stopping += 1;
                members = seen.members;
                continue;
            }
            stopping = 0;
            fruitless_rounds = if self.kill(&seen.members, swept) { 0 } else { fruitless_rounds + 1 };
            members = seen.members;
        }
        Ok(())
    }

    /// Kills all members. Returns whether all of them ended in time.
    fn kill(&self, members: &[RunMember], swept: &mut [SweepResult]) -> bool {
        for member in members {
            let killed = &mut swept[member.run].killed;
            if !killed.iter().any(|known| known.pid == member.pid()) {
                killed.push(member.name());
            }
        }
        for cgroup in self.runs.iter().filter_map(|run| run.cgroup.as_ref()) {
            let _ = cgroup.kill();
        }
        // Children come before their parents: when a parent ends, the kernel continues the stopped group that it
        // leaves.
        for member in members.iter().rev() {
            member.process.kill();
        }
        let deadline = self.deadline.min(Instant::now() + self.config.retry_interval());
        members.iter().fold(true, |all, member| {
            let left = deadline.saturating_duration_since(Instant::now());
            member.process.ends_within(left, self.config.poll_interval()) && all
        })
    }
}

/// Reports the members that are left as survivors.
fn give_up(members: &[RunMember], trouble: Option<&str>, swept: &mut [SweepResult]) {
    for member in members {
        let swept = &mut swept[member.run];
        swept.killed.retain(|killed| killed.pid != member.pid());
        swept.survivors.push(Survivor::observe(member.pid(), member.worker.clone()));
        if let Some(trouble) = trouble {
            swept.trouble.get_or_insert_with(|| trouble.to_owned());
        }
    }
}

/// Records which processes this look left alone, and what it could not read.
fn note(seen: &SearchResult, swept: &mut [SweepResult]) {
    for swept in swept.iter_mut() {
        swept.let_be.clear();
        swept.trouble = None;
    }
    for (run, let_be) in &seen.let_be {
        swept[*run].let_be.push(let_be.clone());
    }
    for (run, error) in &seen.troubles {
        swept[*run].trouble.get_or_insert_with(|| cannot_look(error));
    }
}
