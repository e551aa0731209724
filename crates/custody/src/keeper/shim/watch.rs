//! A shim while its worker runs, and the end of both.

use std::os::fd::{AsRawFd, OwnedFd};

use crate::identity::has_ended;
use crate::kill::cgroup::WorkerCgroup;
use crate::kill::children::{self, BusyNotice, Escalation, FIRST_DEATH_MS, NEXT_DEATH_MS, await_death};
use crate::sys::{self, ChildChange, PollFd};
use crate::wire::{SignalReach, WireTier, WorkerEnd};

use super::messages::{FromShim, ToShim};
use super::start::{RunDescriptors, send_to_keeper};

/// A shim whose worker runs.
pub(super) struct Shim<'a> {
    pub(super) tier: WireTier,
    pub(super) worker: i32,
    pub(super) socket: OwnedFd,
    pub(super) descriptors: &'a RunDescriptors,
    pub(super) child_signals: OwnedFd,
    pub(super) cgroup: Option<WorkerCgroup>,
}

/// The exit status of a shim that leaves its worker's cgroup behind.
const CGROUP_LEFT: i32 = 3;
/// The exit status of a shim that leaves processes behind that it may not signal.
pub(crate) const PROCESSES_LEFT: i32 = 4;

/// The next step of the shim.
enum NextStep {
    Watch,
    /// More children wait, but other events are handled first.
    GoOn,
    EndAll,
}

impl Shim<'_> {
    pub(super) fn watch(&self) -> ! {
        let watched = [&self.descriptors.host, &self.descriptors.keeper, &self.socket, &self.child_signals];
        let mut fds = watched.map(|fd| PollFd { fd: fd.as_raw_fd(), events: sys::POLLIN, revents: 0 });
        let mut more = false;
        loop {
            let polled = sys::poll_any(&mut fds, if more { 0 } else { -1 });
            let [host, keeper, socket, child] = fds.map(|fd| fd.revents != 0);
            if polled.is_err() || host || keeper {
                self.end_all();
            }
            if child || more {
                sys::drain(&self.child_signals);
                more = match self.reap() {
                    NextStep::Watch => false,
                    NextStep::GoOn => true,
                    NextStep::EndAll => self.end_all(),
                };
            }
            if socket && let NextStep::EndAll = self.on_message() {
                self.end_all();
            }
        }
    }

    fn on_message(&self) -> NextStep {
        let mut bytes = [0; 64];
        loop {
            let heard = match sys::receive(self.socket.as_raw_fd(), &mut bytes) {
                Ok((0, _)) => return NextStep::EndAll,
                Ok((length, _)) => ToShim::decode(&bytes[..length]),
                Err(error) if sys::errno(&error) == sys::EAGAIN => return NextStep::Watch,
                Err(_) => return NextStep::EndAll,
            };
            match heard {
                Some(ToShim::Signal { signal, reach }) => {
                    // The worker is not reaped before the end, so its pid and its group are still its own.
                    let target = match reach {
                        SignalReach::Group => -self.worker,
                        SignalReach::Process => self.worker,
                    };
                    let _ = sys::send_signal(target, signal);
                }
                Some(ToShim::Kill) | None => return NextStep::EndAll,
            }
        }
    }

    /// Reaps orphans and reports stops of the worker. The worker itself is reaped at the end.
    fn reap(&self) -> NextStep {
        for _ in 0..children::REAPED_AT_ONCE {
            let Some((pid, told)) = sys::peek_child() else { return NextStep::Watch };
            match told {
                ChildChange::Ended if pid == self.worker => return NextStep::EndAll,
                ChildChange::Ended => {
                    let _ = sys::wait_child(pid, sys::WNOHANG);
                }
                ChildChange::Stopped { .. } | ChildChange::Continued => match sys::take_stop(pid) {
                    Some(ChildChange::Stopped { signal }) if pid == self.worker => {
                        self.send_to_keeper(&FromShim::Stopped { signal });
                    }
                    Some(ChildChange::Continued) if pid == self.worker => {
                        self.send_to_keeper(&FromShim::Continued);
                    }
                    _ => {}
                },
            }
        }
        NextStep::GoOn
    }

    /// Ends the worker and everything that it started, and then the shim itself.
    fn end_all(&self) -> ! {
        let mut end = WorkerEnd::LOST;
        let note = |waited: &sys::ReapedChild| {
            if waited.pid == self.worker {
                end = WorkerEnd::from(waited);
            }
        };
        let given_up = match self.tier {
            WireTier::Namespace => {
                // This call is atomic: a fork in the namespace is either seen or finds the signal pending. A process
                // that may not be signalled ends with its init.
                let _ = sys::send_signal(-1, sys::SIGKILL);
                self.end_children(note);
                Vec::new()
            }
            WireTier::Shim => {
                let _ = sys::send_signal(-self.worker, sys::SIGKILL);
                self.end_children(note)
            }
            WireTier::Group => {
                // The worker may have left its group. The worker is not reaped, so both numbers still belong to it.
                let _ = sys::send_signal(-self.worker, sys::SIGKILL);
                let _ = sys::send_signal(self.worker, sys::SIGKILL);
                self.end_group(note)
            }
        };
        let left = !given_up.is_empty();
        let removed = if has_ended(&self.descriptors.host) {
            // No host is left to report to. A stopped keeper must continue and clear the run. The keeper removes the
            // cgroups, too: shims that removed cgroups at the same time would wait for each other.
            let _ = sys::pidfd_signal(self.descriptors.keeper.as_raw_fd(), sys::SIGCONT);
            self.cgroup.is_none()
        } else {
            for pid in given_up {
                self.send_to_keeper(&FromShim::Unkillable { pid });
            }
            self.send_to_keeper(&FromShim::Ended { end });
            self.cgroup.as_ref().is_none_or(WorkerCgroup::remove)
        };
        sys::exit(match (left, removed) {
            (true, _) => PROCESSES_LEFT,
            (false, false) => CGROUP_LEFT,
            (false, true) => 0,
        })
    }

    /// Ends the worker's group. Processes that have left the group survive. As a subreaper, the shim can wait for the
    /// group's orphans.
    fn end_group(&self, mut note: impl FnMut(&sys::ReapedChild)) -> Vec<i32> {
        let mut escalation = Escalation::new();
        let mut busy = BusyNotice::new();
        let mut is_reaped = false;
        if sys::peek_child().is_none() {
            await_death(&self.child_signals, FIRST_DEATH_MS);
        }
        loop {
            sys::drain(&self.child_signals);
            let mut left = false;
            for whom in [-self.worker, self.worker] {
                // Usually the worker is still in its group and is reaped with it.
                if is_reaped && whom == self.worker {
                    break;
                }
                while let Ok(waited) = sys::wait_child(whom, sys::WNOHANG) {
                    left |= waited.is_none();
                    let Some(waited) = waited else { break };
                    is_reaped |= waited.pid == self.worker;
                    note(&waited);
                }
            }
            if !left {
                return Vec::new();
            }
            // One member of the group is not reaped, so the number still belongs to the group.
            let round = escalation.kill_group(self.worker);
            if round.is_last {
                return round.given_up;
            }
            await_death(&self.child_signals, NEXT_DEATH_MS);
            busy.notify_host(|| self.send_to_keeper(&FromShim::Busy));
        }
    }

    fn send_to_keeper(&self, message: &FromShim) {
        let _ = send_to_keeper(self.socket.as_raw_fd(), message, &[]);
    }

    /// Ends all children and everything that they leave. Returns the processes that may not be signalled.
    fn end_children(&self, note: impl FnMut(&sys::ReapedChild)) -> Vec<i32> {
        let kill_at_once = || self.cgroup.iter().for_each(WorkerCgroup::kill);
        let still_busy = || self.send_to_keeper(&FromShim::Busy);
        let deaths = &self.child_signals;
        children::EndOfChildren { deaths, kill_at_once: &kill_at_once, still_busy: &still_busy }.run(note)
    }
}
