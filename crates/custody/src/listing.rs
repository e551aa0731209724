//! What the ledger says, for people and programs: runs, their processes, and who of them is alive.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::ledger::Contents;
use crate::ledger::record::{Kind, Process, Record};
use crate::machine::Place;
use crate::reaper::{RunLife, error_chain, life};
use crate::run::OpenError;
use crate::run_name::RunName;
use crate::state::{RunDir, StateDir, is_unborn};
use crate::wire::WireTier;
use crate::{Pid, Tier, WorkerId, identity};

/// A run on record.
#[derive(Clone, Debug)]
pub struct RunEntry {
    /// The name of its directory: the run's id.
    pub run: String,
    /// Its host.
    pub host_pid: Option<Pid>,
    /// Its latest keeper.
    pub keeper_pid: Option<Pid>,
    /// Whether it is over.
    pub life: RunLife,
    /// Its tier.
    pub tier: Option<Tier>,
    /// The cgroup of its workers.
    pub cgroup: Option<PathBuf>,
    /// When it was opened.
    pub opened_at: Option<SystemTime>,
    /// Its workers that are on record as living.
    pub processes: Vec<ProcessEntry>,
    /// What is wrong with its records, for a person.
    pub trouble: Vec<String>,
}

/// A worker on record.
#[derive(Clone, Debug)]
pub struct ProcessEntry {
    /// Its name.
    pub worker: WorkerId,
    /// Its main process; `None` while it is only intended.
    pub pid: Option<Pid>,
    /// Its process group.
    pub pgid: Option<i32>,
    /// Its shim.
    pub shim_pid: Option<Pid>,
    /// Its tier.
    pub tier: Tier,
    /// When it was recorded.
    pub spawned_at: SystemTime,
    /// Whether it was about to be born, and nothing more is on record.
    pub at_gate: bool,
    /// Whether the recorded process is alive, as far as can be told from here.
    pub alive: bool,
}

/// Everything on record below `state_dir`; an absent directory is an empty ledger.
pub fn ledger(state_dir: &Path) -> Result<Vec<RunEntry>, OpenError> {
    let Some(state) = StateDir::open_existing(state_dir)? else { return Ok(Vec::new()) };
    let place = Place::here()?;
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
            Ok(Some(dir)) => match read(&dir, place) {
                Ok(Some((mut contents, life))) => runs.push(entry(run, &mut contents, life, place)),
                Ok(None) => {}
                Err(error) => runs.push(unreadable(run, error.to_string())),
            },
            Err(error) => runs.push(unreadable(run, error_chain(&error))),
        }
    }
    Ok(runs)
}

/// What is on record of a run, and whether it is over; `None` if it was just removed, or not quite.
fn read(dir: &RunDir, place: Place) -> std::io::Result<Option<(Contents, RunLife)>> {
    let bytes = dir.read_ledger();
    if dir.is_empty_shell()? {
        return Ok(None);
    }
    let contents = Contents::parse(&bytes?.unwrap_or_default());
    let life = life(&contents, dir.lock()?, place)?;
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

fn entry(run: String, contents: &mut Contents, life: RunLife, place: Place) -> RunEntry {
    use std::os::unix::ffi::OsStringExt;
    let mut trouble = contents.troubles();
    let mut processes = Vec::new();
    for record in contents.living.values() {
        match process(record, place) {
            Some(process) => processes.push(process),
            None => trouble.push(format!("worker {} has a name or tier that cannot be read", record.key)),
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

fn process(record: &Record, place: Place) -> Option<ProcessEntry> {
    let here = record.boot == place.boot && record.pidns == place.pidns;
    Some(ProcessEntry {
        worker: WorkerId::new(String::from_utf8(record.text.clone()).ok()?).ok()?,
        pid: Pid::new(record.main.pid),
        pgid: (record.pgid > 0).then_some(record.pgid),
        shim_pid: Pid::new(record.shim.pid),
        tier: WireTier::from_byte(record.tier)?.into(),
        spawned_at: time(record.time),
        at_gate: record.kind == Kind::Intent,
        alive: here
            && record.main != Process::default()
            // Whoever cannot be looked at is not called dead.
            && !matches!(identity::find(&record.main), Ok(None)),
    })
}

fn time(nanos: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(nanos)
}
