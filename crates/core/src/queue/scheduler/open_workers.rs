//! The places that callers take without the scheduler's lock.
//!
//! Most calls fit any worker, find one with room, and wait for nothing. They take a place here, by a compare-and-swap
//! on an atomic word of the worker ([`WorkerPlaces`]). Two sets of bits say which workers to try first: those without
//! calls, and those with a free place. A bit is only a hint: a caller checks the worker before it takes a place.
//!
//! Whatever else a call needs (an order among waiting calls, a certain worker, a worker alone) the scheduler decides
//! under its lock, with the same words. Two rules keep callers and scheduler apart:
//!
//! - **While calls wait, nobody takes a place past them**: `waiting` is not 0, and callers go to the scheduler. The
//!   scheduler first raises `waiting`, then looks for a place once more, then queues. A thread that frees a place reads
//!   `waiting` afterwards. So one of the two always notices the free place.
//! - **A worker that callers must not use is closed**: its marks are removed, by the scheduler, under its lock. A
//!   thread that frees a place of a closed worker calls the scheduler.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arc_swap::ArcSwap;

use crate::sharded::{ShardRef, ShardedArc};
use crate::worker::{FreedPlace, Worker, WorkerPlaces};

/// The bit of [`OpenWorkers::waiting`] that is set while the scheduler takes no more calls, or only some.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// How many workers are tried for a call that may wait at any of them.
const TRIED_AHEAD: usize = 16;

/// The workers of a pool, as callers without the scheduler's lock see them.
#[derive(Debug)]
pub(crate) struct OpenWorkers<W = Worker> {
    /// The number of waiting calls, and [`CLOSED`].
    waiting: AtomicUsize,
    table: ArcSwap<OpenWorkerTable<W>>,
}

/// The workers at one moment. A worker that comes or goes makes another table.
#[derive(Debug)]
struct OpenWorkerTable<W> {
    /// The workers by their indices.
    workers: Vec<Option<ShardedArc<W>>>,
    /// The indices that are in use.
    indices: Vec<usize>,
    /// Workers without calls.
    idle: BitSet,
    /// Workers that may run several calls at the same time, and have a free place.
    free: BitSet,
}

/// A place that a call has at a worker.
#[derive(Debug)]
pub(crate) struct TakenPlace<W = Worker> {
    pub(crate) worker: ShardRef<W>,
    /// How many calls the worker has now.
    pub(crate) beside: usize,
}

/// The result of [`OpenWorkers::take`].
#[derive(Debug)]
pub(crate) struct Taken<W = Worker> {
    /// `None` sends the caller to the scheduler.
    pub(crate) place: Option<TakenPlace<W>>,
    /// A worker that was not listed for a moment, although it had a free place. A call may have been queued in that
    /// moment, and the worker must be offered to it.
    pub(crate) unlisted: Option<usize>,
}

impl<W> OpenWorkerTable<W> {
    fn new(workers: Vec<Option<ShardedArc<W>>>) -> Self {
        let indices = (0..workers.len()).filter(|index| workers[*index].is_some()).collect();
        let (idle, free) = (BitSet::new(workers.len()), BitSet::new(workers.len()));
        Self { workers, indices, idle, free }
    }
}

impl<W> Default for OpenWorkers<W> {
    fn default() -> Self {
        Self { waiting: AtomicUsize::new(0), table: ArcSwap::from_pointee(OpenWorkerTable::new(Vec::new())) }
    }
}

impl<W: AsRef<WorkerPlaces>> OpenWorkers<W> {
    /// Takes a place for a call that any worker may serve, and that takes about `nanos` nanoseconds. There is none if
    /// calls wait or all places are taken. If [`OpenWorkers::is_closed`] holds afterwards, the place must be given back.
    pub(crate) fn take(&self, nanos: u32) -> Taken<W> {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            self.choose(nanos)
        } else {
            Taken { place: None, unlisted: None }
        }
    }

    /// Takes the best place for a call, whether or not other calls wait.
    pub(crate) fn choose(&self, nanos: u32) -> Taken<W> {
        let (table, mut unlisted) = (self.table.load(), None);
        let place = table
            .take_idle(&mut unlisted)
            .or_else(|| table.take_free(&mut unlisted))
            .or_else(|| table.take_ahead(nanos));
        Taken { place, unlisted }
    }

    /// Lists a worker that has lost a call. Returns false if the scheduler must look at the worker, too.
    pub(crate) fn note_freed(&self, index: usize, worker: &W, freed: FreedPlace) -> bool {
        if !freed.is_open {
            return false;
        }
        if freed.left == 0 || freed.left + 1 == worker.as_ref().places() {
            self.list(index, worker);
        }
        widen_window();
        self.waiting.load(Ordering::SeqCst) == 0
    }

    /// Lists a worker that may have free places.
    pub(crate) fn list(&self, index: usize, worker: &W) {
        let mut table = self.table.load();
        loop {
            table.list(index, worker.as_ref());
            // A writer publishes a new table before it fills it. So either the writer lists this worker in the new
            // table, or this loop does.
            let newest = self.table.load();
            if Arc::ptr_eq(&table, &newest) {
                return;
            }
            table = newest;
        }
    }

    /// Replaces the worker at an index.
    pub(crate) fn set_worker(&self, index: usize, worker: Option<ShardedArc<W>>) {
        let mut workers = self.table.load().workers.clone();
        if workers.len() <= index {
            workers.resize_with(index + 1, || None);
        }
        workers[index] = worker;
        self.table.store(Arc::new(OpenWorkerTable::new(workers)));
        let table = self.table.load();
        for index in &table.indices {
            if let Some(worker) = &table.workers[*index] {
                table.list(*index, (***worker).as_ref());
            }
        }
    }

    /// Sets how many calls wait, and whether the scheduler takes no more calls, or only some.
    pub(crate) fn set_waiting(&self, waiting: usize, is_closed: bool) {
        let word = waiting | if is_closed { CLOSED } else { 0 };
        if self.waiting.load(Ordering::Relaxed) != word {
            self.waiting.store(word, Ordering::SeqCst);
        }
    }

    /// Sends callers and freed places to the scheduler, because a call is about to wait.
    pub(crate) fn announce(&self) {
        self.waiting.fetch_or(1, Ordering::SeqCst);
    }

    /// Reports whether the scheduler takes no more calls, or only some.
    pub(crate) fn is_closed(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) & CLOSED != 0
    }
}

impl<W: AsRef<WorkerPlaces>> OpenWorkerTable<W> {
    fn list(&self, index: usize, worker: &WorkerPlaces) {
        let places = worker.places();
        if worker.has_open_place(1) {
            self.idle.insert(index);
        }
        if places > 1 && worker.has_open_place(places) {
            self.free.insert(index);
        }
    }

    /// Takes a worker without calls, the one with the lowest index: the others may go to sleep, and the caches of this
    /// one are warm.
    fn take_idle(&self, unlisted: &mut Option<usize>) -> Option<TakenPlace<W>> {
        self.idle.iter_from(0).find_map(|index| self.take_at(index, |_| 1, &self.idle, unlisted))
    }

    /// Takes a free place beside other calls, at any worker that has one.
    fn take_free(&self, unlisted: &mut Option<usize>) -> Option<TakenPlace<W>> {
        let start = if self.free.is_empty() { 0 } else { fastrand::usize(..self.workers.len()) };
        let places = WorkerPlaces::places;
        self.free.iter_from(start).find_map(|index| self.take_at(index, places, &self.free, unlisted))
    }

    fn take_at(
        &self,
        index: usize,
        limit: impl Fn(&WorkerPlaces) -> usize,
        set: &BitSet,
        unlisted: &mut Option<usize>,
    ) -> Option<TakenPlace<W>> {
        let worker = self.workers[index].as_ref()?;
        let places: &WorkerPlaces = (***worker).as_ref();
        let taken = places.take_open(limit(places));
        if taken.is_none_or(|held| held >= limit(places)) {
            widen_window();
            set.remove(index);
            widen_window();
            if places.has_open_place(limit(places)) {
                // The place became free again before its bit was removed.
                set.insert(index);
                *unlisted = Some(index);
            }
        }
        Some(TakenPlace { worker: worker.own(), beside: taken? })
    }

    /// Sends a short call ahead to a busy worker: to the one of two that has less work, or to another one if both have
    /// enough.
    fn take_ahead(&self, nanos: u32) -> Option<TakenPlace<W>> {
        let count = self.indices.len();
        if nanos == u32::MAX || count == 0 {
            return None;
        }
        let start = fastrand::usize(..count);
        let number = |number: usize| self.workers[self.indices[(start + number) % count]].as_ref();
        let work = |worker: &ShardedArc<W>| (***worker).as_ref().nanos();
        let swapped = number(1).map(work) < number(0).map(work);
        let order = [usize::from(swapped), usize::from(!swapped)].into_iter().chain(2..TRIED_AHEAD);
        order.take(count).find_map(|tried| {
            let worker = number(tried)?;
            let beside = (***worker).as_ref().take_ahead(nanos)?;
            Some(TakenPlace { worker: worker.own(), beside })
        })
    }
}

/// Gives other threads a chance between two steps that they must not fall between, so that the tests meet every order.
#[inline]
fn widen_window() {
    // Yielding each time would take minutes on a busy machine.
    #[cfg(test)]
    match fastrand::u32(..64) {
        0 => std::thread::yield_now(),
        turns => (0..turns).for_each(|_| std::hint::spin_loop()),
    }
}

/// A set of small numbers that many threads change at the same time.
#[derive(Debug)]
struct BitSet(Box<[AtomicU64]>);

impl BitSet {
    fn new(most: usize) -> Self {
        Self((0..most.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    fn insert(&self, number: usize) {
        let Some(word) = self.0.get(number / 64) else { return };
        let bit = 1 << (number % 64);
        if word.load(Ordering::SeqCst) & bit == 0 {
            word.fetch_or(bit, Ordering::SeqCst);
        }
    }

    fn remove(&self, number: usize) {
        self.0[number / 64].fetch_and(!(1 << (number % 64)), Ordering::SeqCst);
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| word.load(Ordering::SeqCst) == 0)
    }

    /// Iterates over the numbers, those of the word of `start` first.
    fn iter_from(&self, start: usize) -> impl Iterator<Item = usize> {
        let (first, words) = (start / 64, self.0.len());
        (0..words).flat_map(move |number| {
            let number = (first + number) % words;
            let skipped = if number == first { start % 64 } else { 0 };
            let word = self.0[number].load(Ordering::SeqCst).rotate_right(skipped as u32);
            BitIter(word).map(move |bit| number * 64 + (bit + skipped) % 64)
        })
    }
}

/// The numbers of the bits of a word, the lowest first.
struct BitIter(u64);

impl Iterator for BitIter {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let bit = self.0.trailing_zeros();
        self.0 &= self.0.checked_sub(1)?;
        Some(bit as usize)
    }
}

#[cfg(test)]
mod tests;
