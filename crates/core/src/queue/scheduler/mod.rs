//! Decides which worker serves which call: the queue, the places at the workers, and the choice between workers.
//!
//! Pure bookkeeping under one lock: no I/O, no timer, nothing that waits. Each step of a call costs the same whatever
//! the number of workers; queueing a call costs the logarithm of the queue's length.
//!
//! Each worker has an entry, in one of four conditions. Each condition except `Full` has a list. Items of the lists may
//! be out of date and are checked when they are taken:
//!
//! ```text
//! Idle ──call──► Partial ──call──► Ahead ──call──► Full
//!   ▲  (nothing)   (free places)    (all places taken, short calls may wait at it)
//!   └────────────────────────── answer ◄────────────────────────────────┘
//! ```

mod draining;
mod isolated_calls;
mod nested_calls;
mod paused_workers;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::batch::BatchQueue;
use super::{OfferResult, Placement, QueueLimit};
use crate::call::QueueKey;
use crate::call::estimate::{MAX_HELD, may_wait_at_worker};
use crate::call::lease::{Load, LoadKind};
use crate::call::progress::CallPlace;
use crate::call::{Call, CallId};
use crate::worker::Worker;
use draining::DrainReason;
use isolated_calls::Isolation;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EntryCondition {
    Idle,
    Partial,
    Ahead,
    Full,
}

#[derive(Debug)]
struct WorkerEntry {
    worker: Arc<Worker>,
    /// How many calls the worker may run at the same time.
    places: usize,
    /// The number of calls with a place of their own, including those that have lent it to a nested call.
    held: usize,
    /// The estimated work of these calls, in nanoseconds.
    nanos: u64,
    /// Calls of this worker that wait for tools of the host, each with the number of tools.
    asking: Vec<(CallId, usize)>,
    /// Nested calls that are served in lent places, the latest last.
    guests: Vec<CallId>,
    /// Calls that only this worker may serve.
    bound: BTreeMap<QueueKey, Call>,
    condition: EntryCondition,
    /// Whether the worker's process is stopped. A stopped worker gets no calls.
    is_paused: bool,
    drain: DrainReason,
    isolation: Isolation,
    listed: [bool; 3],
    listed_asking: bool,
}

/// The queue and the workers of a pool; see the module documentation.
#[derive(Debug)]
pub(crate) struct Scheduler {
    pub(crate) limit: usize,
    pub(crate) queue: BTreeMap<QueueKey, Call>,
    /// Calls of batch commands that are being gathered. Their carriers are in the queue.
    pub(crate) batches: BatchQueue,
    bound: usize,
    entries: Vec<Option<WorkerEntry>>,
    vacant: Vec<usize>,
    lists: [VecDeque<usize>; 3],
    /// Entries with calls that wait for a tool. Items may be out of date.
    askers: VecDeque<usize>,
    gate: QueueGate,
}

impl WorkerEntry {
    fn takes_calls(&self) -> bool {
        !self.is_paused && self.drain == DrainReason::None
    }
}

/// Which calls the scheduler still takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum QueueGate {
    Open,
    /// Only nested calls, because calls that are under way need them to finish.
    Closing,
    Shut,
}

impl Scheduler {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            queue: BTreeMap::new(),
            batches: BatchQueue::default(),
            bound: 0,
            entries: Vec::new(),
            vacant: Vec::new(),
            lists: Default::default(),
            askers: VecDeque::new(),
            gate: QueueGate::Open,
        }
    }

    /// Sets how many calls may wait.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Returns how many calls wait.
    pub(crate) fn depth(&self) -> usize {
        self.queue.len() - self.batches.carriers + self.batches.waiting + self.bound
    }

    /// Returns how long the first call of the queue has waited.
    pub(crate) fn head_waits(&self, now: Instant) -> Duration {
        let first = self.queue.first_key_value().and_then(|(_, call)| call.queued_at);
        first.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    pub(crate) fn held_by(&self, entry: usize) -> usize {
        self.entry(entry).map_or(0, |entry| entry.held + entry.guests.len())
    }

    pub(crate) fn worker(&self, entry: usize) -> Option<Arc<Worker>> {
        self.entry(entry).map(|entry| Arc::clone(&entry.worker))
    }

    fn entry(&self, index: usize) -> Option<&WorkerEntry> {
        self.entries.get(index)?.as_ref()
    }

    /// Reserves an index for a worker that is about to serve.
    pub(crate) fn reserve(&mut self) -> usize {
        self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        })
    }

    /// Frees the index of a worker that is gone.
    pub(crate) fn vacate(&mut self, index: usize) {
        debug_assert!(self.entries[index].is_none(), "a worker that serves keeps its index");
        self.vacant.push(index);
    }

    /// Reports whether this worker serves calls. A paused worker does.
    pub(crate) fn serves(&self, worker: &Arc<Worker>) -> bool {
        self.entry(worker.index)
            .is_some_and(|entry| Arc::ptr_eq(&entry.worker, worker) && entry.drain == DrainReason::None)
    }

    /// Adds a worker that is ready and idle. [`Scheduler::next_for`] returns work for it.
    pub(crate) fn enlist(&mut self, worker: Arc<Worker>) {
        let index = worker.index;
        self.entries[index] = Some(WorkerEntry {
            places: worker.places(),
            worker,
            held: 0,
            nanos: 0,
            asking: Vec::new(),
            guests: Vec::new(),
            bound: BTreeMap::new(),
            condition: EntryCondition::Full,
            is_paused: false,
            drain: DrainReason::None,
            isolation: Isolation::None,
            listed: [false; 3],
            listed_asking: false,
        });
        self.relist(index);
    }

    /// Removes a worker, which takes no more calls. Returns the calls that were bound to it, for other workers to
    /// serve.
    pub(crate) fn retire(&mut self, index: usize) -> Vec<Call> {
        let Some(entry) = self.entries.get_mut(index).and_then(Option::take) else { return Vec::new() };
        self.askers.retain(|asker| *asker != index);
        self.bound -= entry.bound.len();
        entry.bound.into_values().collect()
    }

    /// Finds a worker for a new call, or a place in the queue.
    pub(crate) fn offer(&mut self, call: Call, placement: Placement, limit: QueueLimit) -> OfferResult {
        if !self.admits(&call) {
            return OfferResult::Closed(call);
        }
        match placement {
            Placement::Any => {}
            Placement::Rather(index) => {
                if self.has_free_place(index, &call) {
                    return OfferResult::Now(self.assign(index, call, false));
                }
            }
            Placement::Only(index) | Placement::OnlyNow(index) => {
                if self.has_free_place(index, &call) {
                    return OfferResult::Now(self.assign(index, call, false));
                }
                if call.key.is_nested() && self.lends(index) {
                    return OfferResult::Now(self.assign(index, call, true));
                }
                if matches!(placement, Placement::OnlyNow(_)) {
                    return OfferResult::Busy(call);
                }
                if limit == QueueLimit::Holds && self.depth() >= self.limit && !call.key.is_nested() {
                    let depth = self.depth();
                    return OfferResult::Saturated(call, depth);
                }
                if let Some(entry) = self.entries.get_mut(index).and_then(Option::as_mut) {
                    call.state.set_place(CallPlace::Queued(call.key));
                    entry.bound.insert(call.key, call);
                    self.bound += 1;
                    return OfferResult::Queued;
                }
            }
        }
        // Calls with an earlier key are served first, even if this call would fit and the earlier one does not.
        let first = self.first_not_isolated().is_none_or(|key| call.key < key);
        if first && let Some((index, guest)) = self.choose(&call) {
            return OfferResult::Now(self.assign(index, call, guest));
        }
        // A full queue never rejects a nested call: the calls that wait for it occupy workers and hold up the queue.
        if limit == QueueLimit::Holds && self.depth() >= self.limit && !call.key.is_nested() {
            let depth = self.depth();
            return OfferResult::Saturated(call, depth);
        }
        self.wait(call);
        OfferResult::Queued
    }

    /// Finds a worker for a call that its worker never started, or queues the call at its old position.
    ///
    /// Returns `OfferResult::Closed` for a call whose caller has gone away meanwhile.
    pub(crate) fn requeue(&mut self, call: Call) -> OfferResult {
        if !self.admits(&call) || call.state.is_abandoned() {
            return OfferResult::Closed(call);
        }
        if let Some((index, guest)) = self.choose(&call) {
            return OfferResult::Now(self.assign(index, call, guest));
        }
        self.wait(call);
        OfferResult::Queued
    }

    fn enqueue(&mut self, mut call: Call) {
        call.state.set_place(CallPlace::Queued(call.key));
        call.queued_at.get_or_insert_with(Instant::now);
        self.queue.insert(call.key, call);
    }

    /// Removes a waiting call.
    pub(crate) fn withdraw(&mut self, key: QueueKey) -> Option<Call> {
        // Groups come first: a carrier has the same key in the queue as the first call of its group.
        if let Some(call) = self.leave_group(key).or_else(|| self.queue.remove(&key)) {
            return Some(call);
        }
        if self.bound == 0 {
            return None;
        }
        let call = self.entries.iter_mut().flatten().find_map(|entry| entry.bound.remove(&key))?;
        self.bound -= 1;
        self.cancel_isolation(key);
        Some(call)
    }

    /// Records that a call has left its worker.
    pub(crate) fn release(&mut self, worker: &Worker, load: Load) {
        // A retired worker has no entry, and its index may belong to another worker.
        let Some(entry) = self.own_entry(worker) else { return };
        match load.kind {
            LoadKind::Own => {
                entry.held -= 1;
                entry.nanos -= u64::from(load.nanos);
                entry.isolation.is_over();
            }
            LoadKind::Guest(call) => entry.guests.retain(|guest| *guest != call),
        }
        self.list_asker(worker.index);
        self.relist(worker.index);
    }

    /// Sets how many calls a worker gets at a time from now on.
    pub(crate) fn set_places(&mut self, worker: &Worker, places: usize) {
        if let Some(entry) = self.own_entry(worker) {
            entry.places = places;
            self.relist(worker.index);
        }
    }

    fn own_entry(&mut self, worker: &Worker) -> Option<&mut WorkerEntry> {
        self.entries
            .get_mut(worker.index)?
            .as_mut()
            .filter(|entry| std::ptr::eq(&raw const *entry.worker, worker))
    }

    /// Returns the next call for a worker that may have a free place.
    pub(crate) fn next_for(&mut self, index: usize) -> Option<Call> {
        let entry = self.entries.get(index)?.as_ref()?;
        if let Isolation::Awaited(key) = entry.isolation
            && entry.is_free()
        {
            return self.next_isolated(index, key);
        }
        let own = entry.bound.first_key_value();
        let is_free = entry.is_free();
        let any = self.queue.iter().find(|(_, call)| !call.alone || is_free);
        let (call, bound) = match (own, any) {
            (None, None) => return None,
            (None, Some((_, call))) => (call, false),
            (Some((mine, _)), Some((key, call))) if key < mine => (call, false),
            (Some((_, call)), _) => (call, true),
        };
        let guest = match self.room(entry, call) {
            FreePlace::None => return None,
            FreePlace::Own => false,
            FreePlace::Lent => true,
        };
        let call = if bound {
            self.bound -= 1;
            self.entries[index].as_mut()?.bound.pop_first()?.1
        } else if call.is_empty_carrier() {
            let carrier = self.take_carrier(call.key)?;
            return Some(self.load(index, carrier));
        } else {
            let key = call.key;
            self.queue.remove(&key)?
        };
        Some(self.assign(index, call, guest))
    }

    pub(crate) fn admits(&self, call: &Call) -> bool {
        match self.gate {
            QueueGate::Open => true,
            QueueGate::Closing => call.key.is_nested(),
            QueueGate::Shut => false,
        }
    }

    /// Stops taking calls, except nested ones. Returns the calls that wait.
    pub(crate) fn close(&mut self) -> Vec<Call> {
        self.gate = QueueGate::Closing;
        self.drain()
    }

    /// Stops taking any calls. Returns the calls that wait.
    pub(crate) fn shut(&mut self) -> Vec<Call> {
        self.gate = QueueGate::Shut;
        self.drain()
    }

    /// Reports whether the scheduler is closed and no call waits.
    pub(crate) fn is_drained(&self) -> bool {
        self.gate != QueueGate::Open && self.depth() == 0
    }

    /// Removes and returns all waiting calls.
    pub(crate) fn drain(&mut self) -> Vec<Call> {
        let queued = std::mem::take(&mut self.queue).into_values();
        let mut calls: Vec<Call> = queued.filter(|call| !call.is_empty_carrier()).collect();
        calls.extend(self.batches.drain());
        for entry in self.entries.iter_mut().flatten() {
            calls.extend(std::mem::take(&mut entry.bound).into_values());
        }
        self.bound = 0;
        calls
    }

    pub(crate) fn choose(&mut self, call: &Call) -> Option<(usize, bool)> {
        let conditions = [EntryCondition::Idle, EntryCondition::Partial, EntryCondition::Ahead];
        // A call that must run alone fits only an idle worker.
        let looked_at = if call.alone { 1 } else { conditions.len() };
        for (list, condition) in conditions.into_iter().enumerate().take(looked_at) {
            // Idle workers are used last in, first out: the others may go to sleep, and the caches of this one are
            // warm.
            while let Some(index) =
                if list == 0 { self.lists[0].pop_back() } else { self.lists[list].pop_front() }
            {
                let Some(entry) = self.entries[index].as_mut() else { continue };
                entry.listed[list] = false;
                if entry.condition != condition {
                    continue;
                }
                let entry = self.entries[index].as_ref()?;
                if matches!(self.room(entry, call), FreePlace::Own) {
                    return Some((index, false));
                }
                if list == 2 {
                    // No room for this call. The worker is listed again when it answers.
                    self.entries[index].as_mut()?.condition = EntryCondition::Full;
                }
            }
        }
        if call.key.is_nested() {
            while let Some(index) = self.askers.pop_front() {
                let Some(entry) = self.entries[index].as_mut() else { continue };
                entry.listed_asking = false;
                if self.lends(index) {
                    return Some((index, true));
                }
            }
        }
        None
    }

    fn has_free_place(&self, index: usize, call: &Call) -> bool {
        let is_free =
            |entry: &WorkerEntry| entry.held < entry.places && entry.takes_calls() && entry.is_fit_for(call);
        self.entry(index).is_some_and(is_free)
    }

    fn room(&self, entry: &WorkerEntry, call: &Call) -> FreePlace {
        let is_fit = entry.is_fit_for(call);
        if entry.held < entry.places && entry.takes_calls() && is_fit {
            return FreePlace::Own;
        }
        // Even if the worker takes no other calls: the call that lends its place waits for this one.
        if call.key.is_nested() && self.lends(entry.worker.index) {
            return FreePlace::Lent;
        }
        if !entry.takes_calls() {
            return FreePlace::None;
        }
        let waits = entry.bound.first_key_value().is_some_and(|(key, _)| *key < call.key);
        let ahead =
            entry.worker.tells_what_it_started && entry.held < MAX_HELD && entry.asking.is_empty() && !waits;
        if ahead && is_fit && !call.alone && may_wait_at_worker(entry.nanos, call.nanos()) {
            FreePlace::Own
        } else {
            FreePlace::None
        }
    }

    pub(crate) fn assign(&mut self, index: usize, mut call: Call, nested: bool) -> Call {
        let Some(entry) = self.entries[index].as_mut() else { return call };
        let kind = if nested { LoadKind::Guest(call.id) } else { LoadKind::Own };
        let load = Load { nanos: call.nanos(), kind };
        match kind {
            LoadKind::Own => {
                entry.held += 1;
                entry.nanos += u64::from(load.nanos);
                if call.alone {
                    entry.isolation = Isolation::Running;
                }
            }
            LoadKind::Guest(call) => entry.guests.push(call),
        }
        let worker = Arc::clone(&entry.worker);
        call.state.set_place(CallPlace::With(worker.clone()));
        call.lease = Some(worker.lease(load));
        self.list_asker(index);
        self.relist(index);
        call
    }

    fn relist(&mut self, index: usize) {
        let Some(entry) = self.entries[index].as_mut() else { return };
        entry.condition = match entry.held {
            _ if !entry.takes_calls() || entry.isolation != Isolation::None => EntryCondition::Full,
            0 => EntryCondition::Idle,
            held if held < entry.places => EntryCondition::Partial,
            held if held < MAX_HELD && entry.worker.tells_what_it_started => EntryCondition::Ahead,
            _ => EntryCondition::Full,
        };
        let list = match entry.condition {
            EntryCondition::Idle => 0,
            EntryCondition::Partial => 1,
            EntryCondition::Ahead => 2,
            EntryCondition::Full => return,
        };
        if !std::mem::replace(&mut entry.listed[list], true) {
            self.lists[list].push_back(index);
        }
    }
}

enum FreePlace {
    Own,
    /// The place of a call that waits for a tool.
    Lent,
    None,
}
