//! The start-up reaper: finds the runs of dead hosts, has whatever of them still lives ended, and removes them.
//!
//! A run is dead when its host is, whoever holds its lock; a run that cannot be judged is let be and reported, and so is
//! whatever of a dead run cannot be seen. Hosts that start at the same time clear dead runs once for all of them.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::barrier::Survivor;
use crate::cgroup::Cgroup;
use crate::event::{Event, EventSink};
use crate::ledger::Contents;
use crate::ledger::record::Process;
use crate::machine::{self, Place};
use crate::run::OpenError;
use crate::run_name::RunName;
use crate::state::{Lock, RunDir, StateDir, StateError, is_unborn, unborn_run};
use crate::sweep::{self, DeadRun, Killed, LetBe, sweep};
use crate::{Config, RunId, identity, sweep_lock};

/// How long the keepers that are at work on their own dead runs may take before they are ended, too.
const KEEPER_PATIENCE: Duration = Duration::from_secs(1);

/// How long to wait for another host that clears dead runs: as long as it may take for that, and a little more.
const LOCK_PATIENCE: Duration = sweep::LIMIT.saturating_add(Duration::from_secs(2));

/// What a cleanup found and did.
#[derive(Clone, Debug, Default)]
pub struct CleanupReport {
    /// The dead runs, and those that could not be judged, oldest first.
    pub runs: Vec<ReapedRun>,
}

impl CleanupReport {
    /// Whether nobody is left of any dead run, as far as that could be seen.
    pub fn is_clean(&self) -> bool {
        self.runs.iter().all(|run| run.removed && run.survivors.is_empty())
    }
}

/// A dead run and what became of it.
#[derive(Clone, Debug, Default)]
pub struct ReapedRun {
    /// The run's id, or the name of a directory that is not a run's.
    pub run: String,
    /// Who had to be killed.
    pub killed: Vec<Killed>,
    /// Who is left.
    pub survivors: Vec<Survivor>,
    /// Who looked as if it were of the run, and was not touched.
    pub let_be: Vec<LetBe>,
    /// What is wrong with its records, or could not be looked at, for a person.
    pub trouble: Option<String>,
    /// Whether its directory is gone.
    pub removed: bool,
}

impl ReapedRun {
    fn in_trouble(run: &impl ToString, trouble: impl Into<String>) -> Self {
        Self { run: run.to_string(), trouble: Some(trouble.into()), ..Self::default() }
    }
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
    /// It was of another PID namespace, and nobody holds its lock. Whether anybody of it is left can be seen only from
    /// there: let be.
    OtherNamespaceUnseen,
    /// It was of another PID namespace, and that namespace is gone with everybody in it.
    OtherNamespaceOver,
    /// It cannot be judged: its records do not say whose it is and its lock is held, or they cannot be looked at. Let be.
    Unreadable,
}

/// What happens if another host clears dead runs at this moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Others {
    /// A start, or a cleanup that somebody asked for: waits until the dead runs are cleared.
    Await,
    /// A round that comes again: leaves the dead runs to them.
    LeaveTo,
}

/// Clears the dead runs below `state_dir`. It needs no run, and touches no live one.
pub fn cleanup(state_dir: &Path) -> Result<CleanupReport, OpenError> {
    let Some(state) = StateDir::open_existing(state_dir)? else { return Ok(CleanupReport::default()) };
    let place = Place::here()?;
    Ok(reap(&state, place, &Config::default(), None, Others::Await)?)
}

/// Clears all dead runs but `own`.
pub(crate) fn reap(
    state: &StateDir,
    place: Place,
    config: &Config,
    own: Option<RunId>,
    others: Others,
) -> Result<CleanupReport, StateError> {
    state.remove_set_aside();
    let found = look(state, place, own)?;
    if found.over.is_empty() {
        return Ok(CleanupReport { runs: found.unclear });
    }
    let patience = match others {
        Others::Await => LOCK_PATIENCE,
        Others::LeaveTo => Duration::ZERO,
    };
    // Without the lock, as in a directory that cannot be locked, two at the same time do no harm, only double work.
    let lock = state.open_runs().and_then(|dir| sweep_lock::wait_for(dir, patience));
    if matches!(lock, Ok(None)) {
        let mut report = CleanupReport { runs: found.unclear };
        if others == Others::Await {
            report.runs.extend(found.over.iter().map(|over| {
                ReapedRun::in_trouble(
                    &over.run,
                    "another host has been clearing dead runs for longer than that may take, this one perhaps among \
                     them; try again, or look whether that host hangs",
                )
            }));
        }
        return Ok(report);
    }
    // Whoever had the lock before has cleared most of them, or all. Their descriptors are free for the second look.
    drop(found);
    let found = look(state, place, own)?;
    let mut runs = found.unclear;
    runs.extend(clear(found.over, config));
    runs.sort_by(|one, other| one.run.cmp(&other.run));
    Ok(CleanupReport { runs })
}

/// What a look at all runs found.
#[derive(Default)]
struct Found {
    over: Vec<Over>,
    unclear: Vec<ReapedRun>,
}

/// A run that is over and has to be cleared.
struct Over {
    run: RunId,
    contents: Contents,
    cgroup: Option<Cgroup>,
    /// `None` if only its cgroup is left.
    dir: Option<RunDir>,
    /// Whether somebody of it may be alive, here, to be ended.
    sweep: bool,
}

/// Looks at every run but `own`. A live run costs one look at its host.
fn look(state: &StateDir, place: Place, own: Option<RunId>) -> Result<Found, StateError> {
    let mut found = Found::default();
    // Before the runs: a run has its directory before its cgroup, and loses it after.
    let mut cgroups = Cgroup::all_of(state).unwrap_or_else(|error| {
        let trouble = format!("those of dead runs cannot be looked for: {error}");
        found.unclear.push(ReapedRun::in_trouble(&"cgroups", trouble));
        Vec::new()
    });
    let mut known: BTreeSet<RunId> = own.into_iter().collect();
    let mut named = Vec::new();
    for name in state.run_names()? {
        let text = name.to_string_lossy();
        if is_unborn(Path::new(&name)) {
            known.extend(unborn_run(Path::new(&name)));
            state.remove_unborn(Path::new(&name));
        } else if let Some(parsed) = RunName::parse(&text) {
            if known.insert(parsed.run) {
                named.push((name, parsed));
            }
        } else {
            found
                .unclear
                .push(ReapedRun::in_trouble(&text, "not a run: remove it by hand if nobody needs it"));
        }
    }
    let hosts: Vec<Process> =
        named.iter().map(|(_, parsed)| parsed.host_at(place).unwrap_or_default()).collect();
    let live = identity::surely_alive(&hosts);
    for ((name, RunName { run, .. }), _) in named.into_iter().zip(live).filter(|(_, live)| !live) {
        match state.open_run(Path::new(&name)) {
            Ok(None) => {}
            Ok(Some(dir)) => {
                let cgroup =
                    cgroups.iter().position(|(of, _)| *of == run).map(|at| cgroups.swap_remove(at).1);
                judge(run, dir, cgroup, place, &mut found);
            }
            Err(error) => found.unclear.push(ReapedRun::in_trouble(&run, error_chain(&error))),
        }
    }
    for (run, cgroup) in cgroups.into_iter().filter(|(run, _)| !known.contains(run)) {
        judge_cgroup(run, cgroup, &mut found);
    }
    Ok(found)
}

/// Sorts a run by whether it is over. `cgroup` is one that its name says to be the run's, should the ledger not.
fn judge(run: RunId, dir: RunDir, cgroup: Option<Cgroup>, place: Place, found: &mut Found) {
    let judged = dir.read_ledger().and_then(|bytes| {
        if dir.is_empty_shell()? {
            return Ok(None);
        }
        let contents = Contents::parse(&bytes.unwrap_or_default());
        let life = life(&contents, dir.lock()?, place)?;
        let recorded = match (&contents.cgroup, life) {
            (Some(record), RunLife::Dead) => Cgroup::recorded(&record.text, run)?,
            _ => None,
        };
        Ok(Some((contents, life, recorded.or(cgroup))))
    });
    let (contents, life, cgroup) = match judged {
        Ok(Some(judged)) => judged,
        Ok(None) => {
            // It was just removed, or not quite.
            let _ = dir.remove();
            return;
        }
        Err(error) => {
            let trouble = format!("{} cannot be looked at, so it was let be: {error}", dir.path().display());
            return found.unclear.push(ReapedRun::in_trouble(&run, trouble));
        }
    };
    let sweep = match life {
        RunLife::Live | RunLife::OtherNamespace => return,
        RunLife::Unreadable => {
            let troubles = contents.troubles();
            let trouble = if troubles.is_empty() {
                "its records do not say whose it is, and its lock is held".to_owned()
            } else {
                troubles.join("; ")
            };
            return found.unclear.push(ReapedRun::in_trouble(&run, trouble));
        }
        RunLife::OtherNamespaceUnseen => {
            let trouble = format!(
                "it is of another PID namespace, and only from there can be seen whether anybody of it is left: clean \
                 up there, or remove {} if that namespace is gone",
                dir.path().display()
            );
            return found.unclear.push(ReapedRun::in_trouble(&run, trouble));
        }
        RunLife::OtherBoot | RunLife::OtherNamespaceOver => false,
        RunLife::Dead => true,
    };
    found.over.push(Over { run, contents, cgroup, dir: Some(dir), sweep });
}

/// A cgroup of ours whose run has no directory: it was removed by somebody else.
fn judge_cgroup(run: RunId, cgroup: Cgroup, found: &mut Found) {
    match server_of(run) {
        Ok(None) => {
            found.over.push(Over {
                run,
                contents: Contents::default(),
                cgroup: Some(cgroup),
                dir: None,
                sweep: true,
            });
        }
        Ok(Some(pid)) => found.unclear.push(ReapedRun::in_trouble(
            &run,
            format!("its directory is gone, but its keeper or a shim lives as process {pid}: let be"),
        )),
        Err(error) => {
            found
                .unclear
                .push(ReapedRun::in_trouble(&run, format!("its processes cannot be looked at: {error}")));
        }
    }
}

/// A living keeper or shim of a run.
fn server_of(run: RunId) -> std::io::Result<Option<crate::Pid>> {
    for pid in machine::all_pids()? {
        match identity::served_by(pid) {
            Ok(Some(served)) if served == run => return Ok(Some(pid)),
            Ok(_) => {}
            // `/proc` hides the processes of others, and a keeper of ours is not another's.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Whether a run is over. An error is one of looking, and decides nothing.
pub(crate) fn life(contents: &Contents, lock: Lock, place: Place) -> std::io::Result<RunLife> {
    let Some(any) = contents.any_record() else {
        // Not one record: nothing was started from it, or nothing can be said about it.
        return Ok(if lock == Lock::Held { RunLife::Unreadable } else { RunLife::Dead });
    };
    if any.boot != place.boot {
        // Held by somebody all the same: another machine that shares the directory.
        return Ok(if lock == Lock::Held { RunLife::Unreadable } else { RunLife::OtherBoot });
    }
    if any.pidns != place.pidns {
        return Ok(match lock {
            Lock::Held => RunLife::OtherNamespace,
            Lock::Free if place.sees_all() && !identity::namespace_lives(any.pidns)? => {
                RunLife::OtherNamespaceOver
            }
            Lock::Free => RunLife::OtherNamespaceUnseen,
        });
    }
    Ok(match &contents.open {
        Some(open) if identity::host_lives(&open.main, lock)? => RunLife::Live,
        None if lock == Lock::Held => RunLife::Unreadable,
        Some(_) | None => RunLife::Dead,
    })
}

/// Ends whoever is left of these runs, and removes them.
fn clear(mut over: Vec<Over>, config: &Config) -> Vec<ReapedRun> {
    let deadline = Instant::now() + sweep::LIMIT;
    wait_for_keepers(&over);
    // Some were cleared by their own keepers meanwhile.
    over.retain(|over| over.dir.as_ref().is_none_or(|dir| !matches!(dir.exists(), Ok(false))));
    let dead: Vec<DeadRun<'_>> = over
        .iter_mut()
        .filter(|over| over.sweep)
        .map(|over| DeadRun { id: over.run, contents: &over.contents, cgroup: over.cgroup.take() })
        .collect();
    let mut swept = if dead.is_empty() { Vec::new() } else { sweep(&dead, config, deadline) }.into_iter();
    drop(dead);
    let clear = |over: Over| {
        let swept = if over.sweep { swept.next() } else { None }.unwrap_or_default();
        let troubles = over.contents.troubles();
        let is_clean = swept.is_clean();
        let mut reaped = ReapedRun {
            run: over.run.to_string(),
            killed: swept.killed,
            survivors: swept.survivors,
            let_be: swept.let_be,
            trouble: swept
                .trouble
                .or_else(|| (!troubles.is_empty() && over.dir.is_some()).then(|| troubles.join("; "))),
            removed: false,
        };
        if is_clean {
            match over.dir.as_ref().map_or(Ok(()), RunDir::remove) {
                Ok(()) => reaped.removed = true,
                Err(error) => reaped.trouble = Some(format!("its directory cannot be removed: {error}")),
            }
        }
        reaped
    };
    over.into_iter().map(clear).collect()
}

/// A keeper whose host has just died is at work already: all of them may finish, but not for ever.
fn wait_for_keepers(over: &[Over]) {
    let deadline = Instant::now() + KEEPER_PATIENCE;
    for over in over.iter().filter(|over| over.sweep) {
        let keeper = over.contents.keepers.last().map(|record| identity::find(&record.main));
        if let Some(Ok(Some(keeper))) = keeper {
            keeper.signal(rustix::process::Signal::CONT);
            let left = deadline.saturating_duration_since(Instant::now());
            keeper.ends_within(left, Config::default().poll_interval());
        }
    }
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
        let survivors = reaped.survivors.iter().map(|survivor| format!("{survivor} survives KILL"));
        let let_be = reaped.let_be.iter().map(ToString::to_string);
        for trouble in reaped.trouble.iter().cloned().chain(survivors).chain(let_be) {
            sink.emit(Event::ReapTrouble { run: reaped.run.clone(), trouble });
        }
        if let (true, Ok(run)) = (reaped.removed || !reaped.killed.is_empty(), reaped.run.parse()) {
            sink.emit(Event::Reaped { run, killed: reaped.killed.iter().map(|killed| killed.pid).collect() });
        }
    }
}
