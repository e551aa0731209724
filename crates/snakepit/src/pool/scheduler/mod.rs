//! Who serves which call: the queue, the places at the workers, and the choice between them.
//!
//! Pure bookkeeping under one lock: no I/O, no clock, nothing that waits. Every step of a call costs the same whatever the
//! number of workers; a queued call costs the logarithm of the queue.
//!
//! A worker (a *post* here) is in one of four conditions, each with its list; entries of the lists may be out of date
//! and are checked when they are taken:
//!
//! ```text
//! Idle ──call──► Partial ──call──► Ahead ──call──► Full
//!   ▲  (nothing)   (free places)    (all places taken, short calls may wait at it)
//!   └────────────────────────── answer ◄────────────────────────────────┘
//! ```

mod lending;
mod pausing;
mod resting;
mod trials;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::batch::Gatherer;
use super::estimate::{MAX_HELD, may_wait_at_worker};
use super::{Limit, Placed, QueueKey, Wish};
use crate::call::ticket::Place;
use crate::call::{Call, CallId};
use crate::worker::Berth;
use resting::Rest;
use trials::Trial;

/// A call's place at a worker, to be given back with [`Scheduler::release`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    nanos: u32,
    kind: Kind,
}

/// Whether a call takes up a place, or stands in for one that waits for a tool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Own,
    Guest(CallId),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Condition {
    Idle,
    Partial,
    Ahead,
    Full,
}

#[derive(Debug)]
struct Post {
    berth: Arc<Berth>,
    /// How many calls it may do at the same time.
    places: usize,
    /// Calls that it holds, those not counted that wait for a tool and have lent their place to a nested call.
    held: usize,
    /// How much work that is, as far as it is known.
    nanos: u64,
    /// Calls of it that wait for tools of the host, and for how many.
    asking: Vec<(CallId, usize)>,
    /// Nested calls that it serves in the place of those, the latest last.
    guests: Vec<CallId>,
    /// Calls that only this one may serve.
    bound: BTreeMap<QueueKey, Call>,
    condition: Condition,
    /// Its process is stopped: it gets nothing before it goes on.
    is_paused: bool,
    rest: Rest,
    trial: Trial,
    listed: [bool; 3],
    listed_asking: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Scheduler {
    pub(super) limit: usize,
    pub(super) queue: BTreeMap<QueueKey, Call>,
    /// Calls of batch commands that wait for one another; their vans are in the queue.
    pub(super) gatherer: Gatherer,
    bound: usize,
    posts: Vec<Option<Post>>,
    vacant: Vec<usize>,
    lists: [VecDeque<usize>; 3],
    /// Posts with calls that wait for a tool; entries may be out of date.
    askers: VecDeque<usize>,
    door: Door,
}

impl Post {
    fn takes_calls(&self) -> bool {
        !self.is_paused && self.rest == Rest::None
    }
}

/// Who may still come in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Door {
    Open,
    /// What is under way finishes, and nested calls are a part of that.
    Closing,
    Shut,
}

impl Scheduler {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            queue: BTreeMap::new(),
            gatherer: Gatherer::default(),
            bound: 0,
            posts: Vec::new(),
            vacant: Vec::new(),
            lists: Default::default(),
            askers: VecDeque::new(),
            door: Door::Open,
        }
    }

    /// How many calls may wait.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// How many calls wait.
    pub(crate) fn depth(&self) -> usize {
        self.queue.len() - self.gatherer.vans + self.gatherer.waiting + self.bound
    }

    /// How long the first of those that wait has done so.
    pub(crate) fn head_waits(&self, now: Instant) -> Duration {
        let first = self.queue.first_key_value().and_then(|(_, call)| call.queued_at);
        first.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    pub(crate) fn held_by(&self, post: usize) -> usize {
        self.post(post).map_or(0, |post| post.held + post.guests.len())
    }

    pub(super) fn berth(&self, post: usize) -> Option<Arc<Berth>> {
        self.post(post).map(|post| Arc::clone(&post.berth))
    }

    fn post(&self, index: usize) -> Option<&Post> {
        self.posts.get(index)?.as_ref()
    }

    /// A free index for a worker that is about to serve.
    pub(crate) fn reserve(&mut self) -> usize {
        self.vacant.pop().unwrap_or_else(|| {
            self.posts.push(None);
            self.posts.len() - 1
        })
    }

    /// The index is no longer used: its worker is gone.
    pub(crate) fn vacate(&mut self, index: usize) {
        debug_assert!(self.posts[index].is_none(), "a worker that serves keeps its index");
        self.vacant.push(index);
    }

    /// Whether this worker takes calls.
    pub(crate) fn serves(&self, berth: &Arc<Berth>) -> bool {
        self.post(berth.post).is_some_and(|post| Arc::ptr_eq(&post.berth, berth) && post.rest == Rest::None)
    }

    /// A worker is ready: it is idle. Work for it is had by [`Scheduler::next_for`].
    pub(crate) fn enlist(&mut self, berth: Arc<Berth>) {
        let index = berth.post;
        self.posts[index] = Some(Post {
            places: berth.places(),
            berth,
            held: 0,
            nanos: 0,
            asking: Vec::new(),
            guests: Vec::new(),
            bound: BTreeMap::new(),
            condition: Condition::Full,
            is_paused: false,
            rest: Rest::None,
            trial: Trial::None,
            listed: [false; 3],
            listed_asking: false,
        });
        self.relist(index);
    }

    /// A worker takes no more calls. Gives those that were bound to it, for the others.
    pub(crate) fn retire(&mut self, index: usize) -> Vec<Call> {
        let Some(post) = self.posts.get_mut(index).and_then(Option::take) else { return Vec::new() };
        self.askers.retain(|asker| *asker != index);
        self.bound -= post.bound.len();
        post.bound.into_values().collect()
    }

    /// Finds a worker for a new call, or a place in the queue.
    pub(crate) fn offer(&mut self, call: Call, wish: Wish, limit: Limit) -> Placed {
        if !self.admits(&call) {
            return Placed::Closed(call);
        }
        match wish {
            Wish::Any => {}
            Wish::Rather(index) => {
                if self.has_free_place(index, &call) {
                    return Placed::Now(self.assign(index, call, false));
                }
            }
            Wish::Only(index) | Wish::OnlyNow(index) => {
                if self.has_free_place(index, &call) {
                    return Placed::Now(self.assign(index, call, false));
                }
                if call.key.is_nested() && self.lends(index) {
                    return Placed::Now(self.assign(index, call, true));
                }
                if matches!(wish, Wish::OnlyNow(_)) {
                    return Placed::Busy(call);
                }
                if limit == Limit::Holds && self.depth() >= self.limit && !call.key.is_nested() {
                    let depth = self.depth();
                    return Placed::Saturated(call, depth);
                }
                if let Some(post) = self.posts.get_mut(index).and_then(Option::as_mut) {
                    call.ticket.set_place(Place::Queued(call.key));
                    post.bound.insert(call.key, call);
                    self.bound += 1;
                    return Placed::Queued;
                }
            }
        }
        // Whoever came earlier is served earlier, even where this one would fit and that one does not.
        let first = self.first_in_line().is_none_or(|key| call.key < key);
        if first && let Some((index, guest)) = self.choose(&call) {
            return Placed::Now(self.assign(index, call, guest));
        }
        // A nested call is never refused for want of room: those that it holds up are in the queue's way themselves.
        if limit == Limit::Holds && self.depth() >= self.limit && !call.key.is_nested() {
            let depth = self.depth();
            return Placed::Saturated(call, depth);
        }
        self.wait(call);
        Placed::Queued
    }

    /// A call that its worker never started stands again where it stood.
    ///
    /// Nobody waits any more for one whose caller has gone away meanwhile.
    pub(crate) fn requeue(&mut self, call: Call) -> Placed {
        if !self.admits(&call) || call.ticket.is_abandoned() {
            return Placed::Closed(call);
        }
        if let Some((index, guest)) = self.choose(&call) {
            return Placed::Now(self.assign(index, call, guest));
        }
        self.wait(call);
        Placed::Queued
    }

    fn enqueue(&mut self, mut call: Call) {
        call.ticket.set_place(Place::Queued(call.key));
        call.queued_at.get_or_insert_with(Instant::now);
        self.queue.insert(call.key, call);
    }

    /// Takes a call out of the queue.
    pub(crate) fn withdraw(&mut self, key: QueueKey) -> Option<Call> {
        // In this order: a van stands in the queue where the first of its calls would stand.
        if let Some(call) = self.leave_group(key).or_else(|| self.queue.remove(&key)) {
            return Some(call);
        }
        if self.bound == 0 {
            return None;
        }
        let call = self.posts.iter_mut().flatten().find_map(|post| post.bound.remove(&key))?;
        self.bound -= 1;
        self.call_off_trial(key);
        Some(call)
    }

    /// A call has left its worker.
    pub(crate) fn release(&mut self, berth: &Arc<Berth>, load: Load) {
        // One that has retired is not listed, and another one may have its index.
        let Some(post) = self.own_post(berth) else { return };
        match load.kind {
            Kind::Own => {
                post.held -= 1;
                post.nanos -= u64::from(load.nanos);
                post.trial.is_over();
            }
            Kind::Guest(call) => post.guests.retain(|guest| *guest != call),
        }
        self.list_asker(berth.post);
        self.relist(berth.post);
    }

    /// How many calls a worker gets at a time, from now on.
    pub(crate) fn set_places(&mut self, berth: &Arc<Berth>, places: usize) {
        if let Some(post) = self.own_post(berth) {
            post.places = places;
            self.relist(berth.post);
        }
    }

    fn own_post(&mut self, berth: &Arc<Berth>) -> Option<&mut Post> {
        self.posts.get_mut(berth.post)?.as_mut().filter(|post| Arc::ptr_eq(&post.berth, berth))
    }

    /// The next call for a worker that may have a place.
    pub(crate) fn next_for(&mut self, index: usize) -> Option<Call> {
        let post = self.posts.get(index)?.as_ref()?;
        if let Trial::Awaited(key) = post.trial
            && post.is_free()
        {
            return self.next_on_trial(index, key);
        }
        let own = post.bound.first_key_value();
        let is_free = post.is_free();
        let any = self.queue.iter().find(|(_, call)| !call.alone || is_free);
        let (call, bound) = match (own, any) {
            (None, None) => return None,
            (None, Some((_, call))) => (call, false),
            (Some((mine, _)), Some((key, call))) if key < mine => (call, false),
            (Some((_, call)), _) => (call, true),
        };
        let guest = match self.room(post, call) {
            Room::None => return None,
            Room::Own => false,
            Room::Lent => true,
        };
        let call = if bound {
            self.bound -= 1;
            self.posts[index].as_mut()?.bound.pop_first()?.1
        } else if call.is_empty_van() {
            let van = self.take_van(call.key)?;
            return Some(self.load(index, van));
        } else {
            let key = call.key;
            self.queue.remove(&key)?
        };
        Some(self.assign(index, call, guest))
    }

    pub(super) fn admits(&self, call: &Call) -> bool {
        match self.door {
            Door::Open => true,
            Door::Closing => call.key.is_nested(),
            Door::Shut => false,
        }
    }

    /// No more calls are taken but nested ones, and those that wait are given back.
    pub(crate) fn close(&mut self) -> Vec<Call> {
        self.door = Door::Closing;
        self.drain()
    }

    /// No more calls are taken at all.
    pub(crate) fn shut(&mut self) -> Vec<Call> {
        self.door = Door::Shut;
        self.drain()
    }

    /// Whether it closes and nothing waits.
    pub(crate) fn is_drained(&self) -> bool {
        self.door != Door::Open && self.depth() == 0
    }

    /// Takes everything out of the queue.
    pub(crate) fn drain(&mut self) -> Vec<Call> {
        let queued = std::mem::take(&mut self.queue).into_values();
        let mut calls: Vec<Call> = queued.filter(|call| !call.is_empty_van()).collect();
        calls.extend(self.gatherer.drain());
        for post in self.posts.iter_mut().flatten() {
            calls.extend(std::mem::take(&mut post.bound).into_values());
        }
        self.bound = 0;
        calls
    }

    pub(super) fn choose(&mut self, call: &Call) -> Option<(usize, bool)> {
        let conditions = [Condition::Idle, Condition::Partial, Condition::Ahead];
        // One that is to be alone finds no place beside others.
        let looked_at = if call.alone { 1 } else { conditions.len() };
        for (list, condition) in conditions.into_iter().enumerate().take(looked_at) {
            // The idle ones last in, first out: the rest may go to sleep, and the caches of this one are warm.
            while let Some(index) =
                if list == 0 { self.lists[0].pop_back() } else { self.lists[list].pop_front() }
            {
                let Some(post) = self.posts[index].as_mut() else { continue };
                post.listed[list] = false;
                if post.condition != condition {
                    continue;
                }
                let post = self.posts[index].as_ref()?;
                if matches!(self.room(post, call), Room::Own) {
                    return Some((index, false));
                }
                if list == 2 {
                    // Not now; when it answers it is listed again.
                    self.posts[index].as_mut()?.condition = Condition::Full;
                }
            }
        }
        if call.key.is_nested() {
            while let Some(index) = self.askers.pop_front() {
                let Some(post) = self.posts[index].as_mut() else { continue };
                post.listed_asking = false;
                if self.lends(index) {
                    return Some((index, true));
                }
            }
        }
        None
    }

    fn has_free_place(&self, index: usize, call: &Call) -> bool {
        let is_free = |post: &Post| post.held < post.places && post.takes_calls() && post.is_fit_for(call);
        self.post(index).is_some_and(is_free)
    }

    fn room(&self, post: &Post, call: &Call) -> Room {
        let is_fit = post.is_fit_for(call);
        if post.held < post.places && post.takes_calls() && is_fit {
            return Room::Own;
        }
        // Also where nobody else gets a place: the call that lends it waits for this one.
        if call.key.is_nested() && self.lends(post.berth.post) {
            return Room::Lent;
        }
        if !post.takes_calls() {
            return Room::None;
        }
        let waits = post.bound.first_key_value().is_some_and(|(key, _)| *key < call.key);
        let ahead =
            post.berth.tells_what_it_started && post.held < MAX_HELD && post.asking.is_empty() && !waits;
        if ahead && is_fit && !call.alone && may_wait_at_worker(post.nanos, call.nanos()) {
            Room::Own
        } else {
            Room::None
        }
    }

    pub(super) fn assign(&mut self, index: usize, mut call: Call, nested: bool) -> Call {
        let Some(post) = self.posts[index].as_mut() else { return call };
        let kind = if nested { Kind::Guest(call.id) } else { Kind::Own };
        let load = Load { nanos: call.nanos(), kind };
        match kind {
            Kind::Own => {
                post.held += 1;
                post.nanos += u64::from(load.nanos);
                if call.alone {
                    post.trial = Trial::Running;
                }
            }
            Kind::Guest(call) => post.guests.push(call),
        }
        let berth = Arc::clone(&post.berth);
        call.ticket.set_place(Place::With(Arc::clone(&berth)));
        call.slot = Some(super::Slot::new(berth, load));
        self.list_asker(index);
        self.relist(index);
        call
    }

    fn relist(&mut self, index: usize) {
        let Some(post) = self.posts[index].as_mut() else { return };
        post.condition = match post.held {
            _ if !post.takes_calls() || post.trial != Trial::None => Condition::Full,
            0 => Condition::Idle,
            held if held < post.places => Condition::Partial,
            held if held < MAX_HELD && post.berth.tells_what_it_started => Condition::Ahead,
            _ => Condition::Full,
        };
        let list = match post.condition {
            Condition::Idle => 0,
            Condition::Partial => 1,
            Condition::Ahead => 2,
            Condition::Full => return,
        };
        if !std::mem::replace(&mut post.listed[list], true) {
            self.lists[list].push_back(index);
        }
    }
}

enum Room {
    Own,
    /// The place of a call that waits for a tool.
    Lent,
    None,
}
