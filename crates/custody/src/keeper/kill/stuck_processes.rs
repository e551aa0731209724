//! Processes that do not end when they should: shims at a standstill, orphans of a dead shim, and processes that the
//! run may not signal.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::keeper::{Keeper, RunPhase};
use crate::sys::{self, EpollEvent};
use crate::wire::{ToHost, WireTier};
use crate::workers::{ShimEntry, ShimRole};

use super::children::{self, Escalation};
use super::{cgroup, descendants};

/// How often to look at shims whose end is due.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// When to continue a stopped shim.
const CONTINUE_AFTER: Duration = Duration::from_millis(100);
/// When to kill a shim that is at a standstill, for example because a tracer holds it, and how many looks in a row must
/// have found it stopped. A shim that is merely traced runs between the looks.
const STANDSTILL: Duration = Duration::from_millis(500);
const LOOKS_AT_STANDSTILL: u32 = 8;
/// When to kill a shim that may be running but reports nothing.
const SILENCE: Duration = Duration::from_secs(10);
/// When to stop waiting for a dead shim that cannot be reaped because a tracer holds it.
const UNREAPED: Duration = Duration::from_millis(800);

/// The due end of a shim.
pub(crate) struct DueEnd {
    /// When the end became due, or when the shim last reported that it is busy.
    since: Instant,
    /// How many looks in a row have found the shim at a standstill.
    still: u32,
}

impl DueEnd {
    pub(crate) fn now() -> Self {
        Self { since: Instant::now(), still: 0 }
    }
}

impl Keeper {
    /// Records that the shim was ordered to end, or that its worker has ended. From now on, the shim must end or report
    /// that it is busy.
    pub(crate) fn end_is_due(&mut self, serial: u64) {
        self.due.entry(serial).or_insert_with(DueEnd::now);
    }

    pub(crate) fn all_ends_are_due(&mut self) {
        for serial in self.shims.keys() {
            self.due.entry(*serial).or_insert_with(DueEnd::now);
        }
    }

    /// Handles the end of workers' main processes. Their shims see it too, unless a tracer holds them.
    pub(crate) fn on_worker_ends(&mut self) {
        let mut events = [EpollEvent::default(); 64];
        let count = self.worker_ends.wait(&mut events, 0).unwrap_or(0);
        for event in &events[..count] {
            let serial = event.data;
            let Some(shim) = self.shims.get_mut(&serial) else { continue };
            shim.worker_ended = true;
            if let Some(pidfd) = &shim.watched {
                self.worker_ends.remove(pidfd.as_raw_fd());
            }
            self.end_is_due(serial);
        }
    }

    /// Kills the shims whose end is overdue. In the tier `namespace`, the kernel ends the namespace with its shim. In
    /// the tier `shim`, the keeper inherits what the shim leaves. In the tier `group`, the keeper kills the group
    /// before its shim.
    pub(crate) fn end_overdue(&mut self) {
        let now = Instant::now();
        if self.due.is_empty() || now < self.next_look {
            return;
        }
        self.next_look = now + LOOK_EVERY;
        let is_group = self.tier == WireTier::Group;
        let mut killed = false;
        let mut unreaped = Vec::new();
        for (serial, due) in &mut self.due {
            let late = now.saturating_duration_since(due.since);
            let Some(shim) = self.shims.get(serial).filter(|_| late > CONTINUE_AFTER) else { continue };
            let pid = shim.process.pid;
            let state = descendants::state_of(pid);
            due.still = if matches!(state, Some('T' | 't')) { due.still + 1 } else { 0 };
            let stands_still = late > STANDSTILL && due.still >= LOOKS_AT_STANDSTILL;
            // A shim without a host reports nothing, and only the shim knows its group.
            let is_silent = late > SILENCE && !(is_group && self.phase == RunPhase::Orphaned);
            if stands_still && is_group {
                kill_group_of(shim);
            }
            if stands_still || is_silent {
                let _ = sys::send_signal(pid, sys::SIGKILL);
                killed = true;
            } else if due.still > 0 {
                let _ = sys::send_signal(pid, sys::SIGCONT);
            }
            if matches!(state, Some('Z' | 'X')) && late > STANDSTILL {
                killed = true;
                if late > UNREAPED {
                    unreaped.push(*serial);
                }
            }
        }
        if killed {
            // The tracer that holds a dead shim may be among the processes that it left.
            self.no_orphan_left();
        }
        if !unreaped.is_empty() {
            self.reap();
        }
        for serial in unreaped {
            if self.due.remove(&serial).is_some() {
                self.on_shim_end(serial, -1);
            }
        }
    }

    /// Kills the processes that outlived a shim. Returns true if the only processes left are those that may not be
    /// signalled.
    pub(crate) fn no_orphan_left(&mut self) -> bool {
        if sys::has_no_child() || !self.has_orphan() {
            self.orphans = None;
            return true;
        }
        let mut escalation = self.orphans.take().unwrap_or_else(Escalation::new);
        let round = escalation.kill(|pid| self.by_pid.contains_key(&pid) || self.unkillable.contains(&pid));
        self.orphans = Some(escalation);
        for pid in round.reached {
            if !self.discarded.contains(&pid) && self.escaped.insert(pid) {
                self.notify_host(&ToHost::Escaped { pid }, &[]);
            }
        }
        let worker = self.killed_shims.iter().find_map(|shim| match &shim.role {
            ShimRole::Serving(kept) => Some(kept.key),
            ShimRole::Starting { .. } | ShimRole::Spare { .. } => None,
        });
        for pid in round.given_up {
            self.give_up(worker.unwrap_or(0), pid);
        }
        false
    }

    /// Returns whether the keeper has a living child that is not a shim. Looks twice, because a list may miss a child.
    fn has_orphan(&self) -> bool {
        let is_orphan = |pid: &i32| {
            !self.by_pid.contains_key(pid) && !self.unkillable.contains(pid) && !descendants::is_dead(*pid)
        };
        (0..2).any(|_| children::list().iter().any(is_orphan))
    }

    /// Reports a process to the host that the run may not signal, and does not wait for it.
    pub(crate) fn give_up(&mut self, key: u64, pid: i32) {
        if self.unkillable.insert(pid) {
            self.notify_host(&ToHost::Unkillable { key, pid }, &[]);
        }
    }

    /// Kills the processes in the cgroup of a shim that ended without removing it.
    pub(crate) fn clear_cgroup_of(&mut self, serial: u64) {
        if let Some(run) = &self.cgroup {
            cgroup::kill_worker(run.as_raw_fd(), serial);
            self.cgroups_left.push(serial);
        }
    }

    /// Removes the cgroups that shims have left, if they are empty by now.
    pub(crate) fn remove_cgroups_left(&mut self) {
        if let Some(run) = &self.cgroup {
            self.cgroups_left.retain(|serial| !cgroup::remove_worker(run.as_raw_fd(), *serial));
        }
    }
}

/// Kills the group of a worker whose shim is at a standstill. The shim has not reaped the worker, so the number still
/// belongs to the group.
fn kill_group_of(shim: &ShimEntry) {
    if let (ShimRole::Serving(kept), Some(worker)) = (&shim.role, &shim.watched)
        && sys::pidfd_signal(worker.as_raw_fd(), 0).is_ok()
    {
        let _ = sys::send_signal(-kept.record.main.pid, sys::SIGKILL);
    }
}
