//! The reaper: finds the runs of dead hosts, ends their living processes, and removes the runs.
//!
//! A run is dead when its host is dead, even if its lock is held. A run that cannot be judged is left alone and
//! reported. The same holds for processes of a dead run that cannot be inspected. Of the hosts that start at the same
//! time, one clears the dead runs for all.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::ledger::contents::LedgerContents;
use crate::ledger::record::ProcessIdentity;
use crate::process::cgroup::Cgroup;
use crate::process::identity;
use crate::process::machine;
use crate::process::pid_scope::PidScope;
use crate::run::handle::OpenError;
use crate::state::run_name::RunName;
use crate::state::{RunDir, StateDir, StateError, error_chain, is_unborn, unborn_run};
use crate::{CustodyOptions, RunId};

use super::liveness::{RunLife, life};
use super::report::{CleanupReport, ReapedRun};
use super::sweep::{self, DeadRun, sweep};
use super::sweep_lock;

/// How long keepers may still clear their own dead runs before the reaper ends them, too.
const KEEPER_TIMEOUT: Duration = Duration::from_secs(1);

/// How long to wait for another host that clears dead runs: its time limit, and a little more.
const LOCK_TIMEOUT: Duration = sweep::LIMIT.saturating_add(Duration::from_secs(2));

/// What to do while another host clears dead runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OtherReapers {
    /// Wait until the dead runs are cleared. For starts, and for cleanups on request.
    Await,
    /// Leave the dead runs to that host. For periodic rounds.
    LeaveTo,
}

/// Clears the dead runs below `state_dir`. Needs no run of its own, and does not touch live runs.
///
/// ```no_run
/// let report = snakepit_custody::cleanup(&snakepit_custody::default_state_dir()?)?;
/// for run in &report.runs {
///     println!("{}: {} killed, {} left", run.run, run.killed.len(), run.survivors.len());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn cleanup(state_dir: &Path) -> Result<CleanupReport, OpenError> {
    let Some(state) = StateDir::open_existing(state_dir)? else { return Ok(CleanupReport::default()) };
    let scope = PidScope::here()?;
    Ok(reap(&state, scope, &CustodyOptions::default(), None, OtherReapers::Await)?)
}

/// Clears all dead runs except `own`.
pub(crate) fn reap(
    state: &StateDir,
    scope: PidScope,
    config: &CustodyOptions,
    own: Option<RunId>,
    others: OtherReapers,
) -> Result<CleanupReport, StateError> {
    state.remove_set_aside();
    let found = look(state, scope, own)?;
    if found.over.is_empty() {
        return Ok(CleanupReport { runs: found.unclear });
    }
    let timeout = match others {
        OtherReapers::Await => LOCK_TIMEOUT,
        OtherReapers::LeaveTo => Duration::ZERO,
    };
    // If the directory cannot be locked, two hosts at the same time do the work twice, but do no harm.
    let lock = state.open_runs().and_then(|dir| sweep_lock::wait_for(dir, timeout));
    if matches!(lock, Ok(None)) {
        let mut report = CleanupReport { runs: found.unclear };
        if others == OtherReapers::Await {
            report.runs.extend(found.over.iter().map(|over| {
                ReapedRun::in_trouble(
                    &over.run,
                    "another host has been clearing dead runs, perhaps this one among them, for longer than that may take: \
                     try again, or check whether that host hangs",
                )
            }));
        }
        return Ok(report);
    }
    // The host that had the lock has cleared most or all of the runs. Close their descriptors and look again.
    drop(found);
    let found = look(state, scope, own)?;
    let mut runs = found.unclear;
    runs.extend(clear(found.over, config));
    runs.sort_by(|one, other| one.run.cmp(&other.run));
    Ok(CleanupReport { runs })
}

/// All runs except the caller's own, sorted by what to do with them.
#[derive(Default)]
struct RunSurvey {
    over: Vec<EndedRun>,
    unclear: Vec<ReapedRun>,
}

/// A run that is over and has to be cleared.
struct EndedRun {
    run: RunId,
    contents: LedgerContents,
    cgroup: Option<Cgroup>,
    /// `None` if only the cgroup is left.
    dir: Option<RunDir>,
    /// Whether processes of the run may be alive here and must be ended.
    sweep: bool,
}

/// Looks at every run except `own`. A live run costs only a look at its host.
fn look(state: &StateDir, scope: PidScope, own: Option<RunId>) -> Result<RunSurvey, StateError> {
    let mut found = RunSurvey::default();
    // Cgroups are listed before the runs: a run gets its directory before its cgroup, and loses it after the cgroup.
    let mut cgroups = Cgroup::all_of(state).unwrap_or_else(|error| {
        let trouble = format!("cannot list the cgroups of dead runs: {error}");
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
                .push(ReapedRun::in_trouble(&text, "this is not a run: delete it if it is not needed"));
        }
    }
    let hosts: Vec<ProcessIdentity> =
        named.iter().map(|(_, parsed)| parsed.host_at(scope).unwrap_or_default()).collect();
    let live = identity::surely_alive(&hosts);
    for ((name, RunName { run, .. }), _) in named.into_iter().zip(live).filter(|(_, live)| !live) {
        match state.open_run(Path::new(&name)) {
            Ok(None) => {}
            Ok(Some(dir)) => {
                let cgroup =
                    cgroups.iter().position(|(of, _)| *of == run).map(|at| cgroups.swap_remove(at).1);
                judge(run, dir, cgroup, scope, &mut found);
            }
            Err(error) => found.unclear.push(ReapedRun::in_trouble(&run, error_chain(&error))),
        }
    }
    for (run, cgroup) in cgroups.into_iter().filter(|(run, _)| !known.contains(run)) {
        judge_cgroup(run, cgroup, &mut found);
    }
    Ok(found)
}

/// Sorts a run by whether it is over. `cgroup` is the cgroup that has the run's name, in case the ledger names none.
fn judge(run: RunId, dir: RunDir, cgroup: Option<Cgroup>, scope: PidScope, found: &mut RunSurvey) {
    let judged = dir.read_ledger().and_then(|bytes| {
        if dir.is_empty_shell()? {
            return Ok(None);
        }
        let contents = LedgerContents::parse(&bytes.unwrap_or_default());
        let life = life(&contents, dir.lock()?, scope)?;
        let recorded = match (&contents.cgroup, life) {
            (Some(record), RunLife::Dead) => Cgroup::recorded(&record.text, run)?,
            _ => None,
        };
        Ok(Some((contents, life, recorded.or(cgroup))))
    });
    let (contents, life, cgroup) = match judged {
        Ok(Some(judged)) => judged,
        Ok(None) => {
            // The removal of the run is in progress or was interrupted.
            let _ = dir.remove();
            return;
        }
        Err(error) => {
            let trouble = format!("cannot inspect {}, so it was left alone: {error}", dir.path().display());
            return found.unclear.push(ReapedRun::in_trouble(&run, trouble));
        }
    };
    let sweep = match life {
        RunLife::Live | RunLife::OtherNamespace => return,
        RunLife::Unreadable => {
            let troubles = contents.troubles();
            let trouble = if troubles.is_empty() {
                "its records do not name its host, and a process holds its lock: it was left alone; run the cleanup again \
                 when that process has ended"
                    .to_owned()
            } else {
                troubles.join("; ")
            };
            return found.unclear.push(ReapedRun::in_trouble(&run, trouble));
        }
        RunLife::OtherNamespaceUnseen => {
            let trouble = format!(
                "it is a run of another PID namespace, and only from there can its processes be seen: run the cleanup \
                 there, or remove {} if that namespace is gone",
                dir.path().display()
            );
            return found.unclear.push(ReapedRun::in_trouble(&run, trouble));
        }
        RunLife::OtherBoot | RunLife::OtherNamespaceOver => false,
        RunLife::Dead => true,
    };
    found.over.push(EndedRun { run, contents, cgroup, dir: Some(dir), sweep });
}

/// Sorts a cgroup of Snakepit whose run has no directory, because another process removed it.
fn judge_cgroup(run: RunId, cgroup: Cgroup, found: &mut RunSurvey) {
    match server_of(run) {
        Ok(None) => {
            found.over.push(EndedRun {
                run,
                contents: LedgerContents::default(),
                cgroup: Some(cgroup),
                dir: None,
                sweep: true,
            });
        }
        Ok(Some(pid)) => found.unclear.push(ReapedRun::in_trouble(
            &run,
            format!(
                "its directory is gone, but its keeper or a shim is alive as process {pid}: it was left alone; end its host"
            ),
        )),
        Err(error) => {
            found
                .unclear
                .push(ReapedRun::in_trouble(&run, format!("cannot inspect its processes, so it was left alone: {error}")));
        }
    }
}

/// Returns a living keeper or shim of a run.
fn server_of(run: RunId) -> std::io::Result<Option<crate::Pid>> {
    for pid in machine::all_pids()? {
        match identity::served_by(pid) {
            Ok(Some(served)) if served == run => return Ok(Some(pid)),
            Ok(_) => {}
            // `/proc` hides the processes of other users. The keepers of these runs are not among them.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Ends the remaining processes of these runs and removes the runs.
fn clear(mut over: Vec<EndedRun>, config: &CustodyOptions) -> Vec<ReapedRun> {
    let deadline = Instant::now() + sweep::LIMIT;
    wait_for_keepers(&over);
    // The runs' own keepers have cleared some of them meanwhile.
    over.retain(|over| over.dir.as_ref().is_none_or(|dir| !matches!(dir.exists(), Ok(false))));
    let dead: Vec<DeadRun<'_>> = over
        .iter_mut()
        .filter(|over| over.sweep)
        .map(|over| DeadRun { id: over.run, contents: &over.contents, cgroup: over.cgroup.take() })
        .collect();
    let mut swept = if dead.is_empty() { Vec::new() } else { sweep(&dead, config, deadline) }.into_iter();
    drop(dead);
    let clear = |over: EndedRun| {
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
                Err(error) => reaped.trouble = Some(format!("cannot remove its directory: {error}")),
            }
        }
        reaped
    };
    over.into_iter().map(clear).collect()
}

/// Gives keepers whose hosts have just died time to finish.
fn wait_for_keepers(over: &[EndedRun]) {
    let deadline = Instant::now() + KEEPER_TIMEOUT;
    for over in over.iter().filter(|over| over.sweep) {
        let keeper = over.contents.keepers.last().map(|record| identity::find(&record.main));
        if let Some(Ok(Some(keeper))) = keeper {
            keeper.signal(rustix::process::Signal::CONT);
            let left = deadline.saturating_duration_since(Instant::now());
            keeper.ends_within(left, CustodyOptions::default().poll_interval());
        }
    }
}
