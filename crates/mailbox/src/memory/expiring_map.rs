//! A map whose entries expire: dedup keys, and replies by the id of their request.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

pub(crate) struct ExpiringMap<K, V> {
    kept: HashMap<K, (u64, V)>,
    /// When each key expires, earliest first.
    ends: BTreeSet<(u64, K)>,
}

impl<K, V> Default for ExpiringMap<K, V> {
    fn default() -> Self {
        Self { kept: HashMap::new(), ends: BTreeSet::new() }
    }
}

impl<K: Clone + Eq + Hash + Ord, V: Clone> ExpiringMap<K, V> {
    pub(crate) fn insert(&mut self, key: K, value: V, until: u64, now: u64) {
        self.forget(now);
        if let Some((before, _)) = self.kept.insert(key.clone(), (until, value)) {
            self.ends.remove(&(before, key.clone()));
        }
        self.ends.insert((until, key));
    }

    pub(crate) fn find(&mut self, key: &K, now: u64) -> Option<V> {
        self.forget(now);
        self.kept.get(key).map(|(_, value)| value.clone())
    }

    fn forget(&mut self, now: u64) {
        while self.ends.first().is_some_and(|(until, _)| *until <= now) {
            if let Some((_, key)) = self.ends.pop_first() {
                self.kept.remove(&key);
            }
        }
    }
}
