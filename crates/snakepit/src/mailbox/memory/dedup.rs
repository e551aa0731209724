//! Which dedup keys were used not long ago.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::mailbox::MessageId;
use crate::mailbox::options::DEDUP_WINDOW;

#[derive(Default)]
pub(super) struct Dedup {
    known: HashMap<Arc<str>, MessageId>,
    /// When each is forgotten; all are remembered for equally long, so in order.
    forget: VecDeque<(u64, Arc<str>)>,
}

impl Dedup {
    /// The message that was sent with this key.
    pub(super) fn find(&mut self, key: &str, now: u64) -> Option<MessageId> {
        while let Some((_, key)) = self.forget.pop_front_if(|(until, _)| *until <= now) {
            self.known.remove(&key);
        }
        self.known.get(key).copied()
    }

    pub(super) fn note(&mut self, key: String, id: MessageId, now: u64) {
        let key: Arc<str> = key.into();
        self.forget.push_back((now + DEDUP_WINDOW.as_nanos() as u64, Arc::clone(&key)));
        self.known.insert(key, id);
    }
}
