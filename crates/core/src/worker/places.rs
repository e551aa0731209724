//! The places of a worker: how many calls it has, and whether it may get more without the queue's lock.
//!
//! One atomic word has the number of calls and two marks, so that taking a place and removing the permission to take
//! one are ordered: once a mark is removed, the number includes every call that took a place under it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::Worker;
use crate::call::estimate::{MAX_HELD, may_wait_at_worker};

/// What the queue allows callers to take from a worker without its lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpenPlaces {
    None,
    /// The places for calls that run at the same time.
    Free,
    /// Short calls may also wait at the worker for its current ones.
    FreeAndAhead,
}

impl OpenPlaces {
    fn marks(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Free => FREE,
            Self::FreeAndAhead => FREE | AHEAD,
        }
    }
}

const FREE: u64 = 1 << 62;
const AHEAD: u64 = 1 << 63;
const COUNT: u64 = FREE - 1;

/// The places of a worker.
///
/// Each call changes the first two words. They have a cache line of their own, together with what else each call counts.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct WorkerPlaces {
    /// The number of calls with a place of their own, and the marks.
    word: AtomicU64,
    /// The estimated work of these calls, in nanoseconds.
    nanos: AtomicU64,
    /// The number of calls that the worker was given so far. A batch counts as one.
    pub(super) given: AtomicU64,
    /// How many calls the worker may run at the same time.
    places: AtomicUsize,
    /// The number of nested calls that are served in the places of others.
    guests: AtomicUsize,
    /// The number of calls beyond the first of each batch.
    batched: AtomicUsize,
}

/// A worker that has just lost a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FreedPlace {
    /// The number of calls that the worker still has.
    pub(crate) left: usize,
    /// Whether callers may take the place without the queue's lock.
    pub(crate) is_open: bool,
}

impl WorkerPlaces {
    /// Creates the places of a worker that gets no calls yet.
    pub(crate) fn new(places: usize) -> Self {
        Self {
            word: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
            given: AtomicU64::new(0),
            places: AtomicUsize::new(places),
            guests: AtomicUsize::new(0),
            batched: AtomicUsize::new(0),
        }
    }

    /// Returns the number of calls with a place of their own.
    pub(crate) fn held(&self) -> usize {
        (self.word.load(Ordering::SeqCst) & COUNT) as usize
    }

    /// Returns how many calls the worker has. A batch counts as one.
    pub(crate) fn calls(&self) -> usize {
        self.held() + self.guests.load(Ordering::SeqCst)
    }

    /// Returns how many calls the worker has, counting each call of a batch.
    pub(crate) fn all(&self) -> usize {
        self.calls() + self.batched.load(Ordering::Relaxed)
    }

    /// Returns the estimated work of the calls, in nanoseconds.
    pub(crate) fn nanos(&self) -> u64 {
        self.nanos.load(Ordering::Relaxed)
    }

    /// Returns how many calls the worker may run at the same time.
    pub(crate) fn places(&self) -> usize {
        self.places.load(Ordering::Relaxed)
    }

    /// Sets how many calls the worker may run at the same time.
    pub(crate) fn set_places(&self, places: usize) {
        self.places.store(places, Ordering::SeqCst);
    }

    /// Sets what callers may take without the queue's lock.
    pub(crate) fn open(&self, open: OpenPlaces) {
        let marks = open.marks();
        let replace = |word: u64| (word & !COUNT != marks).then_some(word & COUNT | marks);
        let _ = self.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, replace);
    }

    /// Reports whether callers may take a place that makes the worker run fewer than `limit` calls.
    pub(crate) fn has_open_place(&self, limit: usize) -> bool {
        let word = self.word.load(Ordering::SeqCst);
        word & FREE != 0 && ((word & COUNT) as usize) < limit
    }

    /// Takes a place if the worker is open and has fewer than `limit` calls. Returns how many it has then.
    pub(crate) fn take_open(&self, limit: usize) -> Option<usize> {
        self.take_marked(FREE, limit)
    }

    /// Takes a place for a short call that waits for the worker's current calls.
    pub(crate) fn take_ahead(&self, nanos: u32) -> Option<usize> {
        if !may_wait_at_worker(self.nanos(), nanos) {
            return None;
        }
        self.take_marked(FREE | AHEAD, MAX_HELD)
    }

    /// Takes a place if the worker has fewer than `limit` calls. The queue, under its lock, knows that the call may have
    /// it.
    pub(crate) fn take(&self, limit: usize) -> Option<usize> {
        self.take_marked(0, limit)
    }

    fn take_marked(&self, marks: u64, limit: usize) -> Option<usize> {
        let more = |word: u64| {
            let may = word & marks == marks && ((word & COUNT) as usize) < limit;
            may.then_some(word + 1)
        };
        let before = self.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok()?;
        Some((before & COUNT) as usize + 1)
    }

    /// Counts the work of a call that has just got its place.
    pub(crate) fn add_work(&self, nanos: u32) {
        self.nanos.fetch_add(nanos.into(), Ordering::Relaxed);
    }

    /// Gives a place back.
    pub(crate) fn free(&self, nanos: u32) -> FreedPlace {
        self.nanos.fetch_sub(nanos.into(), Ordering::Relaxed);
        let before = self.word.fetch_sub(1, Ordering::SeqCst);
        FreedPlace { left: (before & COUNT) as usize - 1, is_open: before & FREE != 0 }
    }

    /// Sets the number of nested calls that are served in the places of others.
    pub(crate) fn set_guests(&self, guests: usize) {
        self.guests.store(guests, Ordering::SeqCst);
    }
}

impl AsRef<WorkerPlaces> for Worker {
    fn as_ref(&self) -> &WorkerPlaces {
        &self.places
    }
}

impl Worker {
    /// Wakes the tasks that wait for calls to leave the worker.
    pub(super) fn note_put_down(&self) {
        if self.watched.load(Ordering::SeqCst) {
            self.put_down.notify_waiters();
        }
    }

    /// Counts the calls beyond the first of a batch that was given to the worker.
    pub(super) fn take_batched(&self, beside: usize) {
        self.places.batched.fetch_add(beside, Ordering::Relaxed);
    }

    /// Records that calls beyond the first of a batch have left the worker.
    pub(super) fn put_batched_down(&self, beside: usize) {
        self.places.batched.fetch_sub(beside, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_worker_gives_out_no_places_and_still_counts_those_taken() {
        let places = WorkerPlaces::new(2);
        assert_eq!(places.take_open(2), None, "it is not open yet");
        places.open(OpenPlaces::FreeAndAhead);
        assert_eq!((places.take_open(2), places.take_open(2)), (Some(1), Some(2)));
        assert_eq!(places.take_open(2), None, "both places are taken");
        assert_eq!(places.take_ahead(1000), Some(3), "a short call may wait");
        assert_eq!(places.take_ahead(u32::MAX), None, "a call of unknown length may not");
        places.open(OpenPlaces::Free);
        assert_eq!(places.take_ahead(1000), None);
        places.open(OpenPlaces::None);
        assert_eq!(places.free(0), FreedPlace { left: 2, is_open: false });
        assert_eq!(places.take_open(9), None);
        assert_eq!(places.take(3), Some(3), "the queue itself may");
    }
}
