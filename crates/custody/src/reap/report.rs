//! The report of a cleanup: the processes that it killed, that survived, and that it left alone.

use std::fmt;

use crate::run::event::{CustodyEvent, EventSink};
use crate::{Pid, Survivor, WorkerId};

/// The result of a cleanup.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CleanupReport {
    /// The dead runs, and the runs that could not be judged, oldest first.
    pub runs: Vec<ReapedRun>,
}

impl CleanupReport {
    /// Returns whether no visible process of any dead run is left.
    pub fn is_clean(&self) -> bool {
        self.runs.iter().all(|run| run.removed && run.survivors.is_empty())
    }
}

/// A dead run and what happened to it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ReapedRun {
    /// The run's id, or the name of a directory that does not belong to a run.
    pub run: String,
    /// The processes that had to be killed.
    pub killed: Vec<Killed>,
    /// The processes that are left.
    pub survivors: Vec<Survivor>,
    /// Processes that seemed to belong to the run and were left alone.
    pub let_be: Vec<LetBe>,
    /// Problems with the records, or information that could not be read, for people.
    pub trouble: Option<String>,
    /// Whether the directory was removed.
    pub removed: bool,
}

impl ReapedRun {
    pub(super) fn in_trouble(run: &impl ToString, trouble: impl Into<String>) -> Self {
        Self { run: run.to_string(), trouble: Some(trouble.into()), ..Self::default() }
    }
}

/// A process that was killed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Killed {
    /// The process.
    pub pid: Pid,
    /// The worker that the process was, if that is recorded.
    pub worker: Option<WorkerId>,
    /// The command line of the process.
    pub command: String,
}

/// A process that seems to belong to a dead run and was left alone.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LetBe {
    /// The process.
    pub pid: Pid,
    /// The command line of the process.
    pub command: String,
    /// Why the process was left alone.
    pub reason: LetBeReason,
}

/// Why a process was left alone.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LetBeReason {
    /// The process carries the run's marker, but its parent does not belong to the run: it is a bystander with a copied
    /// environment.
    ForeignParent(Pid),
    /// The process is in the group of a recorded worker that is gone: the number may mean another group by now.
    GroupWithoutLeader(i32),
    /// The environment of the process cannot be read, so the process may or may not carry the run's marker.
    Unreadable,
}

impl LetBeReason {
    /// Returns whether the process may belong to the run nevertheless.
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
                    "its process group has the recorded number {group}, but the group's leader is gone, so it may or may not \
                     belong to the run"
                )
            }
            Self::Unreadable => {
                f.write_str("its environment cannot be read, so it may or may not belong to the run")
            }
        }
    }
}

impl fmt::Display for LetBe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({}) was left alone: {}", self.pid, self.command, self.reason)?;
        if self.reason.is_doubt() {
            write!(f, "; if it does, end it with `kill {}`", self.pid)?;
        }
        Ok(())
    }
}

/// Emits the report as events of the host's own run.
pub(crate) fn announce(report: &CleanupReport, sink: &EventSink) {
    for reaped in &report.runs {
        let survivors = reaped.survivors.iter().map(|survivor| format!("{survivor} has survived SIGKILL"));
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
