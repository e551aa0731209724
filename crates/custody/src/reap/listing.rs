//! What the ledger says, for people and programs: the runs, their processes, and which of them are alive.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::ledger::contents::LedgerContents;
use crate::ledger::record::{ProcessIdentity, Record, RecordKind};
use crate::link::wire::WireTier;
use crate::process::identity;
use crate::process::pid_scope::PidScope;
use crate::run::handle::OpenError;
use crate::state::run_name::RunName;
use crate::state::{RunDir, StateDir, error_chain, is_unborn};
use crate::{Pid, Tier, WorkerId};

use super::liveness::{RunLife, life};

/// A run in the ledger.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunEntry {
    /// The run's id, or the name of a directory that does not belong to a run.
    pub run: String,
    /// The host.
    pub host_pid: Option<Pid>,
    /// The latest keeper.
    pub keeper_pid: Option<Pid>,
    /// Whether the run is over.
    pub life: RunLife,
    /// The tier.
    pub tier: Option<Tier>,
    /// The cgroup of the workers.
    pub cgroup: Option<PathBuf>,
    /// When the run was opened.
    pub opened_at: Option<SystemTime>,
    /// The workers that are recorded as living.
    pub processes: Vec<ProcessEntry>,
    /// Problems with the records, for people.
    pub trouble: Vec<String>,
}

/// A worker in the ledger.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProcessEntry {
    /// The worker's name.
    pub worker: WorkerId,
    /// The main process; `None` while only the intent is recorded.
    pub pid: Option<Pid>,
    /// The process group.
    pub pgid: Option<i32>,
    /// The shim.
    pub shim_pid: Option<Pid>,
    /// The tier.
    pub tier: Tier,
    /// When the worker was recorded.
    pub spawned_at: SystemTime,
    /// Whether only the intent to start the worker is recorded.
    pub at_gate: bool,
    /// Whether the recorded process is alive, according to what is visible to the caller.
    pub alive: bool,
}

/// Returns all runs that are recorded below `state_dir`. A missing directory is an empty ledger.
///
/// ```no_run
/// for run in snakepit_custody::ledger(&snakepit_custody::default_state_dir()?)? {
///     println!("{} {:?}: {} workers", run.run, run.life, run.processes.len());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn ledger(state_dir: &Path) -> Result<Vec<RunEntry>, OpenError> {
    let Some(state) = StateDir::open_existing(state_dir)? else { return Ok(Vec::new()) };
    let scope = PidScope::here()?;
    let mut runs = Vec::new();
    for name in state.run_names()? {
        let name = Path::new(&name);
        if is_unborn(name) {
            continue;
        }
        let text = name.to_string_lossy();
        let run =
            RunName::parse(&text).map_or_else(|| text.clone().into_owned(), |name| name.run.to_string());
        match state.open_run(name) {
            Ok(None) => {}
            Ok(Some(dir)) => match read(&dir, scope) {
                Ok(Some((mut contents, life))) => runs.push(entry(run, &mut contents, life, scope)),
                Ok(None) => {}
                Err(error) => runs.push(unreadable(run, error.to_string())),
            },
            Err(error) => runs.push(unreadable(run, error_chain(&error))),
        }
    }
    Ok(runs)
}

/// Reads the records of a run and decides whether it is over. Returns `None` if its removal is in progress or was
/// interrupted.
fn read(dir: &RunDir, scope: PidScope) -> std::io::Result<Option<(LedgerContents, RunLife)>> {
    let bytes = dir.read_ledger();
    if dir.is_empty_shell()? {
        return Ok(None);
    }
    let contents = LedgerContents::parse(&bytes?.unwrap_or_default());
    let life = life(&contents, dir.lock()?, scope)?;
    Ok(Some((contents, life)))
}

fn unreadable(run: String, trouble: String) -> RunEntry {
    RunEntry {
        run,
        host_pid: None,
        keeper_pid: None,
        life: RunLife::Unreadable,
        tier: None,
        cgroup: None,
        opened_at: None,
        processes: Vec::new(),
        trouble: vec![trouble],
    }
}

fn entry(run: String, contents: &mut LedgerContents, life: RunLife, scope: PidScope) -> RunEntry {
    use std::os::unix::ffi::OsStringExt;
    let mut trouble = contents.troubles();
    let mut processes = Vec::new();
    for record in contents.living.values() {
        match process(record, scope) {
            Some(process) => processes.push(process),
            None => trouble.push(format!("the name or tier of worker {} cannot be read", record.key)),
        }
    }
    let cgroup =
        contents.cgroup.take().map(|record| PathBuf::from(std::ffi::OsString::from_vec(record.text)));
    let any = contents.any_record();
    RunEntry {
        run,
        host_pid: contents.open.as_ref().and_then(|open| Pid::new(open.main.pid)),
        keeper_pid: contents.keepers.last().and_then(|keeper| Pid::new(keeper.main.pid)),
        life,
        tier: any.and_then(|record| WireTier::from_byte(record.tier)).map(Tier::from),
        cgroup,
        opened_at: contents.open.as_ref().map(|open| time(open.time)),
        processes,
        trouble,
    }
}

fn process(record: &Record, scope: PidScope) -> Option<ProcessEntry> {
    let here = record.boot == scope.boot && record.pidns == scope.pidns;
    Some(ProcessEntry {
        worker: WorkerId::new(String::from_utf8(record.text.clone()).ok()?).ok()?,
        pid: Pid::new(record.main.pid),
        pgid: (record.pgid > 0).then_some(record.pgid),
        shim_pid: Pid::new(record.shim.pid),
        tier: WireTier::from_byte(record.tier)?.into(),
        spawned_at: time(record.time),
        at_gate: record.kind == RecordKind::Intent,
        alive: here
            && record.main != ProcessIdentity::default()
            // A process that cannot be inspected does not count as dead.
            && !matches!(identity::find(&record.main), Ok(None)),
    })
}

fn time(nanos: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(nanos)
}
