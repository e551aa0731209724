use crate::*;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A run (cheap to clone). The last handle dropped stops the run.
#[derive(Clone, Debug)]
pub struct Run {}
impl Run {
    /// Reaps dead runs, then starts the keeper.
    pub fn open(_: Config) -> Result<Run, OpenError> { todo!() }
    pub fn id(&self) -> RunId { todo!() }
    pub fn tier(&self) -> Tier { todo!() }
    /// The cgroup whose cgroup.kill backs the tier up, where there is one.
    pub fn cgroup(&self) -> Option<&Path> { todo!() }
    pub fn dir(&self) -> &Path { todo!() }
    pub fn keeper_pid(&self) -> Option<Pid> { todo!() }
    pub fn spawn(&self, _: Command) -> Result<Worker, SpawnError> { todo!() }
    pub fn workers(&self) -> Vec<Worker> { todo!() }
    /// Once: the typed events.
    pub fn events(&self) -> Option<Events> { todo!() }
    /// The barrier over all workers; the run stays open. (seed 001 "manual cleanup")
    pub fn cleanup(&self) -> StopReport { todo!() }
    /// The barrier, then the keeper ends and the run's directory is removed. Later calls return the same.
    pub fn stop(&self) -> StopReport { todo!() }
    pub fn stop_within(&self, _grace: Duration) -> StopReport { todo!() }
}

/// A worker (cheap to clone; dropping it does not stop it).
#[derive(Clone, Debug)]
pub struct Worker {}
impl Worker {
    pub fn id(&self) -> &WorkerId { todo!() }
    pub fn pid(&self) -> Pid { todo!() }
    pub fn pgid(&self) -> Pgid { todo!() }
    pub fn shim_pid(&self) -> Pid { todo!() }
    pub fn pidfd(&self) -> BorrowedFd<'_> { todo!() }
    /// To the worker's group, or main process if !process_group_kill
    pub fn signal(&self, _signal: i32) -> Result<(), SignalError> { todo!() }
    /// KILL everything of this worker.
    pub fn kill(&self) -> Result<(), SignalError> { todo!() }
    /// TERM, grace, KILL
    pub fn stop(&self, _grace: Duration) -> StopReport { todo!() }
    pub fn wait(&self) -> Exit { todo!() }
    pub fn wait_within(&self, _timeout: Duration) -> Option<Exit> { todo!() }
    pub fn try_wait(&self) -> Option<Exit> { todo!() }
    pub fn exited(&self) -> impl Future<Output = Exit> + Send + 'static { async { todo!() } }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exit { pub status: ExitStatus, pub max_rss_kib: u64, pub user_time: Duration, pub system_time: Duration }
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitStatus { Code(i32), Signal(i32), /** killed with its keeper or shim; status unknown */ Lost }

#[derive(Clone, Debug)]
pub struct StopReport { pub stopped: usize, pub killed: usize, pub survivors: Vec<Survivor>, pub took: Duration }
#[derive(Clone, Debug)]
pub struct Survivor { pub worker: Option<WorkerId>, pub pid: Pid, pub state: char, pub command: String }

#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct OpenError;
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct SpawnError;
impl SpawnError {
    /// 127 not found, 126 found but cannot be executed, 125 any failure of ours
    pub fn shell_status(&self) -> u8 { todo!() }
}
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct SignalError;

/// `$SNAKEPIT_STATE_DIR`, else /var/lib/snakepit for root, else XDG state.
pub fn default_state_dir() -> Result<PathBuf, OpenError> { todo!() }
/// The start-up reaper by itself: clears the dead runs below `state_dir`; needs no run.
pub fn cleanup(_state_dir: &Path) -> Result<CleanupReport, OpenError> { todo!() }
#[derive(Clone, Debug)]
pub struct CleanupReport { pub runs: Vec<ReapedRun> }
#[derive(Clone, Debug)]
pub struct ReapedRun { pub run: String, pub killed: Vec<Killed>, pub survivors: Vec<Survivor>, pub trouble: Option<String>, pub removed: bool }
#[derive(Clone, Debug)]
pub struct Killed { pub pid: Pid, pub worker: Option<WorkerId>, pub command: String }

/// Everything recorded below `state_dir`; an absent directory is an empty ledger.
pub fn ledger(_state_dir: &Path) -> Result<Vec<RunEntry>, OpenError> { todo!() }
#[derive(Clone, Debug)]
pub struct RunEntry { pub run: String, pub host_pid: Option<Pid>, pub keeper_pid: Option<Pid>, pub life: RunLife, pub tier: Option<Tier>, pub cgroup: Option<PathBuf>, pub opened_at: Option<SystemTime>, pub processes: Vec<ProcessEntry>, /** damaged records etc., for a person */ pub trouble: Vec<String> }
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunLife { Live, Dead, OtherBoot, OtherNamespace, Unreadable }
#[derive(Clone, Debug)]
pub struct ProcessEntry { pub worker: WorkerId, pub pid: Option<Pid>, pub pgid: Option<i32>, pub shim_pid: Option<Pid>, pub tier: Tier, pub spawned_at: SystemTime, /** recorded intent without identity yet */ pub at_gate: bool, pub alive: bool }

/// What works here, found by trying it.
pub fn probe() -> Probe { todo!() }
#[derive(Clone, Debug)]
pub struct Probe { pub tiers: Vec<(Tier, Result<(), String>)>, pub cgroup: Result<PathBuf, String>, pub pidfs: Result<(), String>, pub kernel: String }
