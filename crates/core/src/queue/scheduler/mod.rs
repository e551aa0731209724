//! Decides which worker serves which call: the queue, the places at the workers, and the choice between workers.
//!
//! Pure bookkeeping: no I/O, no timer, nothing that waits. Calls that any worker may serve take their places without
//! the scheduler's lock while no call waits ([`open_workers`]). The rest is under the lock. Each step of a call costs the
//! same whatever the number of workers; queueing a call costs the logarithm of the queue's length.

mod draining;
mod gate;
mod isolated_calls;
mod nested_calls;
pub(crate) mod open_workers;
mod paused_workers;

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use super::batch::BatchQueue;
use super::{OfferResult, Placement, QueueLimit};
use crate::call::QueueKey;
use crate::call::estimate::{MAX_HELD, may_wait_at_worker};
use crate::call::progress::CallPlace;
use crate::call::{Call, CallId};
use crate::sharded::{ShardRef, ShardedArc};
use crate::worker::{OpenPlaces, Worker, WorkerPlaces};
use draining::DrainReason;
use gate::QueueGate;
use isolated_calls::Isolation;
use open_workers::OpenWorkers;

#[derive(Debug)]
struct WorkerEntry {
    worker: ShardedArc<Worker>,
    /// Calls of this worker that wait for tools of the host, each with the number of tools.
    asking: Vec<(CallId, usize)>,
    /// Nested calls that are served in lent places, the latest last.
    guests: Vec<CallId>,
    /// Calls that only this worker may serve.
    bound: BTreeMap<QueueKey, Call>,
    /// Whether the worker's process is stopped. A stopped worker gets no calls.
    is_paused: bool,
    drain: DrainReason,
    isolation: Isolation,
    listed_asking: bool,
}

/// The most calls that a worker is given at a time.
const MOST_FED: usize = 64;

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
    /// The places of retired workers that still have calls. Not the workers: dropping one under the lock may lead back
    /// here.
    leaving: Vec<Arc<WorkerPlaces>>,
    /// Entries with calls that wait for a tool. Items may be out of date.
    askers: VecDeque<usize>,
    gate: QueueGate,
    open: Arc<OpenWorkers>,
}

/// The scheduler, locked. Releasing the lock tells callers without it whether calls wait.
pub(crate) struct LockedScheduler<'a>(pub(crate) MutexGuard<'a, Scheduler>);

impl Deref for LockedScheduler<'_> {
    type Target = Scheduler;

    fn deref(&self) -> &Scheduler {
        &self.0
    }
}

impl DerefMut for LockedScheduler<'_> {
    fn deref_mut(&mut self) -> &mut Scheduler {
        &mut self.0
    }
}

impl Drop for LockedScheduler<'_> {
    fn drop(&mut self) {
        self.0.publish();
    }
}

impl WorkerEntry {
    fn takes_calls(&self) -> bool {
        !self.is_paused && self.drain == DrainReason::None
    }

    /// Returns what callers may take without the scheduler's lock.
    fn open_places(&self) -> OpenPlaces {
        if !self.takes_calls() || self.isolation != Isolation::None || !self.bound.is_empty() {
            OpenPlaces::None
        } else if self.worker.tells_what_it_started && self.asking.is_empty() {
            OpenPlaces::FreeAndAhead
        } else {
            OpenPlaces::Free
        }
    }
}

impl Scheduler {
    pub(crate) fn new(limit: usize, open: Arc<OpenWorkers>) -> Self {
        Self {
            limit,
            queue: BTreeMap::new(),
            batches: BatchQueue::default(),
            bound: 0,
            entries: Vec::new(),
            vacant: Vec::new(),
            leaving: Vec::new(),
            askers: VecDeque::new(),
            gate: QueueGate::Open,
            open,
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

    /// Counts the calls that workers have, even those that leave. Each call of a batch counts.
    pub(crate) fn in_flight(&self) -> usize {
        self.all_places().map(WorkerPlaces::all).sum()
    }

    /// Publishes, for callers that do not hold the lock, whether calls wait and whether the scheduler accepts more.
    fn publish(&self) {
        self.open.set_waiting(self.queue.len(), self.gate != QueueGate::Open);
    }

    /// Returns a worker for a call to hold.
    pub(super) fn worker(&self, entry: usize) -> Option<ShardRef<Worker>> {
        self.entry(entry).map(|entry| entry.worker.own())
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
    pub(crate) fn enlist(&mut self, worker: &Arc<Worker>) {
        let (index, worker) = (worker.index, ShardedArc::new(worker));
        self.open.set_worker(index, Some(worker.clone()));
        self.entries[index] = Some(WorkerEntry {
            worker,
            asking: Vec::new(),
            guests: Vec::new(),
            bound: BTreeMap::new(),
            is_paused: false,
            drain: DrainReason::None,
            isolation: Isolation::None,
            listed_asking: false,
        });
        self.reopen(index);
    }

    /// Sets what callers may take from a worker without the lock, after something about the worker has changed.
    fn reopen(&mut self, index: usize) {
        if let Some(entry) = self.entry(index) {
            entry.worker.places.open(entry.open_places());
            self.open.list(index, &entry.worker);
        }
    }

    /// Removes a worker, which takes no more calls. Returns the calls that were bound to it, for other workers to
    /// serve.
    pub(crate) fn retire(&mut self, index: usize) -> Vec<Call> {
        let Some(entry) = self.entries.get_mut(index).and_then(Option::take) else { return Vec::new() };
        entry.worker.places.open(OpenPlaces::None);
        self.open.set_worker(index, None);
        self.leaving.retain(|places| places.all() > 0);
        self.leaving.push(Arc::clone(&entry.worker.places));
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
                if let Some(beside) = self.take_free(index, &call) {
                    return OfferResult::Now(self.assign(index, call, Some(beside)));
                }
            }
            Placement::Only(index) | Placement::OnlyNow(index) => {
                if let Some(beside) = self.take_free(index, &call) {
                    return OfferResult::Now(self.assign(index, call, Some(beside)));
                }
                if call.key.is_nested() && self.lends(index) {
                    return OfferResult::Now(self.assign(index, call, None));
                }
                if matches!(placement, Placement::OnlyNow(_)) {
                    return OfferResult::Busy(call);
                }
                if limit == QueueLimit::Holds && self.depth() >= self.limit && !call.key.is_nested() {
                    let depth = self.depth();
                    return OfferResult::Saturated(call, depth);
                }
                if self.entry(index).is_some() {
                    return self.bind(index, call);
                }
            }
        }
        // Calls with an earlier key are served first, even if this call would fit and the earlier one does not.
        let first = self.first_not_isolated().is_none_or(|key| call.key < key);
        if first && let Some((index, beside)) = self.choose_or_announce(&call) {
            return OfferResult::Now(self.assign(index, call, beside));
        }
        // A full queue never rejects a nested call: the calls that wait for it occupy workers and hold up the queue.
        if limit == QueueLimit::Holds && self.depth() >= self.limit && !call.key.is_nested() {
            let depth = self.depth();
            return OfferResult::Saturated(call, depth);
        }
        self.wait(call)
    }

    /// Lets a call wait for a worker that has no free place. A place that has become free meanwhile is taken at once.
    fn bind(&mut self, index: usize, call: Call) -> OfferResult {
        let Some(entry) = self.entries[index].as_mut() else { return OfferResult::Closed(call) };
        let key = call.key;
        call.state.set_place(CallPlace::Queued(key));
        entry.bound.insert(key, call);
        self.bound += 1;
        // This closes the worker, so every thread that frees one of its places from now on calls the scheduler.
        self.reopen(index);
        match self.next_for(index) {
            Some(call) => OfferResult::Now(call),
            None => OfferResult::Queued,
        }
    }

    /// Finds a worker for a call that its worker never started, or queues the call at its old position.
    ///
    /// Returns `OfferResult::Closed` for a call whose caller has gone away meanwhile.
    pub(crate) fn requeue(&mut self, call: Call) -> OfferResult {
        if !self.admits(&call) || call.state.is_abandoned() {
            return OfferResult::Closed(call);
        }
        if let Some((index, beside)) = self.choose_or_announce(&call) {
            return OfferResult::Now(self.assign(index, call, beside));
        }
        self.wait(call)
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
        let bound = |entry: &mut Option<WorkerEntry>| entry.as_mut()?.bound.remove(&key);
        let found =
            self.entries.iter_mut().enumerate().find_map(|(index, entry)| Some((index, bound(entry)?)));
        let (index, call) = found?;
        self.bound -= 1;
        self.cancel_isolation(key);
        self.reopen(index);
        Some(call)
    }

    /// Records that calls have left a worker. Their places are free already.
    pub(crate) fn note_freed(&mut self, index: usize) {
        let Some(entry) = self.entries.get_mut(index).and_then(Option::as_mut) else { return };
        // The places were freed without the lock. If a trial has one of them by now, that trial goes on.
        if entry.worker.places.held() == 0 {
            entry.isolation.is_over();
        }
        self.list_asker(index);
        self.reopen(index);
    }

    /// Records that a nested call has left the place that was lent to it.
    pub(crate) fn release_guest(&mut self, worker: &Worker, call: CallId) {
        // A retired worker has no entry, and its index may belong to another worker.
        if let Some(entry) = self.own_entry(worker) {
            entry.guests.retain(|guest| *guest != call);
            entry.worker.places.set_guests(entry.guests.len());
        }
    }

    /// Returns the next calls for a worker that may have free places, a few at a time.
    pub(crate) fn next_calls(&mut self, index: usize) -> Vec<Call> {
        std::iter::from_fn(|| self.next_for(index)).take(MOST_FED).collect()
    }

    /// Sets how many calls a worker gets at a time from now on.
    pub(crate) fn set_places(&mut self, worker: &Worker, places: usize) {
        worker.places.set_places(places);
        self.reopen(worker.index);
    }

    fn own_entry(&mut self, worker: &Worker) -> Option<&mut WorkerEntry> {
        self.entries
            .get_mut(worker.index)?
            .as_mut()
            .filter(|entry| std::ptr::eq(&raw const **entry.worker, worker))
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
        let (key, is_alone, is_carrier) = (call.key, call.alone, call.is_empty_carrier());
        let beside = match self.take_room(entry, call) {
            // A trial also closes the worker.
            Room::None if is_alone && self.take_alone_at(index) => Some(1),
            Room::None => return None,
            Room::Own(beside) => Some(beside),
            Room::Lent => None,
        };
        let call = if bound {
            self.bound -= 1;
            self.entries[index].as_mut()?.bound.pop_first()?.1
        } else if is_carrier {
            let carrier = self.take_carrier(key)?;
            return Some(self.load(index, carrier, beside));
        } else {
            self.queue.remove(&key)?
        };
        let call = self.assign(index, call, beside);
        if bound {
            self.reopen(index);
        }
        Some(call)
    }

    fn all_places(&self) -> impl Iterator<Item = &WorkerPlaces> {
        let serving = self.entries.iter().flatten().map(|entry| &*entry.worker.places);
        serving.chain(self.leaving.iter().map(|places| &**places))
    }

    /// Takes a place for a call like [`Scheduler::choose`]. If there is none, the call is about to wait: places that
    /// become free from now on are offered to it.
    pub(crate) fn choose_or_announce(&mut self, call: &Call) -> Option<(usize, Option<usize>)> {
        self.choose(call).or_else(|| {
            self.open.announce();
            self.choose(call)
        })
    }

    /// Takes a place for a call at the best worker. Returns the index of the worker and the number of its calls, or no
    /// number if the place is lent by a call that waits for a tool.
    pub(crate) fn choose(&mut self, call: &Call) -> Option<(usize, Option<usize>)> {
        if call.alone {
            return self.take_alone().map(|index| (index, Some(1)));
        }
        if let Some(taken) = self.open.choose(call.nanos()).place {
            return Some((taken.worker.index, Some(taken.beside)));
        }
        if call.key.is_nested() {
            while let Some(index) = self.askers.pop_front() {
                let Some(entry) = self.entries[index].as_mut() else { continue };
                entry.listed_asking = false;
                if self.lends(index) {
                    return Some((index, None));
                }
            }
        }
        None
    }

    /// Takes a free place at this worker, if the worker may serve the call.
    fn take_free(&mut self, index: usize, call: &Call) -> Option<usize> {
        let entry = self.entry(index)?;
        if call.alone {
            return self.take_alone_at(index).then_some(1);
        }
        let may = entry.takes_calls() && entry.isolation == Isolation::None;
        if may { entry.worker.places.take(entry.worker.places.places()) } else { None }
    }

    /// Takes a place for a call at this worker: a free one, one that is lent, or one behind the worker's current calls.
    fn take_room(&self, entry: &WorkerEntry, call: &Call) -> Room {
        let places = &entry.worker.places;
        let may = entry.takes_calls() && entry.isolation == Isolation::None && !call.alone;
        if may && let Some(beside) = places.take(places.places()) {
            return Room::Own(beside);
        }
        // Even if the worker takes no other calls: the call that lends its place waits for this one.
        if call.key.is_nested() && self.lends(entry.worker.index) {
            return Room::Lent;
        }
        let waits = entry.bound.first_key_value().is_some_and(|(key, _)| *key < call.key);
        let ahead = may && entry.worker.tells_what_it_started && entry.asking.is_empty() && !waits;
        if ahead
            && may_wait_at_worker(places.nanos(), call.nanos())
            && let Some(beside) = places.take(MAX_HELD)
        {
            return Room::Own(beside);
        }
        Room::None
    }

    /// Gives a call the place that was taken for it, or a lent one.
    pub(crate) fn assign(&mut self, index: usize, call: Call, beside: Option<usize>) -> Call {
        let Some(entry) = self.entries[index].as_mut() else { return call };
        let worker = entry.worker.own();
        let Some(beside) = beside else {
            entry.guests.push(call.id);
            worker.places.set_guests(entry.guests.len());
            self.list_asker(index);
            return worker.seat_guest(call);
        };
        worker.seat(call, beside)
    }
}

enum Room {
    /// A place was taken. The field is the number of calls that the worker has now.
    Own(usize),
    /// The place of a call that waits for a tool.
    Lent,
    None,
}
