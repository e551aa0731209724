//! One look for everybody of dead runs.
//!
//! Who is of a run: whoever is on record, in its cgroup, or in the group of a recorded process that is not reaped; an orphan
//! of our user that carries its marker; and all of their descendants. The marker alone proves nothing: an environment
//! can be copied. An orphan has nobody else who answers for it: its parent is init, or an ancestor of the host that
//! lives in another session, which is how a service manager adopts, and not how a shell starts.

use std::collections::BTreeSet;
use std::io;
use std::time::Instant;

use crate::identity::{self, Found};
use crate::ledger::record::Process;
use crate::machine::{self, Stat};
use crate::process_table::ProcessTable;
use crate::{Pid, WorkerId};

use super::{DeadRun, LetBe, LetBeReason, Member};

/// What one look saw.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) members: Vec<Member>,
    pids: BTreeSet<i32>,
    pub(super) let_be: Vec<(usize, LetBe)>,
    /// Runs of which something could not be looked at.
    pub(super) troubles: Vec<(usize, io::Error)>,
}

impl Seen {
    fn has(&self, pid: Pid) -> bool {
        self.pids.contains(&pid.as_raw())
    }

    fn let_be(&mut self, run: usize, pid: Pid, reason: LetBeReason) {
        self.let_be.push((run, LetBe { pid, command: machine::command_line(pid), reason }));
    }
}

/// What is the same for all looks of a sweep.
pub(super) struct Search<'a> {
    runs: &'a [DeadRun<'a>],
    own: Pid,
    user: u32,
    /// When each run's host was started: nobody of the run is older. 0 where it is not known.
    opened: Vec<u64>,
    /// When looking is over.
    deadline: Instant,
}

/// Somebody who carries a run's marker.
struct Marked {
    run: usize,
    pid: Pid,
    stat: Stat,
}

impl<'a> Search<'a> {
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

    /// Looks once. An error is one of looking at the machine as a whole.
    pub(super) fn look(&mut self) -> io::Result<Seen> {
        let table = ProcessTable::read()?;
        let mut seen = Seen::default();
        for run in 0..self.runs.len() {
            self.by_record(run, &table, &mut seen);
            self.by_cgroup(run, &table, &mut seen);
        }
        let marked = self.by_marker(&table, &mut seen)?;
        self.by_group(&table, &mut seen);
        self.by_descent(&table, &mut seen);
        self.lost_groups(&table, &mut seen);
        for Marked { run, pid, stat } in marked {
            if let (false, Some(parent)) = (seen.has(pid), Pid::new(stat.parent)) {
                seen.let_be(run, pid, LetBeReason::ForeignParent(parent));
            }
        }
        Ok(seen)
    }

    fn by_record(&self, run: usize, table: &ProcessTable, seen: &mut Seen) {
        let dead = &self.runs[run];
        let workers = dead.contents.living.values().flat_map(|record| {
            let worker = std::str::from_utf8(&record.text).ok().and_then(|text| WorkerId::new(text).ok());
            [(record.main, worker), (record.shim, None)]
        });
        let keepers = dead.contents.keepers.iter().map(|record| (record.main, None));
        for (process, worker) in workers.chain(keepers).filter(|(process, _)| *process != Process::default())
        {
            match identity::find_of_run(&process, dead.id) {
                Ok(Some(found)) => self.add(run, found, worker, table, seen),
                Ok(None) => {}
                Err(error) => seen.troubles.push((run, error)),
            }
        }
    }

    /// Who is in the cgroup, and was so when the pidfd was held already.
    fn by_cgroup(&self, run: usize, table: &ProcessTable, seen: &mut Seen) {
        let Some(cgroup) = &self.runs[run].cgroup else { return };
        let found = cgroup.members().and_then(|pids| {
            let opened: Vec<Found> = pids
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

    /// Orphans that carry a marker; gives back everybody who carries one.
    fn by_marker(&self, table: &ProcessTable, seen: &mut Seen) -> io::Result<Vec<Marked>> {
        let reapers: Vec<Vec<i32>> = self.runs.iter().map(|run| reapers_of(run)).collect();
        let oldest = self.opened.iter().copied().min().unwrap_or(0);
        let mut all = Vec::new();
        for (pid, stat) in table.rows() {
            if pid == self.own || stat.start < oldest || seen.has(pid) {
                continue;
            }
            if Instant::now() >= self.deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the time for a sweep was over"));
            }
            match self.marks(pid) {
                Ok(runs) => all.extend(runs.into_iter().map(|run| Marked { run, pid, stat })),
                Err(error) => self.unreadable((pid, stat), &reapers, table, &error, seen),
            }
        }
        for &Marked { run, pid, stat } in &all {
            if !is_orphan(stat, &reapers[run], table) {
                continue;
            }
            // Again, now that the pidfd is held: the first look was at whoever had the pid then.
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

    /// The runs, of those that are swept, whose marker a process of our own user carries.
    fn marks(&self, pid: Pid) -> io::Result<Vec<usize>> {
        // First: anybody can put any run's id into an environment, and a large one; nobody can do it as another user.
        if !self.is_of_our_user(pid)? {
            return Ok(Vec::new());
        }
        let marked = identity::markers(pid)?.unwrap_or_default();
        Ok((0..self.runs.len()).filter(|run| marked.contains(&self.runs[*run].id)).collect())
    }

    fn is_of_our_user(&self, pid: Pid) -> io::Result<bool> {
        Ok(machine::users(pid)?.is_some_and(|users| users.contains(&self.user)))
    }

    /// Somebody whose environment cannot be read. Of our own user, orphaned and young enough, it may be of a run.
    fn unreadable(
        &self,
        (pid, stat): (Pid, Stat),
        reapers: &[Vec<i32>],
        table: &ProcessTable,
        error: &io::Error,
        seen: &mut Seen,
    ) {
        let denied = error.kind() == io::ErrorKind::PermissionDenied;
        // Of whoever has ended and waits to be reaped, nothing can be read either.
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
                // What a worker starts stays in the cgroups of its host, where the run has none of its own: a service
                // or a session of somebody else is told by its own.
                && in_cgroups_of(&self.runs[run])
            {
                seen.let_be(run, pid, LetBeReason::Unreadable);
            }
        }
    }

    /// Everybody below those who were found.
    fn by_descent(&self, table: &ProcessTable, seen: &mut Seen) {
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
                    // Its parent is alive, so that the number which it calls its parent was ours all the time.
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

    /// Members of groups whose recorded leader lives, or has ended and is not reaped: nobody else can have made a group of
    /// that number.
    fn by_group(&self, table: &ProcessTable, seen: &mut Seen) {
        for run in 0..self.runs.len() {
            let workers = self.runs[run].contents.living.values();
            for worker in workers.filter(|worker| worker.pgid > 1 && worker.pgid == worker.main.pid) {
                match identity::find_unreaped(&worker.main) {
                    // One that lives was found by its record, or was not believed.
                    Ok(Some(leader)) if seen.has(leader.pid) || !leader.is_alive() => {
                        self.by_leader(run, &leader, table, seen);
                    }
                    Ok(_) => {}
                    Err(error) => seen.troubles.push((run, error)),
                }
            }
        }
    }

    fn by_leader(&self, run: usize, leader: &Found, table: &ProcessTable, seen: &mut Seen) {
        let group = leader.pid.as_raw();
        for (pid, _) in table.rows().filter(|(_, stat)| stat.group == group) {
            let found = identity::open(pid).and_then(|found| {
                let same = machine::stat(pid)?.is_some_and(|now| now.group == group);
                Ok(found.filter(|found| same && found.is_alive()))
            });
            // Asked last: so the group was the leader's when its member was looked at.
            match found.and_then(|found| Ok((found, leader.is_unreaped()?))) {
                Ok((Some(found), true)) => self.add(run, found, None, table, seen),
                Ok(_) => {}
                Err(error) => seen.troubles.push((run, error)),
            }
        }
    }

    /// Members of recorded groups whose leader is gone: the number may be another group's by now, or not.
    fn lost_groups(&self, table: &ProcessTable, seen: &mut Seen) {
        for run in 0..self.runs.len() {
            for group in self.groups(run) {
                // With a leader it is found already, or a stranger's.
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

    /// The groups that a run's workers have.
    fn groups(&self, run: usize) -> impl Iterator<Item = i32> {
        let records = self.runs[run].contents.living.values();
        records.map(|record| record.pgid).filter(|group| *group > 1)
    }

    fn add(
        &self,
        run: usize,
        process: Found,
        worker: Option<WorkerId>,
        table: &ProcessTable,
        seen: &mut Seen,
    ) {
        if process.pid == self.own || seen.has(process.pid) {
            return;
        }
        let start = table.row(process.pid).map_or(0, |stat| stat.start);
        seen.pids.insert(process.pid.as_raw());
        seen.members.push(Member { run, process, start, worker });
    }
}

/// Whether a process has ended for sure.
fn is_over(pid: Pid) -> bool {
    matches!(identity::lives(pid), Ok(false))
}

/// Whether a process was adopted by one of these.
fn is_orphan(stat: Stat, reapers: &[i32], table: &ProcessTable) -> bool {
    let parent = Pid::new(stat.parent).and_then(|parent| table.row(parent));
    let own_child = parent.is_some_and(|parent| parent.session == stat.session);
    stat.parent == 1 || (reapers.contains(&stat.parent) && !own_child)
}

/// Who adopts the orphans of a run: init, and the host and its ancestors for as long as they live.
fn reapers_of(run: &DeadRun<'_>) -> Vec<i32> {
    let mut reapers = vec![1];
    let host = run.contents.open.as_ref().map(|open| open.main);
    for process in host.into_iter().chain(run.contents.ancestors()) {
        // Whoever cannot be looked at adopts nobody that we would end.
        if let Ok(Some(found)) = identity::find(&process) {
            reapers.push(found.pid.as_raw());
        }
    }
    reapers
}
