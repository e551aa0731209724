//! Ends everybody of dead runs: finds them, stops them, kills them, and looks again until two looks find nobody.
//!
//! All dead runs are swept together, so that the machine's processes are read once for all of them. Everybody is
//! stopped before anybody is killed: whoever is stopped forks nobody, so that a storm of forks comes to rest, and
//! descent can be followed for as long as the parents are there. A sweep is bounded; what it could not see or not end
//! it says.

#[cfg_attr(portable, path = "../portable/search.rs")]
mod search;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::barrier::Survivor;
use crate::cgroup::Cgroup;
use crate::identity::Found;
use crate::ledger::Contents;
use crate::{Config, Pid, RunId, WorkerId, machine};
use search::Search;

/// How long a sweep may take at the most, for all runs together.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// How often everybody who was born meanwhile is stopped before all are killed.
const STOPPING_ROUNDS: usize = 20;

/// A run whose host is dead, or whose keeper was lost.
pub(crate) struct DeadRun<'a> {
    pub(crate) id: RunId,
    pub(crate) contents: &'a Contents,
    pub(crate) cgroup: Option<Cgroup>,
}

/// A process that was killed.
#[derive(Clone, Debug)]
pub struct Killed {
    /// The process.
    pub pid: Pid,
    /// The worker that it was, where it is on record.
    pub worker: Option<WorkerId>,
    /// Its command line.
    pub command: String,
}

/// Somebody of a run who lives.
struct Member {
    /// Which run, by its place in the list.
    run: usize,
    process: Found,
    start: u64,
    worker: Option<WorkerId>,
}

impl Member {
    fn pid(&self) -> Pid {
        self.process.pid
    }

    /// What it is called, while it still has a name.
    fn name(&self) -> Killed {
        Killed { pid: self.pid(), worker: self.worker.clone(), command: machine::command_line(self.pid()) }
    }
}

/// A process that looks as if it were of a dead run, and was not touched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LetBe {
    /// The process.
    pub pid: Pid,
    /// Its command line.
    pub command: String,
    /// Why it was not touched.
    pub reason: LetBeReason,
}

/// Why a process was not touched.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LetBeReason {
    /// It carries the run's marker, but a process that is not of the run started it: it is a bystander with a copied
    /// environment.
    ForeignParent(Pid),
    /// It is in the group of a recorded worker that is gone: the number may be another group's by now.
    GroupWithoutLeader(i32),
    /// Its environment cannot be read, so nobody can tell whether it carries the run's marker.
    Unreadable,
}

impl LetBeReason {
    /// Whether the process may be of the run all the same.
    pub fn is_doubt(&self) -> bool {
        match self {
            Self::ForeignParent(_) => false,
            Self::GroupWithoutLeader(_) | Self::Unreadable => true,
        }
    }
}

impl fmt::Display for LetBeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForeignParent(parent) => {
                write!(f, "it has the run's marker, but its parent {parent} is not of the run")
            }
            Self::GroupWithoutLeader(group) => {
                write!(f, "it is in the recorded group {group}, whose leader is gone and proves nothing")
            }
            Self::Unreadable => f.write_str("its environment cannot be read, so it may be of the run or not"),
        }
    }
}

impl fmt::Display for LetBe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({}) was let be: {}", self.pid, self.command, self.reason)
    }
}

/// What a sweep did to one run.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    pub(crate) killed: Vec<Killed>,
    pub(crate) survivors: Vec<Survivor>,
    pub(crate) let_be: Vec<LetBe>,
    /// What could not be looked at: then nobody knows that the run is gone.
    pub(crate) trouble: Option<String>,
}

impl Swept {
    /// Whether nobody of the run is left, as far as there is anything to see.
    pub(crate) fn is_clean(&self) -> bool {
        self.survivors.is_empty()
            && self.trouble.is_none()
            && !self.let_be.iter().any(|let_be| let_be.reason.is_doubt())
    }
}

/// Ends everybody of these runs before the deadline.
pub(crate) fn sweep(runs: &[DeadRun<'_>], config: &Config, deadline: Instant) -> Vec<Swept> {
    let mut swept: Vec<Swept> = runs.iter().map(|_| Swept::default()).collect();
    let outcome = Sweep { runs, config, deadline }.run(&mut swept);
    if let Err(error) = outcome {
        for swept in &mut swept {
            swept.trouble.get_or_insert_with(|| cannot_look(&error));
        }
    }
    for (run, swept) in runs.iter().zip(&mut swept) {
        // Whoever has no number here, because it went into another PID namespace, is ended with its cgroup.
        if let (true, Some(cgroup)) = (swept.is_clean(), &run.cgroup)
            && let Err(error) = cgroup.end(config.retry_interval())
        {
            let path = cgroup.path().display();
            swept.trouble = Some(format!("its cgroup {path} is not gone: {error}"));
        }
    }
    swept
}

fn cannot_look(error: &io::Error) -> String {
    format!("its processes cannot be looked at, so they were let be: {error}")
}

struct Sweep<'a> {
    runs: &'a [DeadRun<'a>],
    config: &'a Config,
    deadline: Instant,
}

impl Sweep<'_> {
    fn run(&self, swept: &mut [Swept]) -> io::Result<()> {
        let mut search = Search::new(self.runs, self.deadline);
        let mut stopped: BTreeSet<(i32, u64)> = BTreeSet::new();
        let mut members = Vec::new();
        let mut stopping = 0;
        let (mut clean_looks, mut unclear_looks) = (0, 0);
        // Rounds that make progress do not count against the limit: many forks are not a survivor.
        let mut fruitless_rounds = 0;
        while clean_looks < 2 && unclear_looks < 2 {
            let seen = match search.look() {
                Ok(seen) => seen,
                Err(error) => {
                    // Those who are known are stopped, and nobody else would let them go on.
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
                give_up(&seen.members, Some("the time for a sweep was over before all had ended"), swept);
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

    /// Kills all of them; whether all of them ended in time.
    fn kill(&self, members: &[Member], swept: &mut [Swept]) -> bool {
        for member in members {
            let killed = &mut swept[member.run].killed;
            if !killed.iter().any(|known| known.pid == member.pid()) {
                killed.push(member.name());
            }
        }
        for cgroup in self.runs.iter().filter_map(|run| run.cgroup.as_ref()) {
            let _ = cgroup.kill();
        }
        // Children before their parents: when a parent ends, the kernel continues a stopped group that it leaves.
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

/// Names who is left.
fn give_up(members: &[Member], trouble: Option<&str>, swept: &mut [Swept]) {
    for member in members {
        let swept = &mut swept[member.run];
        swept.killed.retain(|killed| killed.pid != member.pid());
        swept.survivors.push(Survivor::observe(member.pid(), member.worker.clone()));
        if let Some(trouble) = trouble {
            swept.trouble.get_or_insert_with(|| trouble.to_owned());
        }
    }
}

/// Notes who was let be, and what could not be looked at, in this look.
fn note(seen: &search::Seen, swept: &mut [Swept]) {
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
