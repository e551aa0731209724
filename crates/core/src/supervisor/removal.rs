//! Retirement of workers: those that are too many, those that are far beyond their term, and those that a reload
//! replaces. The last are kept until it is certain that they are not needed again.

use std::cmp::Reverse;

use tokio::time::Instant;

use super::main_loop::{SupervisedWorker, Supervisor};
use crate::adapter::{Reason, ReplaceReason};
use crate::telemetry::Event;
use crate::worker::WorkerOrder;

impl Supervisor {
    /// Retires surplus workers: first those that are due, then those of another generation, then those that are
    /// stopped, then those that have been due for longest, then those with the least work.
    pub(super) fn trim(&mut self) {
        let now = Instant::now();
        while self.serving.len() > self.target {
            let first = self.serving.iter().min_by_key(|(_, member)| {
                let is_current = member.worker.generation == self.generation.number;
                // By work alone, a busy worker would serve forever while workers that became due later leave.
                let due_since = member.due.map(|mark| mark.since);
                // Workers that have been idle for longest are the coldest.
                let idle_since = Reverse(member.idle_for(now));
                let work = member.worker.places.calls();
                (member.due.is_none(), is_current, !member.is_halted(), due_since, work, idle_since)
            });
            let Some(index) = first.map(|(index, _)| *index) else { return };
            let Some(member) = self.serving.remove(&index) else { return };
            match &mut self.reload {
                Some(reload) if member.worker.generation != self.generation.number => {
                    reload.replaced += 1;
                    self.keep(member);
                }
                _ => {
                    let reason = member.due.map_or(Reason::Stopped, |mark| Reason::Replaced(mark.due));
                    self.let_go(member, reason);
                }
            }
        }
    }

    /// Retires a worker: it takes no more calls, and ends when it has finished the calls it has.
    pub(super) fn let_go(&mut self, member: SupervisedWorker, reason: Reason) {
        // At once, so that the pool shows only the workers that stay.
        self.shared.retire(member.worker.index);
        member.worker.order(WorkerOrder::Retire(reason));
        self.note_leaving(member);
    }

    /// Announces that a worker finishes its last calls.
    pub(super) fn note_leaving(&mut self, member: SupervisedWorker) {
        let worker = member.worker.id.as_str();
        self.shared.announce(|pool| Event::WorkerLeaves { pool, worker: worker.into() });
        self.leaving.push(member);
    }

    /// Keeps a worker that a reload replaces, without calls. It ends when the reload is done, and serves again if the
    /// reload fails.
    fn keep(&mut self, member: SupervisedWorker) {
        self.shared.drain_replaced(&member.worker);
        self.kept.push(member);
    }

    /// Retires the kept workers when the reload is done.
    pub(super) fn let_kept_go(&mut self) {
        for member in std::mem::take(&mut self.kept) {
            self.let_go(member, Reason::Replaced(ReplaceReason::Reloaded));
        }
    }

    /// Restores the kept workers and retires the new ones when the reload has failed.
    pub(super) fn restore_kept(&mut self) {
        for member in std::mem::take(&mut self.kept) {
            self.shared.end_drain(&member.worker);
            self.serving.insert(member.worker.index, member);
        }
        let is_new =
            |_: &usize, member: &mut SupervisedWorker| member.worker.generation == self.generation.number;
        let new: Vec<_> = self.serving.extract_if(.., is_new).collect();
        for (_, member) in new {
            self.let_go(member, Reason::Replaced(ReplaceReason::ReloadGivenUp));
        }
    }

    /// Returns how many workers are so far beyond their terms that they get no more calls.
    pub(super) fn worn_out(&self) -> usize {
        self.serving.values().filter(|member| member.is_worn_out).count()
    }

    /// Stops giving calls to workers that have exceeded their term twice; otherwise the term would have no effect under
    /// load. If no other worker can be started, a worn worker is better than none.
    pub(super) fn rest_worn_out(&mut self, now: Instant) {
        let others_start = !self.restarts.is_degraded() && self.pause_until.is_none();
        for member in self.serving.values_mut().filter(|member| member.due.is_some()) {
            let rests = others_start && member.term.is_exceeded_twice(&member.usage(now));
            // Repeated each time, because the handover of the last call lays the worker off as well.
            if rests || member.is_worn_out {
                self.shared.drain_worn(&member.worker, rests);
            }
            member.is_worn_out = rests;
        }
    }
}
