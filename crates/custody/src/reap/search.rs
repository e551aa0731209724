//! One look for the processes of dead runs.
//!
//! A process belongs to a run in one of these cases: it is recorded; it is in the run's cgroup; it is in the group of a
//! recorded process that is not reaped; it is an orphan of the current user and carries the run's marker; or it
//! descends from one of these. The marker alone proves nothing, because an environment can be copied. An orphan's
//! parent is init, or an ancestor of the host in another session: service managers adopt processes that way, and shells
//! do not start processes that way.

use std::collections::BTreeSet;
use std::io;
use std::time::Instant;

use crate::ledger::record::ProcessIdentity;
use crate::process::identity::{self, LiveProcess};
use crate::process::machine;
use crate::process::proc_stat::ProcStat;
use crate::{Pid, WorkerId};

use super::process_table::ProcessTable;
use super::report::{LetBe, LetBeReason};
use super::sweep::{DeadRun, RunMember};

/// The result of one look.
#[derive(Default)]
pub(super) struct SearchResult {
    pub(super) members: Vec<RunMember>,
    pids: BTreeSet<i32>,
    pub(super) let_be: Vec<(usize, LetBe)>,
    /// Runs about which some information could not be read.
    pub(super) troubles: Vec<(usize, io::Error)>,
}

impl SearchResult {
    fn has(&self, pid: Pid) -> bool {
        self.pids.contains(&pid.as_raw())
    }

    fn let_be(&mut self, run: usize, pid: Pid, reason: LetBeReason) {
        self.let_be.push((run, LetBe { pid, command: machine::command_line(pid), reason }));
    }
}

/// The state that all looks of a sweep share.
pub(super) struct MemberSearch<'a> {
    runs: &'a [DeadRun<'a>],
    own: Pid,
    user: u32,
    /// The start time of each run's host; 0 if unknown. No process of the run is older.
    opened: Vec<u64>,
    /// When the looks must end.
    deadline: Instant,
}

/// A process that carries a run's marker.
struct MarkedProcess {
    run: usize,
    pid: Pid,
    stat: ProcStat,
}

impl<'a> MemberSearch<'a> {
    pub(super) fn new(runs: &'a [DeadRun<'a>], deadline: Instant) -> Self {
        let opened = |run: &DeadRun<'_>| {
            let start = run.contents.open.as_ref().map_or(0, |open| open.main.start);
            machine::clock_offset().map_or(0, |offset| start.saturating_add_signed(offset))
        };
        Self {
            runs,
            own: Pid::current(),
            user: rustix::process::geteuid().as_raw(),
            opened: runs.iter().map(opened).collect(),
            deadline,
        }
    }

    /// Looks once. An error means that the machine's processes could not be listed.
    pub(super) fn look(&mut self) -> io::Result<SearchResult> {
        let table = ProcessTable::read()?;
        let mut seen = SearchResult::default();
        for run in 0..self.runs.len() {
            self.by_record(run, &table, &mut seen);
            self.by_cgroup(run, &table, &mut seen);
        }
        let marked = self.by_marker(&table, &mut seen)?;
        self.by_group(&table, &mut seen);
        self.by_descent(&table, &mut seen);
        self.lost_groups(&table, &mut seen);
        for MarkedProcess { run, pid, stat } in marked {
            if let (false, Some(parent)) = (seen.has(pid), Pid::new(stat.parent)) {
                seen.let_be(run, pid, LetBeReason::ForeignParent(parent));
            }
        }
        Ok(seen)
    }

    fn by_record(&self, run: usize, table: &ProcessTable, seen: &mut SearchResult) {
        let dead = &self.runs[run];
        let workers = dead.contents.living.values().flat_map(|record| {
            let worker = std::str::from_utf8(&record.text).ok().and_then(|text| WorkerId::new(text).ok());
            [(record.main, worker), (record.shim, None)]
        });
        let keepers = dead.contents.keepers.iter().map(|record| (record.main, None));
        for (process, worker) in
            workers.chain(keepers).filter(|(process, _)| *process != ProcessIdentity::default())
        {
            match identity::find_of_run(&process, dead.id) {
                Ok(Some(found)) => self.add(run, found, worker, table, seen),
                Ok(None) => {}
                Err(error) => seen.troubles.push((run, error)),
            }
        }
    }

    /// Adds the processes that are members of the cgroup both before and after their pidfd is opened.
    fn by_cgroup(&self, run: usize, table: &ProcessTable, seen: &mut SearchResult) {
        let Some(cgroup) = &self.runs[run].cgroup else { return };
        let found = cgroup.members().and_then(|pids| {
            let opened: Vec<LiveProcess> = pids
                .into_iter()
                .filter_map(|pid| identity::open(pid).transpose())
                .collect::<io::Result<_>>()?;
            let again = cgroup.members()?;
            Ok(opened.into_iter().filter(move |process| again.contains(&process.pid) && process.is_alive()))
        });
        match found {
            Ok(found) => found.for_each(|process| self.add(run, process, None, table, seen)),
            Err(error) => seen.troubles.push((run, error)),
        }
    }

    /// Adds orphans that carry a marker. Returns all processes that carry one.
    fn by_marker(&self, table: &ProcessTable, seen: &mut SearchResult) -> io::Result<Vec<MarkedProcess>> {
        let reapers: Vec<Vec<i32>> = self.runs.iter().map(|run| reapers_of(run)).collect();
        let oldest = self.opened.iter().copied().min().unwrap_or(0);
        let mut all = Vec::new();
        for (pid, stat) in table.rows() {
            if pid == self.own || stat.start < oldest || seen.has(pid) {
                continue;
            }
            if Instant::now() >= self.deadline {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the sweep ran out of time: run the cleanup again",
                ));
            }
            match self.marks(pid) {
                Ok(runs) => all.extend(runs.into_iter().map(|run| MarkedProcess { run, pid, stat })),
                Err(error) => self.unreadable((pid, stat), &reapers, table, &error, seen),
            }
        }
        for &MarkedProcess { run, pid, stat } in &all {
            if !is_orphan(stat, &reapers[run], table) {
                continue;
            }
            // Reads the stat again now that the pidfd is open, because the pid may have meant another process before.
            let found = identity::open(pid).and_then(|found| {
                let again = machine::stat(pid)?.is_some_and(|again| again.start == stat.start);
                Ok(found.filter(|found| again && found.is_alive()))
            });
            let marked = found.and_then(|found| Ok((found, self.marks(pid)?.contains(&run))));
            match marked {
                Ok((Some(found), true)) => self.add(run, found, None, table, seen),
                Ok(_) => {}
                Err(error) => seen.troubles.push((run, error)),
            }
        }
        Ok(all)
    }

    /// Returns the swept runs whose marker a process of the current user carries.
    fn marks(&self, pid: Pid) -> io::Result<Vec<usize>> {
        // The user comes first: any user can put any run's id into a large environment, but not in a process of another
        // user.
        if !self.is_of_our_user(pid)? {
            return Ok(Vec::new());
        }
        let marked = identity::markers(pid)?.unwrap_or_default();
        Ok((0..self.runs.len()).filter(|run| marked.contains(&self.runs[*run].id)).collect())
    }

    fn is_of_our_user(&self, pid: Pid) -> io::Result<bool> {
        Ok(machine::users(pid)?.is_some_and(|users| users.contains(&self.user)))
    }

    /// Handles a process whose environment cannot be read. If it belongs to the current user, is orphaned and is young
    /// enough, it may belong to a run.
    fn unreadable(
        &self,
        (pid, stat): (Pid, ProcStat),
        reapers: &[Vec<i32>],
        table: &ProcessTable,
        error: &io::Error,
        seen: &mut SearchResult,
    ) {
        let denied = error.kind() == io::ErrorKind::PermissionDenied;
        // A process that waits to be reaped cannot be read either.
        if denied && (matches!(self.is_of_our_user(pid), Ok(false)) || is_over(pid)) {
            return;
        }
        let cgroups = machine::cgroups(pid);
        let in_cgroups_of = |run: &DeadRun<'_>| {
            let recorded = run.contents.host_cgroups();
            recorded == 0 || cgroups.as_ref().map_or(true, |cgroups| *cgroups == recorded)
        };
        for (run, reapers) in reapers.iter().enumerate() {
            if !denied {
                seen.troubles.push((run, io::Error::new(error.kind(), error.to_string())));
            } else if stat.start >= self.opened[run]
                && is_orphan(stat, reapers, table)
                // If the run has no cgroup, the processes that a worker starts stay in the host's cgroup. Other
                // services and sessions have their own.
                && in_cgroups_of(&self.runs[run])
            {
                seen.let_be(run, pid, LetBeReason::Unreadable);
            }
        }
    }

    /// Adds the descendants of all members.
    fn by_descent(&self, table: &ProcessTable, seen: &mut SearchResult) {
        let mut next = 0;
        while next < seen.members.len() {
            let (run, parent) = (seen.members[next].run, seen.members[next].pid());
            for &child in table.children_of(parent) {
                if child == self.own || seen.has(child) {
                    continue;
                }
                let found = identity::open(child).and_then(|found| {
                    let same = machine::stat(child)?.is_some_and(|now| now.parent == parent.as_raw());
                    Ok(found.filter(|_| same))
                });
                match found {
                    // The parent is still alive, so its pid meant the parent all the time.
                    Ok(Some(found)) if seen.members[next].process.is_alive() => {
                        self.add(run, found, None, table, seen);
                    }
                    Ok(_) => {}
                    Err(error) => seen.troubles.push((run, error)),
                }
            }
            next += 1;
        }
    }

    /// Adds the members of groups whose recorded leader is not reaped: no other process can have created a group with
    /// that number.
    fn by_group(&self, table: &ProcessTable, seen: &mut SearchResult) {
        for run in 0..self.runs.len() {
            let workers = self.runs[run].contents.living.values();
            for worker in workers.filter(|worker| worker.pgid > 1 && worker.pgid == worker.main.pid) {
                match identity::find_unreaped(&worker.main) {
                    // A living leader was either found by its record, or did not match its record.
                    Ok(Some(leader)) if seen.has(leader.pid) || !leader.is_alive() => {
                        self.by_leader(run, &leader, table, seen);
                    }
                    Ok(_) => {}
                    Err(error) => seen.troubles.push((run, error)),
                }
            }
        }
    }

    fn by_leader(&self, run: usize, leader: &LiveProcess, table: &ProcessTable, seen: &mut SearchResult) {
        let group = leader.pid.as_raw();
        for (pid, _) in table.rows().filter(|(_, stat)| stat.group == group) {
            let found = identity::open(pid).and_then(|found| {
                let same = machine::stat(pid)?.is_some_and(|now| now.group == group);
                Ok(found.filter(|found| same && found.is_alive()))
            });
            // Checked last, so that the group was still the leader's when the member was read.
            match found.and_then(|found| Ok((found, leader.is_unreaped()?))) {
                Ok((Some(found), true)) => self.add(run, found, None, table, seen),
                Ok(_) => {}
                Err(error) => seen.troubles.push((run, error)),
            }
        }
    }

    /// Reports members of recorded groups whose leader is gone: the number may mean another group by now.
    fn lost_groups(&self, table: &ProcessTable, seen: &mut SearchResult) {
        for run in 0..self.runs.len() {
            for group in self.groups(run) {
                // A group with a leader was already found, or belongs to a foreign process.
                if Pid::new(group).is_none_or(|leader| table.row(leader).is_some()) {
                    continue;
                }
                for (pid, stat) in table.rows().filter(|(_, stat)| stat.group == group) {
                    let known = pid == self.own || seen.has(pid);
                    if !known && stat.start >= self.opened[run] && !is_over(pid) {
                        seen.let_be(run, pid, LetBeReason::GroupWithoutLeader(group));
                    }
                }
            }
        }
    }

    /// Returns the groups of a run's workers.
    fn groups(&self, run: usize) -> impl Iterator<Item = i32> {
        let records = self.runs[run].contents.living.values();
        records.map(|record| record.pgid).filter(|group| *group > 1)
    }

    fn add(
        &self,
        run: usize,
        process: LiveProcess,
        worker: Option<WorkerId>,
        table: &ProcessTable,
        seen: &mut SearchResult,
    ) {
        if process.pid == self.own || seen.has(process.pid) {
            return;
        }
        let start = table.row(process.pid).map_or(0, |stat| stat.start);
        seen.pids.insert(process.pid.as_raw());
        seen.members.push(RunMember { run, process, start, worker });
    }
}

/// Returns whether a process has certainly ended.
fn is_over(pid: Pid) -> bool {
    matches!(identity::lives(pid), Ok(false))
}

/// Returns whether a process is an orphan that one of these processes adopted.
fn is_orphan(stat: ProcStat, reapers: &[i32], table: &ProcessTable) -> bool {
    let parent = Pid::new(stat.parent).and_then(|parent| table.row(parent));
    let own_child = parent.is_some_and(|parent| parent.session == stat.session);
    stat.parent == 1 || (reapers.contains(&stat.parent) && !own_child)
}

/// Returns the processes that adopt the orphans of a run: init, and the host and its ancestors while they live.
fn reapers_of(run: &DeadRun<'_>) -> Vec<i32> {
    let mut reapers = vec![1];
    let host = run.contents.open.as_ref().map(|open| open.main);
    for process in host.into_iter().chain(run.contents.ancestors()) {
        // A process that cannot be inspected does not count as an adopter.
        if let Ok(Some(found)) = identity::find(&process) {
            reapers.push(found.pid.as_raw());
        }
    }
    reapers
}
