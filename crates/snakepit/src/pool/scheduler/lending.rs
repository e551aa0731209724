//! Places that are lent: a call that waits for a tool of the host does nothing, and a nested call may be served in its place.

use std::sync::Arc;

use super::Scheduler;
use crate::call::CallId;
use crate::worker::Berth;

impl Scheduler {
    /// A call of this worker waits for a tool: its place may serve a nested call meanwhile.
    pub(crate) fn asks(&mut self, berth: &Arc<Berth>, call: CallId) {
        let Some(post) = self.own_post(berth) else { return };
        match post.asking.iter_mut().find(|(asker, _)| *asker == call) {
            Some((_, tools)) => *tools += 1,
            None => post.asking.push((call, 1)),
        }
        self.list_asker(berth.post);
    }

    /// The tool has answered.
    pub(crate) fn answered(&mut self, berth: &Arc<Berth>, call: CallId) {
        let Some(post) = self.own_post(berth) else { return };
        if let Some((_, tools)) = post.asking.iter_mut().find(|(asker, _)| *asker == call) {
            *tools -= 1;
        }
        post.asking.retain(|(_, tools)| *tools > 0);
    }

    /// A post is listed once, however many of its calls wait for tools.
    pub(super) fn list_asker(&mut self, index: usize) {
        let lends = self.lends(index);
        let Some(post) = self.posts[index].as_mut() else { return };
        if lends && !std::mem::replace(&mut post.listed_asking, true) {
            self.askers.push_back(index);
        }
    }

    /// Whether a nested call may have the place of one that waits for a tool.
    pub(super) fn lends(&self, index: usize) -> bool {
        let Some(post) = self.post(index).filter(|post| !post.is_paused) else { return false };
        let asks = |call: &CallId| post.asking.iter().any(|(asker, _)| asker == call);
        match (post.berth.concurrency, post.guests.last()) {
            (1, None) => !post.asking.is_empty(),
            // One thread: its calls stand on one another, and only the one on top counts. One below may have its answer,
            // and cannot go on before those above it have ended.
            (1, Some(top)) => asks(top),
            _ => post.held + post.guests.len() < post.places + post.asking.len(),
        }
    }
}
