//! Data that each thread has for itself, so that threads do not wait for each other's caches.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
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

/// Returns the number of the group that this thread belongs to.
fn own_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    OWN.with(|own| *own)
}

impl<T> Sharded<T> {
    /// Returns the value of this thread, and its number for [`Sharded::get`].
    pub(crate) fn own(&self) -> (usize, &T) {
        let own = own_shard();
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

/// A shared value whose references are counted by groups of threads.
///
/// A reference count that all threads change is as slow as a lock that all of them take. Here, a thread changes the
/// count of its group.
pub(crate) struct ShardedArc<T>(Arc<[ShardRef<T>; SHARDS]>);

/// A reference to the value of a [`ShardedArc`].
pub(crate) struct ShardRef<T>(Arc<ShardCount<T>>);

/// The value, and beside it the references of one group of threads.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct ShardCount<T>(Arc<T>);

impl<T> ShardedArc<T> {
    pub(crate) fn new(value: &Arc<T>) -> Self {
        Self(Arc::new(std::array::from_fn(|_| ShardRef::from(Arc::clone(value)))))
    }

    /// Returns a reference that the group of this thread counts.
    pub(crate) fn own(&self) -> ShardRef<T> {
        self.0[own_shard()].clone()
    }
}

impl<T> ShardRef<T> {
    /// Returns the pointer, which a holder of a trait object can keep.
    pub(crate) fn into_count(self) -> Arc<ShardCount<T>> {
        self.0
    }
}

/// A reference that is counted on its own.
impl<T> From<Arc<T>> for ShardRef<T> {
    fn from(value: Arc<T>) -> Self {
        Self(Arc::new(ShardCount(value)))
    }
}

impl<T> Deref for ShardedArc<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.0[0]
    }
}

impl<T> Clone for ShardedArc<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Clone for ShardRef<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: fmt::Debug> fmt::Debug for ShardedArc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for ShardRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.0.fmt(f)
    }
}

impl<T> Deref for ShardRef<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.0.0
    }
}

impl<T> Deref for ShardCount<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_lives_as_long_as_any_reference_of_any_thread() {
        let value = Arc::new(());
        let shared = ShardedArc::new(&value);
        let refs: Vec<_> = (0..2 * SHARDS)
            .map(|_| std::thread::scope(|scope| scope.spawn(|| shared.own()).join().expect("no panic")))
            .collect();
        assert!(refs.iter().all(|one| Arc::ptr_eq(one, &value)));
        let of_group = |one: &ShardRef<()>| Arc::as_ptr(&one.0).cast::<()>().addr();
        let groups: std::collections::BTreeSet<_> = refs.iter().map(of_group).collect();
        assert_eq!(groups.len(), SHARDS, "threads are spread over all groups");
        drop(shared);
        assert!(Arc::strong_count(&value) > 1);
        drop(refs);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
