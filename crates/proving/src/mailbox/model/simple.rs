//! The simplest mailbox: a list that is looked through from its beginning for everything. Times are in units.

use std::collections::HashMap;

use snakepit::mailbox::{AttemptEnd, Count, DeadReason};

use super::steps::Sending;

/// What the model calls a message: its number among all that were put in.
pub(super) type Name = usize;

#[derive(Clone, PartialEq, Debug)]
enum Place {
    Delayed { until: u64 },
    Visible,
    Leased { until: u64, lease: usize },
    Dead { reason: DeadReason, since: u64 },
    Gone,
}

struct Item {
    place: Place,
    priority: i8,
    sequence: u64,
    deliveries: u32,
    time_to_live: Option<u32>,
    expires: Option<u64>,
    attempts: Vec<Try>,
}

/// An attempt: its delivery, how it ended, and its error.
pub(super) type Try = (u32, AttemptEnd, Option<String>);

/// What becomes of a message whose lease is ended.
pub(super) enum Fate {
    Gone,
    /// Back after a pause, with an error.
    Back(u32, String),
    /// Back as if it had not been delivered.
    Undone,
    Dead(DeadReason),
}

pub(super) struct Simple {
    limit: u32,
    now: u64,
    sequence: u64,
    items: Vec<Item>,
    keys: HashMap<u8, Name>,
    /// Which message each lease is of.
    leases: Vec<Name>,
    /// The dead, in the order in which they are listed.
    dead: Vec<Name>,
}

impl Item {
    fn note(&mut self, end: AttemptEnd, error: Option<String>) {
        self.attempts.push((self.deliveries, end, error));
        let last_error = self.attempts.iter().rposition(|(.., error)| error.is_some());
        let first = self.attempts.len().saturating_sub(16);
        let kept = |(place, _): &(usize, &Try)| *place >= first || Some(*place) == last_error;
        self.attempts = self.attempts.iter().enumerate().filter(kept).map(|(_, it)| it.clone()).collect();
    }
}

impl Simple {
    pub(super) fn new(limit: u32) -> Self {
        let (items, leases, dead) = (Vec::new(), Vec::new(), Vec::new());
        Self { limit, now: 0, sequence: 0, items, keys: HashMap::new(), leases, dead }
    }

    /// How many messages were put in so far.
    pub(super) fn sent(&self) -> usize {
        self.items.len()
    }

    pub(super) fn clock(&self) -> u64 {
        self.now
    }

    pub(super) fn send(&mut self, sending: &Sending) -> Name {
        let name = self.items.len();
        if let Some(key) = sending.key {
            let first = *self.keys.entry(key).or_insert(name);
            if first != name {
                return first;
            }
        }
        self.sequence += 1;
        let until = self.now + u64::from(sending.delay);
        self.items.push(Item {
            place: if sending.delay == 0 { Place::Visible } else { Place::Delayed { until } },
            priority: sending.priority,
            sequence: self.sequence,
            deliveries: 0,
            time_to_live: sending.time_to_live,
            expires: sending.time_to_live.map(|time| self.now + u64::from(time)),
            attempts: Vec::new(),
        });
        name
    }

    /// Time passes unit by unit, so that things happen in their order.
    pub(super) fn pass(&mut self, units: u32) {
        for _ in 0..units {
            self.now += 1;
            self.settle();
        }
    }

    fn settle(&mut self) {
        for name in 0..self.items.len() {
            let item = &self.items[name];
            let is_expired = item.expires.is_some_and(|at| at <= self.now);
            match item.place {
                Place::Leased { until, .. } if until <= self.now => {
                    self.items[name].note(AttemptEnd::Lapse, None);
                    self.come_back(name, 0);
                }
                Place::Delayed { .. } | Place::Visible if is_expired => self.die(name, DeadReason::Expired),
                Place::Delayed { until } if until <= self.now => self.items[name].place = Place::Visible,
                Place::Delayed { .. }
                | Place::Visible
                | Place::Leased { .. }
                | Place::Dead { .. }
                | Place::Gone => {}
            }
        }
    }

    fn come_back(&mut self, name: Name, pause: u32) {
        let item = &mut self.items[name];
        if item.deliveries >= self.limit {
            self.die(name, DeadReason::Deliveries);
        } else if item.expires.is_some_and(|at| at <= self.now) {
            self.die(name, DeadReason::Expired);
        } else if pause == 0 {
            item.place = Place::Visible;
        } else {
            item.place = Place::Delayed { until: self.now + u64::from(pause) };
        }
    }

    fn die(&mut self, name: Name, reason: DeadReason) {
        self.items[name].place = Place::Dead { reason, since: self.now };
        self.dead.push(name);
    }

    /// Those that can be received, in order, and how often they were delivered.
    pub(super) fn visible(&self) -> Vec<(Name, u32)> {
        let mut names: Vec<Name> =
            (0..self.items.len()).filter(|name| self.items[*name].place == Place::Visible).collect();
        names.sort_by_key(|name| (-i32::from(self.items[*name].priority), self.items[*name].sequence));
        names.into_iter().map(|name| (name, self.items[name].deliveries)).collect()
    }

    pub(super) fn receive(&mut self, most: usize, lease: u32) -> Vec<(Name, u32)> {
        let mut received = self.visible();
        received.truncate(most);
        for (name, deliveries) in &mut received {
            *deliveries += 1;
            let place = Place::Leased { until: self.now + u64::from(lease), lease: self.leases.len() };
            self.items[*name].place = place;
            self.items[*name].deliveries = *deliveries;
            self.leases.push(*name);
        }
        // A lease of no time is over before anybody looks.
        self.settle();
        received
    }

    fn held(&self, lease: usize) -> Option<Name> {
        let name = self.leases[lease];
        let is_held =
            matches!(self.items[name].place, Place::Leased { lease: current, .. } if current == lease);
        is_held.then_some(name)
    }

    /// Ends a lease; false if it was over.
    pub(super) fn end(&mut self, lease: usize, fate: Fate) -> bool {
        let Some(name) = self.held(lease) else { return false };
        match fate {
            Fate::Gone => self.items[name].place = Place::Gone,
            Fate::Back(pause, error) => {
                self.items[name].note(AttemptEnd::Nack, Some(error));
                self.come_back(name, pause);
            }
            Fate::Undone => {
                self.items[name].deliveries -= 1;
                self.come_back(name, 0);
            }
            Fate::Dead(reason) => {
                self.items[name].note(AttemptEnd::Bury, reason.error().map(str::to_owned));
                self.die(name, reason);
            }
        }
        true
    }

    pub(super) fn extend(&mut self, lease: usize, time: u32, is_exact: bool) -> bool {
        let Some(name) = self.held(lease) else { return false };
        let wanted = self.now + u64::from(time);
        if let Place::Leased { until, .. } = &mut self.items[name].place {
            *until = if is_exact { wanted } else { wanted.max(*until) };
        }
        self.settle();
        true
    }

    /// What is remembered of a message.
    pub(super) fn attempts(&self, name: Name) -> &[Try] {
        &self.items[name].attempts
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Those that were delivered as often already die at once, but for those that are held.
    pub(super) fn set_limit(&mut self, limit: u32) {
        let is_lower = limit < self.limit;
        self.limit = limit;
        for name in 0..self.items.len() {
            let item = &self.items[name];
            let is_free = matches!(item.place, Place::Visible | Place::Delayed { .. });
            if is_lower && is_free && item.deliveries >= limit {
                self.die(name, DeadReason::Deliveries);
            }
        }
    }

    pub(super) fn count(&self) -> Count {
        let mut count = Count::default();
        for item in &self.items {
            match item.place {
                Place::Delayed { .. } => count.delayed += 1,
                Place::Visible => count.visible += 1,
                Place::Leased { .. } => count.in_flight += 1,
                Place::Dead { .. } => count.dead += 1,
                Place::Gone => {}
            }
        }
        count
    }

    fn remove(&mut self, is_chosen: impl Fn(&Place) -> bool) -> u64 {
        let mut removed = 0;
        for item in self.items.iter_mut().filter(|item| item.place != Place::Gone && is_chosen(&item.place)) {
            item.place = Place::Gone;
            removed += 1;
        }
        removed
    }

    pub(super) fn purge(&mut self) -> u64 {
        self.remove(|place| !matches!(place, Place::Dead { .. }))
    }

    pub(super) fn purge_dead(&mut self) -> u64 {
        self.dead.clear();
        self.remove(|place| matches!(place, Place::Dead { .. }))
    }

    pub(super) fn redrive(&mut self, names: Option<&[Name]>) -> u64 {
        let is_chosen = |name: &Name| names.is_none_or(|names| names.contains(name));
        let (back, stay): (Vec<Name>, Vec<Name>) = self.dead.drain(..).partition(is_chosen);
        self.dead = stay;
        for name in &back {
            self.sequence += 1;
            let item = &mut self.items[*name];
            item.place = Place::Visible;
            item.deliveries = 0;
            item.sequence = self.sequence;
            item.expires = item.time_to_live.map(|time| self.now + u64::from(time));
        }
        back.len() as u64
    }

    /// The list must be that of the model, but for the order of those that died at the same time; that is taken over.
    pub(super) fn agree_on_dead_letters(&mut self, listed: &[(Name, DeadReason, u32)]) {
        let mut last = 0;
        for (name, reason, deliveries) in listed {
            let item = &self.items[*name];
            let Place::Dead { reason: expected, since } = &item.place else {
                panic!("{name} is listed as dead, and is {:?}", item.place)
            };
            assert_eq!((reason, *deliveries), (expected, item.deliveries), "the dead letter {name}");
            assert!(*since >= last, "{name} died before one that is listed as older");
            last = *since;
        }
        let names: Vec<Name> = listed.iter().map(|(name, ..)| *name).collect();
        let (mut ours, mut theirs) = (self.dead.clone(), names.clone());
        ours.sort_unstable();
        theirs.sort_unstable();
        assert_eq!(theirs, ours, "dead letters");
        self.dead = names;
    }
}
