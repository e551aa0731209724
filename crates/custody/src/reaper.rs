//! The start-up reaper: finds the runs of dead hosts and ends whatever of them still lives.
//!
//! A run is dead when its host is, whoever holds its lock; a run that cannot be judged is let be. The
//! order is: by cgroup, by recorded identity, by the run's marker, until two passes find nobody.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::barrier::Survivor;
use crate::cgroup::Cgroup;
use crate::event::{Event, EventSink};
use crate::identity::{self, Found};
use crate::ledger::Contents;
use crate::ledger::record::Process;
use crate::machine::{self, Place};
use crate::run::OpenError;
use crate::state::{Lock, RunDir, StateDir, StateError, is_unborn};
use crate::{Config, Pid, RunId, WorkerId};

/// How long a keeper that is at work on its own dead run may take before it is ended, too.
const KEEPER_PATIENCE: Duration = Duration::from_secs(1);

/// What a cleanup found and did.
#[derive(Clone, Debug, Default)]
pub struct CleanupReport {
    /// The dead runs, oldest first.
    pub runs: Vec<ReapedRun>,
}

impl CleanupReport {
    /// Whether nobody is left of any dead run.
    pub fn is_clean(&self) -> bool {
        self.runs.iter().all(|run| run.survivors.is_empty())
    }
}

/// A dead run and what became of it.
#[derive(Clone, Debug)]
pub struct ReapedRun {
    /// The name of its directory: the run's id.
    pub run: String,
    /// Who had to be killed.
    pub killed: Vec<Killed>,
    /// Who is left.
    pub survivors: Vec<Survivor>,
    /// What is wrong with its records, for a person.
    pub trouble: Option<String>,
    /// Whether its directory is gone.
    pub removed: bool,
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

/// Whether a run is over, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunLife {
    /// Its host lives.
    Live,
    /// Its host is dead.
    Dead,
    /// It was of another boot: none of its processes can be alive.
    OtherBoot,
    /// It is of another PID namespace, and somebody of it lives there: let be.
    OtherNamespace,
    /// It was of another PID namespace, and nobody of it is left to hold its lock.
    OtherNamespaceOver,
    /// Its records do not say whose it is, and its lock is held: let be.
    Unreadable,
}

/// Clears the dead runs below `state_dir`. It needs no run, and touches no live one.
pub fn cleanup(state_dir: &Path) -> Result<CleanupReport, OpenError> {
    let Some(state) = StateDir::open_existing(state_dir)? else { return Ok(CleanupReport::default()) };
    let place = Place::here().map_err(OpenError::Identity)?;
    Ok(reap(&state, place, &Config::default(), None)?)
}

/// Clears all dead runs but `own`.
pub(crate) fn reap(
    state: &StateDir,
    place: Place,
    config: &Config,
    own: Option<RunId>,
) -> Result<CleanupReport, StateError> {
    let mut report = CleanupReport::default();
    state.remove_set_aside();
    for name in state.run_names()? {
        let name = Path::new(&name);
        if is_unborn(name) {
            state.remove_unborn(name);
            continue;
        }
        let text = name.to_string_lossy().into_owned();
        let Ok(run) = text.parse::<RunId>() else {
            report.runs.push(trouble(text, "not a run: remove it by hand if nobody needs it".to_owned()));
            continue;
        };
        if own == Some(run) {
            continue;
        }
        match state.open_run(name) {
            Ok(None) => {}
            Ok(Some(dir)) => report.runs.extend(reap_run(run, &dir, place, config)),
            Err(error) => report.runs.push(trouble(text, error_chain(&error))),
        }
    }
    Ok(report)
}

fn trouble(run: String, trouble: String) -> ReapedRun {
    ReapedRun { run, killed: Vec::new(), survivors: Vec::new(), trouble: Some(trouble), removed: false }
}

pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// Tells the run's own listeners.
pub(crate) fn announce(report: &CleanupReport, sink: &EventSink) {
    for reaped in &report.runs {
        if let Some(trouble) = &reaped.trouble {
            sink.emit(Event::ReapTrouble { run: reaped.run.clone(), trouble: trouble.clone() });
        }
        for survivor in &reaped.survivors {
            sink.emit(Event::ReapTrouble {
                run: reaped.run.clone(),
                trouble: format!("{survivor} survives KILL"),
            });
        }
        if let Ok(run) = reaped.run.parse() {
            sink.emit(Event::Reaped { run, killed: reaped.killed.iter().map(|killed| killed.pid).collect() });
        }
    }
}

/// Whether a run is over.
pub(crate) fn life(contents: &Contents, lock: Lock, place: Place) -> RunLife {
    let Some(any) = contents.any_record() else {
        // Not one record: nothing was started from it, or nothing can be said about it.
        return if lock == Lock::Held { RunLife::Unreadable } else { RunLife::Dead };
    };
    if any.boot != place.boot {
        // Held by somebody all the same: another machine that shares the directory.
        return if lock == Lock::Held { RunLife::Unreadable } else { RunLife::OtherBoot };
    }
    if any.pidns != place.pidns {
        return if lock == Lock::Held { RunLife::OtherNamespace } else { RunLife::OtherNamespaceOver };
    }
    match &contents.open {
        Some(open) if identity::host_lives(&open.main, lock) => RunLife::Live,
        None if lock == Lock::Held => RunLife::Unreadable,
        Some(_) | None => RunLife::Dead,
    }
}

/// Clears one run if it is dead.
fn reap_run(run: RunId, dir: &RunDir, place: Place, config: &Config) -> Option<ReapedRun> {
    let read = dir.read_ledger();
    let cannot_judge =
        |error: std::io::Error| Some(trouble(run.to_string(), format!("cannot be judged: {error}")));
    match dir.is_empty_shell() {
        Ok(true) => {
            // It was just removed, or not quite.
            let _ = dir.remove();
            return None;
        }
        Ok(false) => {}
        Err(error) => return cannot_judge(error),
    }
    let bytes = match read {
        Ok(bytes) => bytes.unwrap_or_default(),
        Err(error) => return Some(trouble(run.to_string(), format!("its ledger cannot be read: {error}"))),
    };
    let lock = match dir.lock() {
        Ok(lock) => lock,
        Err(error) => return cannot_judge(error),
    };
    let contents = Contents::parse(&bytes);
    let troubles = contents.troubles();
    let mut reaped = ReapedRun {
        run: run.to_string(),
        killed: Vec::new(),
        survivors: Vec::new(),
        trouble: (!troubles.is_empty()).then(|| troubles.join("; ")),
        removed: false,
    };
    match life(&contents, lock, place) {
        RunLife::Live | RunLife::OtherNamespace => return None,
        RunLife::Unreadable => {
            reaped
                .trouble
                .get_or_insert_with(|| "its records do not say whose it is, and its lock is held".into());
            return Some(reaped);
        }
        RunLife::OtherBoot | RunLife::OtherNamespaceOver => {}
        RunLife::Dead => {
            wait_for_keeper(&contents, config);
            match dir.exists() {
                Ok(true) => {}
                // Its own keeper has cleared it meanwhile.
                Ok(false) => return None,
                Err(error) => return cannot_judge(error),
            }
            let swept = sweep(run, &contents, config);
            reaped.killed = swept.killed;
            reaped.survivors = swept.survivors;
            #[cfg(portable)]
            if let Some(doubts) = identity::doubts(&contents) {
                reaped.trouble = Some(doubts);
            }
        }
    }
    if reaped.survivors.is_empty() {
        match dir.remove() {
            Ok(()) => reaped.removed = true,
            Err(error) => reaped.trouble = Some(format!("cannot remove {}: {error}", dir.path().display())),
        }
    }
    Some(reaped)
}

/// A keeper whose host has just died is at work already: let it finish, but not for ever.
fn wait_for_keeper(contents: &Contents, config: &Config) {
    if let Some(keeper) = contents.keepers.last().and_then(|record| identity::find(&record.main)) {
        keeper.signal(rustix::process::Signal::CONT);
        keeper.ends_within(KEEPER_PATIENCE, config.poll_interval());
    }
}

/// What a sweep did.
pub(crate) struct Swept {
    pub(crate) killed: Vec<Killed>,
    pub(crate) survivors: Vec<Survivor>,
    pub(crate) took: Duration,
}

/// Ends everybody of a run whose host, or whose keeper, is gone.
pub(crate) fn sweep(run: RunId, contents: &Contents, config: &Config) -> Swept {
    let began = Instant::now();
    let cgroup = contents.cgroup.as_ref().and_then(|record| Cgroup::recorded(&record.text, run));
    let mut killed: Vec<Killed> = Vec::new();
    let mut survivors = Vec::new();
    let mut clean_passes = 0;
    // Rounds that make progress do not count against the limit: a storm of forks is not a survivor.
    let mut vain_rounds = 0;
    while clean_passes < 2 && vain_rounds <= config.cleanup_max_retries {
        let found = pass(run, contents, cgroup.as_ref());
        if found.is_empty() {
            clean_passes += 1;
            survivors.clear();
            continue;
        }
        clean_passes = 0;
        let before = killed.len();
        for (_, named) in &found {
            if !killed.iter().any(|known| known.pid == named.pid) {
                killed.push(named.clone());
            }
        }
        if let Some(cgroup) = &cgroup {
            let _ = cgroup.kill();
        }
        for (process, _) in &found {
            process.kill();
        }
        let deadline = Instant::now() + config.retry_interval();
        let left: Vec<_> = found
            .into_iter()
            .filter(|(process, _)| {
                let left = deadline.saturating_duration_since(Instant::now());
                !process.ends_within(left, config.poll_interval())
            })
            .collect();
        vain_rounds = if left.is_empty() && killed.len() > before { 0 } else { vain_rounds + 1 };
        survivors = left.into_iter().map(|(_, named)| Survivor::observe(named.pid, named.worker)).collect();
    }
    killed.retain(|killed| !survivors.iter().any(|survivor| survivor.pid == killed.pid));
    if survivors.is_empty()
        && let Some(cgroup) = cgroup
    {
        cgroup.wait_empty(config.retry_interval());
        cgroup.remove();
    }
    Swept { killed, survivors, took: began.elapsed() }
}

/// Everybody of the run who can be found now, each once, with a name while it still has one.
fn pass(run: RunId, contents: &Contents, cgroup: Option<&Cgroup>) -> Vec<(Found, Killed)> {
    let recorded = contents.living.values().flat_map(|record| {
        let worker = std::str::from_utf8(&record.text).ok().and_then(|text| WorkerId::new(text).ok());
        [(record.main, worker), (record.shim, None)]
    });
    let keepers = contents.keepers.iter().map(|record| (record.main, None));
    let by_record = recorded
        .chain(keepers)
        .filter(|(process, _)| *process != Process::default())
        .filter_map(|(process, worker)| Some((identity::find_of_run(&process, run)?, worker)));
    let by_cgroup = cgroup.map(find_members).unwrap_or_default().into_iter();
    let by_marker = identity::find_marked(run);
    let mut found: Vec<(Found, Killed)> = Vec::new();
    for (process, worker) in by_record.chain(by_cgroup.chain(by_marker).map(|process| (process, None))) {
        if !found.iter().any(|(known, _)| known.pid == process.pid) {
            let command = machine::command_line(process.pid);
            let named = Killed { pid: process.pid, worker, command };
            found.push((process, named));
        }
    }
    found
}

/// Who is in the cgroup, and was so when the pidfd was held already.
fn find_members(cgroup: &Cgroup) -> Vec<Found> {
    let opened: Vec<Found> = cgroup.members().into_iter().filter_map(identity::open).collect();
    let again = cgroup.members();
    opened.into_iter().filter(|process| again.contains(&process.pid) && process.is_alive()).collect()
}
