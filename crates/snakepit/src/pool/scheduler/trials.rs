//! Trials: a call of which workers may have died is done by a worker that has no other call, so that it harms nobody, and
//! that its end says something about it.
//!
//! It goes to a worker that has nothing to do. If there is none, one with little work is chosen, which gets no more calls until
//! it has finished and done this one. Where every worker has a stream, which may have no end, it waits aside: others go
//! first, and it gets the first worker that has nothing to do.

use super::{Post, QueueKey, Scheduler};
use crate::call::Call;
use crate::call::ticket::Place;

/// Whether a worker has, or waits for, a call that it does alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trial {
    None,
    /// It finishes what it has; then it gets this one.
    Awaited(QueueKey),
    Running,
}

impl Trial {
    /// A call has left the worker. One that runs alone was it.
    pub(super) fn is_over(&mut self) {
        if *self == Self::Running {
            *self = Self::None;
        }
    }
}

/// As much work as a stream is taken for.
const ENDLESS: u64 = u32::MAX as u64;

impl Post {
    /// Whether it has nothing to do.
    pub(super) fn is_free(&self) -> bool {
        self.held == 0 && self.guests.is_empty()
    }

    /// Whether it may have this call, as far as trials are concerned.
    pub(super) fn is_fit_for(&self, call: &Call) -> bool {
        self.trial == Trial::None && (!call.alone || self.is_free())
    }
}

impl Scheduler {
    /// The first in the queue that does not wait aside.
    pub(super) fn first_in_line(&self) -> Option<QueueKey> {
        self.queue.iter().find(|(_, call)| !call.alone).map(|(key, _)| *key)
    }

    /// A call for which there is no place now.
    pub(super) fn wait(&mut self, call: Call) {
        match call.alone.then(|| self.least_at_work()).flatten() {
            Some(index) if !call.key.is_nested() => self.await_trial(index, call),
            Some(_) | None => self.enqueue(call),
        }
    }

    /// The worker that has the least to do, if that has an end.
    fn least_at_work(&self) -> Option<usize> {
        let posts = self.posts.iter().enumerate().filter_map(|(index, post)| Some((index, post.as_ref()?)));
        let may = |post: &Post| post.takes_calls() && post.trial == Trial::None && post.nanos < ENDLESS;
        posts.filter(|(_, post)| may(post)).min_by_key(|(_, post)| post.nanos).map(|(index, _)| index)
    }

    fn await_trial(&mut self, index: usize, call: Call) {
        let Some(post) = self.posts[index].as_mut() else { return self.enqueue(call) };
        call.ticket.set_place(Place::Queued(call.key));
        post.trial = Trial::Awaited(call.key);
        post.bound.insert(call.key, call);
        self.bound += 1;
        self.relist(index);
    }

    /// The call that a worker is to do alone, once it has nothing else to do.
    pub(super) fn next_on_trial(&mut self, index: usize, key: QueueKey) -> Option<Call> {
        let post = self.posts[index].as_mut().filter(|post| post.is_free() && post.takes_calls())?;
        let call = post.bound.remove(&key)?;
        self.bound -= 1;
        Some(self.assign(index, call, false))
    }

    /// The call that a worker was to do alone is no longer bound to it.
    pub(super) fn call_off_trial(&mut self, key: QueueKey) {
        let is_its = |post: &Option<Post>| post.as_ref().is_some_and(|it| it.trial == Trial::Awaited(key));
        if let Some(index) = self.posts.iter().position(is_its)
            && let Some(post) = self.posts[index].as_mut()
        {
            post.trial = Trial::None;
            self.relist(index);
        }
    }

    /// A worker is stopped: a call that was to be alone with it waits for another one.
    pub(super) fn move_trial(&mut self, index: usize) {
        let Some(post) = self.posts[index].as_mut() else { return };
        if let Trial::Awaited(key) = post.trial {
            post.trial = Trial::None;
            if let Some(call) = post.bound.remove(&key) {
                self.bound -= 1;
                self.wait(call);
            }
        }
    }
}
