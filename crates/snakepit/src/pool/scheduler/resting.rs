//! Workers that get no new call although they could do one: those that a reload has replaced and may want back, and those that
//! are worn beyond measure. What they have they finish.

use std::sync::Arc;

use super::Scheduler;
use super::trials::Trial;
use crate::call::Call;
use crate::worker::Berth;

/// Whether a worker gets calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rest {
    None,
    /// It is worn, and its replacement is on its way.
    Worn,
    /// It has been replaced. Nobody counts it among those that serve.
    Aside,
}

impl Scheduler {
    /// It gets no more calls. Gives those that were bound to it, for the others.
    pub(crate) fn set_aside(&mut self, berth: &Arc<Berth>) -> Vec<Call> {
        self.rest(berth, Rest::Aside)
    }

    /// As [`Scheduler::set_aside`], for one that still counts.
    pub(crate) fn lay_off(&mut self, berth: &Arc<Berth>) -> Vec<Call> {
        self.rest(berth, Rest::Worn)
    }

    fn rest(&mut self, berth: &Arc<Berth>, rest: Rest) -> Vec<Call> {
        let Some(post) = self.own_post(berth) else { return Vec::new() };
        post.rest = rest;
        if let Trial::Awaited(_) = post.trial {
            post.trial = Trial::None;
        }
        let bound = std::mem::take(&mut post.bound);
        self.bound -= bound.len();
        self.relist(berth.post);
        bound.into_values().collect()
    }

    /// It gets calls again. Work for it is had by [`Scheduler::next_for`].
    pub(crate) fn take_back(&mut self, berth: &Arc<Berth>) {
        let Some(post) = self.own_post(berth) else { return };
        post.rest = Rest::None;
        self.list_asker(berth.post);
        self.relist(berth.post);
    }

    /// Those that serve, or are about to again.
    pub(crate) fn berths(&self) -> impl Iterator<Item = &Arc<Berth>> {
        self.posts.iter().flatten().filter(|post| post.rest != Rest::Aside).map(|post| &post.berth)
    }
}
