//! Workers whose processes are stopped, as by SIGSTOP: they keep what they have, and get no more until they go on.

use std::sync::Arc;

use super::Scheduler;
use crate::worker::Berth;

impl Scheduler {
    /// A worker is stopped. Calls that only it may serve wait for it.
    pub(crate) fn pause(&mut self, berth: &Arc<Berth>) {
        let Some(post) = self.own_post(berth) else { return };
        post.is_paused = true;
        self.move_trial(berth.post);
        self.relist(berth.post);
    }

    /// It goes on. Work for it is had by [`Scheduler::next_for`].
    pub(crate) fn resume(&mut self, berth: &Arc<Berth>) {
        let Some(post) = self.own_post(berth) else { return };
        post.is_paused = false;
        self.list_asker(berth.post);
        self.relist(berth.post);
    }
}
