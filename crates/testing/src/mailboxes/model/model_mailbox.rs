//! The simplest mailbox: a list that every operation searches from its beginning. Times are in units.

use std::collections::HashMap;

use snakepit_mailbox::{AttemptEnd, DeadReason, MessageCounts};

use super::steps::ModelSend;

/// The model's name of a message: its number among all sent messages.
pub(super) type MessageNumber = usize;

#[derive(Clone, PartialEq, Debug)]
enum ModelState {
    Delayed { until: u64 },
    Visible,
    Leased { until: u64, lease: usize },
    Dead { reason: DeadReason, since: u64 },
    Gone,
}

struct ModelMessage {
    place: ModelState,
    priority: i8,
    sequence: u64,
    deliveries: u32,
    time_to_live: Option<u32>,
    expires: Option<u64>,
    attempts: Vec<ModelAttempt>,
}

/// An attempt: its delivery, how it ended, and its error.
pub(super) type ModelAttempt = (u32, AttemptEnd, Option<String>);

/// What happens to a message when its lease ends.
pub(super) enum LeaseOutcome {
    Gone,
    /// The message returns after a pause, with an error.
    Back(u32, String),
    /// The message returns as if it had not been delivered.
    Undone,
    Dead(DeadReason),
}

pub(super) struct ModelMailbox {
    limit: u32,
    now: u64,
    sequence: u64,
    items: Vec<ModelMessage>,
    keys: HashMap<u8, MessageNumber>,
    /// The message of each lease.
    leases: Vec<MessageNumber>,
    /// The dead letters, in the order of their list.
    dead: Vec<MessageNumber>,
}

impl ModelMessage {
    fn note(&mut self, end: AttemptEnd, error: Option<String>) {
        self.attempts.push((self.deliveries, end, error));
        let last_error = self.attempts.iter().rposition(|(.., error)| error.is_some());
        let first = self.attempts.len().saturating_sub(16);
        let kept = |(place, _): &(usize, &ModelAttempt)| *place >= first || Some(*place) == last_error;
        self.attempts = self.attempts.iter().enumerate().filter(kept).map(|(_, it)| it.clone()).collect();
    }
}

impl ModelMailbox {
    pub(super) fn new(limit: u32) -> Self {
        let (items, leases, dead) = (Vec::new(), Vec::new(), Vec::new());
        Self { limit, now: 0, sequence: 0, items, keys: HashMap::new(), leases, dead }
    }

    /// Returns the number of messages that were sent so far.
    pub(super) fn sent(&self) -> usize {
        self.items.len()
    }

    pub(super) fn clock(&self) -> u64 {
        self.now
    }

    pub(super) fn send(&mut self, sending: &ModelSend) -> MessageNumber {
        let name = self.items.len();
        if let Some(key) = sending.key {
            let first = *self.keys.entry(key).or_insert(name);
            if first != name {
                return first;
            }
        }
        self.sequence += 1;
        let until = self.now + u64::from(sending.delay);
        self.items.push(ModelMessage {
            place: if sending.delay == 0 { ModelState::Visible } else { ModelState::Delayed { until } },
            priority: sending.priority,
            sequence: self.sequence,
            deliveries: 0,
            time_to_live: sending.time_to_live,
            expires: sending.time_to_live.map(|time| self.now + u64::from(time)),
            attempts: Vec::new(),
        });
        name
    }

    /// Lets time pass unit by unit, so events happen in their order.
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
                ModelState::Leased { until, .. } if until <= self.now => {
                    self.items[name].note(AttemptEnd::Lapse, None);
                    self.come_back(name, 0);
                }
                ModelState::Delayed { .. } | ModelState::Visible if is_expired => {
                    self.die(name, DeadReason::Expired);
                }
                ModelState::Delayed { until } if until <= self.now => {
                    self.items[name].place = ModelState::Visible;
                }
                ModelState::Delayed { .. }
                | ModelState::Visible
                | ModelState::Leased { .. }
                | ModelState::Dead { .. }
                | ModelState::Gone => {}
            }
        }
    }

    fn come_back(&mut self, name: MessageNumber, pause: u32) {
        let item = &mut self.items[name];
        if item.deliveries >= self.limit {
            self.die(name, DeadReason::Deliveries);
        } else if item.expires.is_some_and(|at| at <= self.now) {
            self.die(name, DeadReason::Expired);
        } else if pause == 0 {
            item.place = ModelState::Visible;
        } else {
            item.place = ModelState::Delayed { until: self.now + u64::from(pause) };
        }
    }

    fn die(&mut self, name: MessageNumber, reason: DeadReason) {
        self.items[name].place = ModelState::Dead { reason, since: self.now };
        self.dead.push(name);
    }

    /// Returns the visible messages in order, and how often each was delivered.
    pub(super) fn visible(&self) -> Vec<(MessageNumber, u32)> {
        let mut names: Vec<MessageNumber> =
            (0..self.items.len()).filter(|name| self.items[*name].place == ModelState::Visible).collect();
        names.sort_by_key(|name| (-i32::from(self.items[*name].priority), self.items[*name].sequence));
        names.into_iter().map(|name| (name, self.items[name].deliveries)).collect()
    }

    pub(super) fn receive(&mut self, most: usize, lease: u32) -> Vec<(MessageNumber, u32)> {
        let mut received = self.visible();
        received.truncate(most);
        for (name, deliveries) in &mut received {
            *deliveries += 1;
            let place = ModelState::Leased { until: self.now + u64::from(lease), lease: self.leases.len() };
            self.items[*name].place = place;
            self.items[*name].deliveries = *deliveries;
            self.leases.push(*name);
        }
        // A lease of zero length is over at once.
        self.settle();
        received
    }

    fn held(&self, lease: usize) -> Option<MessageNumber> {
        let name = self.leases[lease];
        let is_held =
            matches!(self.items[name].place, ModelState::Leased { lease: current, .. } if current == lease);
        is_held.then_some(name)
    }

    /// Ends a lease. Returns `false` if it was already over.
    pub(super) fn end(&mut self, lease: usize, fate: LeaseOutcome) -> bool {
        let Some(name) = self.held(lease) else { return false };
        match fate {
            LeaseOutcome::Gone => self.items[name].place = ModelState::Gone,
            LeaseOutcome::Back(pause, error) => {
                self.items[name].note(AttemptEnd::Nack, Some(error));
                self.come_back(name, pause);
            }
            LeaseOutcome::Undone => {
                self.items[name].deliveries -= 1;
                self.come_back(name, 0);
            }
            LeaseOutcome::Dead(reason) => {
                self.items[name].note(AttemptEnd::Bury, reason.error().map(str::to_owned));
                self.die(name, reason);
            }
        }
        true
    }

    pub(super) fn extend(&mut self, lease: usize, time: u32, is_exact: bool) -> bool {
        let Some(name) = self.held(lease) else { return false };
        let wanted = self.now + u64::from(time);
        if let ModelState::Leased { until, .. } = &mut self.items[name].place {
            *until = if is_exact { wanted } else { wanted.max(*until) };
        }
        self.settle();
        true
    }

    /// Returns the attempts that a message remembers.
    pub(super) fn attempts(&self, name: MessageNumber) -> &[ModelAttempt] {
        &self.items[name].attempts
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Changes the limit. Messages that have already reached a lower limit die at once, unless they are leased.
    pub(super) fn set_limit(&mut self, limit: u32) {
        let is_lower = limit < self.limit;
        self.limit = limit;
        for name in 0..self.items.len() {
            let item = &self.items[name];
            let is_free = matches!(item.place, ModelState::Visible | ModelState::Delayed { .. });
            if is_lower && is_free && item.deliveries >= limit {
                self.die(name, DeadReason::Deliveries);
            }
        }
    }

    pub(super) fn count(&self) -> MessageCounts {
        let mut count = MessageCounts::default();
        for item in &self.items {
            match item.place {
                ModelState::Delayed { .. } => count.delayed += 1,
                ModelState::Visible => count.visible += 1,
                ModelState::Leased { .. } => count.in_flight += 1,
                ModelState::Dead { .. } => count.dead += 1,
                ModelState::Gone => {}
            }
        }
        count
    }

    fn remove(&mut self, is_chosen: impl Fn(&ModelState) -> bool) -> u64 {
        let mut removed = 0;
        for item in
            self.items.iter_mut().filter(|item| item.place != ModelState::Gone && is_chosen(&item.place))
        {
            item.place = ModelState::Gone;
            removed += 1;
        }
        removed
    }

    pub(super) fn purge(&mut self) -> u64 {
        self.remove(|place| !matches!(place, ModelState::Dead { .. }))
    }

    pub(super) fn purge_dead(&mut self) -> u64 {
        self.dead.clear();
        self.remove(|place| matches!(place, ModelState::Dead { .. }))
    }

    pub(super) fn redrive(&mut self, names: Option<&[MessageNumber]>) -> u64 {
        let is_chosen = |name: &MessageNumber| names.is_none_or(|names| names.contains(name));
        let (back, stay): (Vec<MessageNumber>, Vec<MessageNumber>) = self.dead.drain(..).partition(is_chosen);
        self.dead = stay;
        for name in &back {
            self.sequence += 1;
            let item = &mut self.items[*name];
            item.place = ModelState::Visible;
            item.deliveries = 0;
            item.sequence = self.sequence;
            item.expires = item.time_to_live.map(|time| self.now + u64::from(time));
        }
        back.len() as u64
    }

    /// Compares the list of dead letters. Messages that died at the same time may come in any order, which the model
    /// adopts.
    pub(super) fn agree_on_dead_letters(&mut self, listed: &[(MessageNumber, DeadReason, u32)]) {
        let mut last = 0;
        for (name, reason, deliveries) in listed {
            let item = &self.items[*name];
            let ModelState::Dead { reason: expected, since } = &item.place else {
                panic!("{name} is listed as dead, and is {:?}", item.place)
            };
            assert_eq!((reason, *deliveries), (expected, item.deliveries), "the dead letter {name}");
            assert!(*since >= last, "{name} died before one that is listed as older");
            last = *since;
        }
        let names: Vec<MessageNumber> = listed.iter().map(|(name, ..)| *name).collect();
        let (mut ours, mut theirs) = (self.dead.clone(), names.clone());
        ours.sort_unstable();
        theirs.sort_unstable();
        assert_eq!(theirs, ours, "dead letters");
        self.dead = names;
    }
}
