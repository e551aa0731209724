//! Data that each thread has for itself, so that threads do not wait for each other's caches.

use std::sync::atomic::{AtomicUsize, Ordering};

/// One value for each of a few groups of threads.
#[derive(Debug, Default)]
pub(crate) struct Sharded<T>([Shard<T>; SHARDS]);

/// The number of groups. A program has about as many threads as cores.
const SHARDS: usize = 16;

/// A value that shares no cache line with another.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard<T>(T);

impl<T> Sharded<T> {
    /// Returns the value of this thread, and its number for [`Sharded::get`].
    pub(crate) fn own(&self) -> (usize, &T) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
        }
        let own = OWN.with(|own| *own);
        (own, self.get(own))
    }

    /// Returns the value with this number.
    pub(crate) fn get(&self, number: usize) -> &T {
        &self.0[number].0
    }

    /// Iterates over the values of all threads.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|shard| &shard.0)
    }
}
