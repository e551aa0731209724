//! Which dedup keys were used not long ago.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::store::after;
use crate::mailbox::MessageId;

#[derive(Default)]
pub(super) struct Dedup {
    known: HashMap<Arc<str>, MessageId>,
    /// When each is forgotten.
    forget: BinaryHeap<Reverse<(u64, Arc<str>)>>,
}

impl Dedup {
    /// The message that was sent with this key.
    pub(super) fn find(&mut self, key: &str, now: u64) -> Option<MessageId> {
        while self.forget.peek().is_some_and(|Reverse((until, _))| *until <= now) {
            if let Some(Reverse((_, key))) = self.forget.pop() {
                self.known.remove(&key);
            }
        }
        self.known.get(key).copied()
    }

    /// A key that is not known is, for so long.
    pub(super) fn note(&mut self, key: String, id: MessageId, window: Duration, now: u64) {
        let key: Arc<str> = key.into();
        self.forget.push(Reverse((after(now, window), Arc::clone(&key))));
        self.known.insert(key, id);
    }
}
