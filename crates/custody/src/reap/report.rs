//! What a cleanup found and did: the processes that it killed, that survived, and that it did not touch.

use std::fmt;

use crate::run::event::{CustodyEvent, EventSink};
use crate::{Pid, Survivor, WorkerId};

/// What a cleanup found and did.
#[derive(Clone, Debug, Default)]
pub struct CleanupReport {
    /// The dead runs, and those that could not be judged, oldest first.
    pub runs: Vec<ReapedRun>,
}

impl CleanupReport {
    /// Whether nobody is left of any dead run, as far as can be seen.
    pub fn is_clean(&self) -> bool {
        self.runs.iter().all(|run| run.removed && run.survivors.is_empty())
    }
}

/// A dead run and what became of it.
#[derive(Clone, Debug, Default)]
pub struct ReapedRun {
    /// The run's id, or the name of a directory that is not a run's.
    pub run: String,
    /// The processes that had to be killed.
    pub killed: Vec<Killed>,
    /// The processes that are left.
    pub survivors: Vec<Survivor>,
    /// Processes that looked like the run's and were left alone.
    pub let_be: Vec<LetBe>,
    /// What is wrong with the records, or could not be looked at, for people.
    pub trouble: Option<String>,
    /// Whether the directory is gone.
    pub removed: bool,
}

impl ReapedRun {
    pub(super) fn in_trouble(run: &impl ToString, trouble: impl Into<String>) -> Self {
        Self { run: run.to_string(), trouble: Some(trouble.into()), ..Self::default() }
    }
}

/// A process that was killed.
#[derive(Clone, Debug)]
pub struct Killed {
    /// The process.
    pub pid: Pid,
    /// The worker that it was, if that is on record.
    pub worker: Option<WorkerId>,
    /// Its command line.
    pub command: String,
}

/// A process that looks like a dead run's and was left alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LetBe {
    /// The process.
    pub pid: Pid,
    /// Its command line.
    pub command: String,
    /// Why it was left alone.
    pub reason: LetBeReason,
}

/// Why a process was left alone.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LetBeReason {
    /// It carries the run's marker, but its parent does not belong to the run: a bystander with a copied environment.
    ForeignParent(Pid),
    /// It is in the group of a recorded worker that is gone: the number may mean another group by now.
    GroupWithoutLeader(i32),
    /// Its environment cannot be read, so it may carry the run's marker or not.
    Unreadable,
}

impl LetBeReason {
    /// Whether the process may belong to the run all the same.
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
                write!(f, "it has the run's marker, but its parent {parent} does not belong to the run")
            }
            Self::GroupWithoutLeader(group) => {
                write!(
                    f,
                    "it is in the recorded group {group}, whose leader is gone: the number proves nothing"
                )
            }
            Self::Unreadable => {
                f.write_str("its environment cannot be read, so it may belong to the run or not")
            }
        }
    }
}

impl fmt::Display for LetBe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({}) was left alone: {}", self.pid, self.command, self.reason)
    }
}

/// Emits the report as events of the host's own run.
pub(crate) fn announce(report: &CleanupReport, sink: &EventSink) {
    for reaped in &report.runs {
        let survivors = reaped.survivors.iter().map(|survivor| format!("{survivor} survives KILL"));
        let let_be = reaped.let_be.iter().map(ToString::to_string);
        for trouble in reaped.trouble.iter().cloned().chain(survivors).chain(let_be) {
            sink.emit(CustodyEvent::ReapTrouble { run: reaped.run.clone(), trouble });
        }
        if let (true, Ok(run)) = (reaped.removed || !reaped.killed.is_empty(), reaped.run.parse()) {
            sink.emit(CustodyEvent::Reaped {
                run,
                killed: reaped.killed.iter().map(|killed| killed.pid).collect(),
            });
        }
    }
}
