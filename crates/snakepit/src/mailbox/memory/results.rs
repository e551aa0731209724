//! Replies that are kept for a time, by the id of their request.

use std::collections::{BTreeSet, HashMap};

use crate::mailbox::{MessageId, Reply};

#[derive(Default)]
pub(super) struct Results {
    kept: HashMap<MessageId, (u64, Reply)>,
    /// Until when each is kept, the earliest first.
    forget: BTreeSet<(u64, MessageId)>,
}

impl Results {
    pub(super) fn keep(&mut self, reply: Reply, until: u64, now: u64) {
        self.tidy(now);
        let request = reply.in_reply_to;
        self.forget.insert((until, request));
        if let Some((before, _)) = self.kept.insert(request, (until, reply))
            && before != until
        {
            self.forget.remove(&(before, request));
        }
    }

    pub(super) fn find(&mut self, request: MessageId, now: u64) -> Option<Reply> {
        self.tidy(now);
        self.kept.get(&request).map(|(_, reply)| reply.clone())
    }

    fn tidy(&mut self, now: u64) {
        while let Some((until, request)) = self.forget.first().copied()
            && until <= now
        {
            self.forget.pop_first();
            self.kept.remove(&request);
        }
    }
}
