//! The result of a stop, and the processes that are left.

use std::time::Duration;

use crate::process::machine;
use crate::{Pid, WorkerId};

/// The result of a stop.
#[derive(Clone, Debug, Default)]
#[must_use = "survivors are named here and nowhere else"]
#[non_exhaustive]
pub struct StopReport {
    /// The number of workers that ended.
    pub stopped: usize,
    /// The number of workers that needed KILL.
    pub killed: usize,
    /// The processes that are left: in uninterruptible sleep, frozen, or now owned by another user.
    pub survivors: Vec<Survivor>,
    /// How long the stop took.
    pub took: Duration,
}

impl StopReport {
    /// Returns whether no process is left.
    pub fn is_clean(&self) -> bool {
        self.survivors.is_empty()
    }
}

/// A process that KILL did not end.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Survivor {
    /// The worker that the process belongs to, if known.
    pub worker: Option<WorkerId>,
    /// The process.
    pub pid: Pid,
    /// The state as `/proc` shows it. `D` is uninterruptible sleep.
    pub state: char,
    /// The command line of the process.
    pub command: String,
}

impl Survivor {
    pub(crate) fn observe(pid: Pid, worker: Option<WorkerId>) -> Self {
        let state = machine::stat(pid).ok().flatten().map_or('?', |stat| stat.state);
        Self { worker, pid, state, command: machine::command_line(pid) }
    }
}

impl std::fmt::Display for Survivor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} ({}; state {})", self.pid, self.command, self.state)?;
        if let Some(worker) = &self.worker {
            write!(f, " of worker {worker}")?;
        }
        Ok(())
    }
}
