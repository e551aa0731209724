//! The number of calls that a worker, or all workers of a pool, hold.
//!
//! Each worker has a count and updates that of its pool with its own. The calls themselves are in the adapter's
//! [`HeldCalls`](crate::adapter::HeldCalls), and the places that they take are the scheduler's.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::Worker;

/// The number of calls that a worker, or all workers of a pool, hold.
#[derive(Debug, Default)]
pub(crate) struct HeldCount {
    /// The number of calls. A batch counts as one.
    calls: AtomicUsize,
    /// The number of calls beyond the first of each batch.
    batched: AtomicUsize,
}

impl HeldCount {
    /// Returns how many calls are held. A batch counts as one.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Returns how many calls are held, counting each call of a batch.
    pub(crate) fn all(&self) -> usize {
        self.calls() + self.batched.load(Ordering::Relaxed)
    }
}

impl Worker {
    /// Counts a call that was given to the worker. Returns how many calls it holds now.
    pub(super) fn take_call(&self) -> usize {
        self.pool.held.calls.fetch_add(1, Ordering::SeqCst);
        self.held.calls.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Records that a call has left the worker.
    pub(super) fn put_call_down(&self) {
        self.held.calls.fetch_sub(1, Ordering::SeqCst);
        if self.watched.load(Ordering::SeqCst) {
            self.put_down.notify_waiters();
        }
        self.pool.held.calls.fetch_sub(1, Ordering::SeqCst);
    }

    /// Counts the calls beyond the first of a batch that was given to the worker.
    pub(super) fn take_batched(&self, beside: usize) {
        self.held.batched.fetch_add(beside, Ordering::Relaxed);
        self.pool.held.batched.fetch_add(beside, Ordering::Relaxed);
    }

    /// Records that calls beyond the first of a batch have left the worker.
    pub(super) fn put_batched_down(&self, beside: usize) {
        self.held.batched.fetch_sub(beside, Ordering::Relaxed);
        self.pool.held.batched.fetch_sub(beside, Ordering::Relaxed);
    }
}
