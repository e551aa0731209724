//! Receivers that wait for a message, in the order in which they came, and those who wait for a reply.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::clock::{Micros, micros};
use super::inbox::Order;
use super::order::{Answer, Ask, Received};

#[derive(Default)]
pub(super) struct Parked {
    lines: HashMap<Arc<str>, Line>,
}

/// Those who wait for messages of one queue.
#[derive(Default)]
pub(super) struct Line {
    waiting: VecDeque<Waiting>,
    /// Those who wait for the reply to one message.
    for_replies: Vec<Waiting>,
    /// The newest reply that they were shown.
    pub(super) newest_reply: i64,
    /// When something comes back by itself.
    pub(super) next: Option<Micros>,
}

pub(super) struct Waiting {
    pub(super) order: Order,
    until: Micros,
}

/// How long an order wants to wait.
fn wait_of(order: &Order) -> Duration {
    match &order.ask {
        Ask::Receive(options) => options.wait,
        Ask::Result(_, wait) => *wait,
        _ => Duration::ZERO,
    }
}

impl Waiting {
    /// Whether it still waits; one that has waited for long enough is told.
    fn goes_on(&mut self, now: Micros) -> bool {
        let is_over = self.until <= now;
        if is_over && let Some(answer) = self.order.answer.take() {
            let nothing = match &self.order.ask {
                Ask::Result(..) => Answer::Reply(None),
                _ => Answer::Received(Received::new(Vec::new(), None)),
            };
            let _ = answer.send(Ok(nothing));
        }
        !is_over && !self.order.is_given_up()
    }
}

impl Line {
    /// The next who still waits.
    pub(super) fn next_waiting(&mut self) -> Option<Waiting> {
        std::iter::from_fn(|| self.waiting.pop_front()).find(|waiting| !waiting.order.is_given_up())
    }

    pub(super) fn has_receivers(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether anybody waits for a reply.
    pub(super) fn waits_for_replies(&self) -> bool {
        !self.for_replies.is_empty()
    }

    /// Those who wait for a reply, to be looked at one by one; who goes on waiting is put back.
    pub(super) fn take_for_replies(&mut self) -> Vec<Waiting> {
        let mut waiting = std::mem::take(&mut self.for_replies);
        waiting.retain(|waiting| !waiting.order.is_given_up());
        waiting
    }

    pub(super) fn put_back_for_replies(&mut self, waiting: Vec<Waiting>) {
        self.for_replies = waiting;
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.for_replies.is_empty()
    }

    fn all(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter().chain(&self.for_replies)
    }

    /// It is still the first: there was nothing for it.
    pub(super) fn put_back(&mut self, waiting: Waiting) {
        self.waiting.push_front(waiting);
    }
}

impl Parked {
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub(super) fn lines(&mut self) -> impl Iterator<Item = (&Arc<str>, &mut Line)> {
        self.lines.iter_mut()
    }

    /// Whether the order wants to wait.
    pub(super) fn wants(order: &Order) -> bool {
        !wait_of(order).is_zero()
    }

    /// Takes a receive that has found nothing.
    pub(super) fn park(&mut self, order: Order, next: Option<Micros>, now: Micros) {
        let until = now.saturating_add(micros(wait_of(&order)));
        let line = self.lines.entry(Arc::clone(&order.queue)).or_default();
        line.next = next;
        line.waiting.push_back(Waiting { order, until });
    }

    /// Takes somebody who waits for a reply.
    pub(super) fn park_for_reply(&mut self, order: Order, now: Micros) {
        let until = now.saturating_add(micros(wait_of(&order)));
        let line = self.lines.entry(Arc::clone(&order.queue)).or_default();
        line.for_replies.push(Waiting { order, until });
    }

    /// All who wait, to be told that it cannot be.
    pub(super) fn take_all(&mut self) -> Vec<Order> {
        let lines = self.lines.drain();
        let waiting = lines.flat_map(|(_, line)| line.waiting.into_iter().chain(line.for_replies));
        waiting.map(|waiting| waiting.order).collect()
    }

    /// Answers those who have waited for long enough, and forgets those who have gone.
    pub(super) fn dismiss(&mut self, now: Micros) {
        self.lines.retain(|_, line| {
            line.waiting.retain_mut(|waiting| waiting.goes_on(now));
            line.for_replies.retain_mut(|waiting| waiting.goes_on(now));
            if line.waiting.is_empty() {
                // Whoever waits for a reply is not woken by what comes back.
                line.next = None;
            }
            !line.is_empty()
        });
    }

    /// When the next thing happens that nobody announces.
    pub(super) fn next(&self) -> Option<Micros> {
        let ends = self.lines.values().flat_map(|line| line.all().map(|waiting| waiting.until));
        ends.chain(self.lines.values().filter_map(|line| line.next)).min()
    }
}
