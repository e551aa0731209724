//! Those who do not end when they should: shims that stand still, orphans of a dead shim, and processes that nobody of
//! the run may signal.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::cgroup;
use crate::children::{self, Escalation};
use crate::descendants;
use crate::keeper::{Course, Keeper};
use crate::sys::{self, EpollEvent};
use crate::wards::{Role, Shim};
use crate::wire::{ToHost, WireTier};

/// How often shims whose end is due are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// When a shim that was stopped is told to go on.
const CONTINUE_AFTER: Duration = Duration::from_millis(100);
/// When a shim that stands still all the same, as one that a tracer holds, is killed; and how many looks in a row must have
/// found it so: one that is merely watched by a tracer runs between them.
const STANDSTILL: Duration = Duration::from_millis(500);
const LOOKS_AT_STANDSTILL: u32 = 8;
/// When a shim is killed that may run, but says nothing.
const SILENCE: Duration = Duration::from_secs(10);
/// When a dead shim that cannot be reaped, because its tracer has not let go of it, is not waited for any more.
const UNREAPED: Duration = Duration::from_millis(800);

/// The end of a shim that is due.
pub(crate) struct Due {
    /// Since when, or when it last said that it is busy.
    since: Instant,
    /// How many looks in a row have found it at a standstill.
    still: u32,
}

impl Due {
    pub(crate) fn now() -> Self {
        Self { since: Instant::now(), still: 0 }
    }
}

impl Keeper {
    /// A shim has been told to end, or its worker has ended: it must end or say that it is busy.
    pub(crate) fn end_is_due(&mut self, serial: u64) {
        self.due.entry(serial).or_insert_with(Due::now);
    }

    pub(crate) fn all_ends_are_due(&mut self) {
        for serial in self.shims.keys() {
            self.due.entry(*serial).or_insert_with(Due::now);
        }
    }

    /// Workers have ended; their shims see it, too, unless somebody holds them.
    pub(crate) fn hear_ends(&mut self) {
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

    /// Ends the shims whose end is overdue. The kernel ends a namespace with its shim, what a shim of the tier `shim` leaves
    /// falls to the keeper, and a group is killed before its shim.
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
            due.still = if matches!(state, Some(b'T' | b't')) { due.still + 1 } else { 0 };
            let stands_still = late > STANDSTILL && due.still >= LOOKS_AT_STANDSTILL;
            // Without its host, a shim has nobody to tell that it is at work. Nobody but it knows a group.
            let is_silent = late > SILENCE && !(is_group && self.course == Course::Orphaned);
            if stands_still && is_group {
                kill_group_of(shim);
            }
            if stands_still || is_silent {
                let _ = sys::send_signal(pid, sys::SIGKILL);
                killed = true;
            } else if due.still > 0 {
                let _ = sys::send_signal(pid, sys::SIGCONT);
            }
            if matches!(state, Some(b'Z' | b'X')) && late > STANDSTILL {
                killed = true;
                if late > UNREAPED {
                    unreaped.push(*serial);
                }
            }
        }
        if killed {
            // Whoever holds a dead shim may be among what it left.
            self.no_orphan_left();
        }
        if !unreaped.is_empty() {
            self.reap();
        }
        for serial in unreaped {
            if self.due.remove(&serial).is_some() {
                self.shim_ended(serial, -1);
            }
        }
    }

    /// Kills whoever outlived a shim; true when there is nobody, but for those who were given up.
    pub(crate) fn no_orphan_left(&mut self) -> bool {
        if sys::has_no_child() || !self.has_orphan() {
            self.orphans = None;
            return true;
        }
        let mut escalation = self.orphans.take().unwrap_or_else(Escalation::new);
        let round = escalation.kill(|pid| self.by_pid.contains_key(&pid) || self.unkillable.contains(&pid));
        self.orphans = Some(escalation);
        for pid in round.reached {
            if !self.dismissed.contains(&pid) && self.escaped.insert(pid) {
                self.tell(&ToHost::Escaped { pid }, &[]);
            }
        }
        let worker = self.bereaved.iter().find_map(|shim| match &shim.role {
            Role::Ward(ward) => Some(ward.key),
            Role::Unborn { .. } | Role::Spare { .. } => None,
        });
        for pid in round.given_up {
            self.give_up(worker.unwrap_or(0), pid);
        }
        false
    }

    /// Whether a child is there that is no shim. Twice, because a list may miss one. The dead do not count: one that a
    /// tracer holds cannot be reaped.
    fn has_orphan(&self) -> bool {
        let is_orphan = |pid: &i32| {
            !self.by_pid.contains_key(pid) && !self.unkillable.contains(pid) && !descendants::is_dead(*pid)
        };
        (0..2).any(|_| children::list().iter().any(is_orphan))
    }

    /// Nobody of the run may signal this process: the host is told, and nobody waits for it.
    pub(crate) fn give_up(&mut self, key: u64, pid: i32) {
        if self.unkillable.insert(pid) {
            self.tell(&ToHost::Unkillable { key, pid }, &[]);
        }
    }

    /// A shim has ended without removing its worker's cgroup, so that somebody may be left in it.
    pub(crate) fn clear_cgroup_of(&mut self, serial: u64) {
        if let Some(run) = &self.cgroup {
            cgroup::kill_worker(run.as_raw_fd(), serial);
            self.cgroups_left.push(serial);
        }
    }

    /// Removes the cgroups that shims have left, as far as they are empty by now.
    pub(crate) fn remove_cgroups_left(&mut self) {
        if let Some(run) = &self.cgroup {
            self.cgroups_left.retain(|serial| !cgroup::remove_worker(run.as_raw_fd(), *serial));
        }
    }
}

/// Kills the group of a worker whose shim stands still, and so has not reaped it: the number is still the group's.
fn kill_group_of(shim: &Shim) {
    if let (Role::Ward(ward), Some(worker)) = (&shim.role, &shim.watched)
        && sys::pidfd_signal(worker.as_raw_fd(), 0).is_ok()
    {
        let _ = sys::send_signal(-ward.record.main.pid, sys::SIGKILL);
    }
}
