//! Receivers that wait for a message, in the order in which they came.

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
    /// When something comes back by itself.
    pub(super) next: Option<Micros>,
}

pub(super) struct Waiting {
    pub(super) order: Order,
    until: Micros,
}

impl Line {
    /// The next who still waits.
    pub(super) fn next_waiting(&mut self) -> Option<Waiting> {
        std::iter::from_fn(|| self.waiting.pop_front()).find(|waiting| !waiting.order.is_given_up())
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
        matches!(&order.ask, Ask::Receive(options) if !options.wait.is_zero())
    }

    /// Takes a receive that has found nothing.
    pub(super) fn park(&mut self, order: Order, next: Option<Micros>, now: Micros) {
        let wait = if let Ask::Receive(options) = &order.ask { options.wait } else { Duration::ZERO };
        let until = now.saturating_add(micros(wait));
        let line = self.lines.entry(Arc::clone(&order.queue)).or_default();
        line.next = next;
        line.waiting.push_back(Waiting { order, until });
    }

    /// All who wait, to be told that it cannot be.
    pub(super) fn take_all(&mut self) -> Vec<Order> {
        self.lines.drain().flat_map(|(_, line)| line.waiting).map(|waiting| waiting.order).collect()
    }

    /// Answers those who have waited for long enough, and forgets those who have gone.
    pub(super) fn dismiss(&mut self, now: Micros) {
        self.lines.retain(|_, line| {
            line.waiting.retain_mut(|waiting| {
                let is_over = waiting.until <= now;
                if is_over && let Some(answer) = waiting.order.answer.take() {
                    let _ = answer.send(Ok(Answer::Received(Received::new(Vec::new(), None))));
                }
                !is_over && !waiting.order.is_given_up()
            });
            !line.waiting.is_empty()
        });
    }

    /// When the next thing happens that nobody announces.
    pub(super) fn next(&self) -> Option<Micros> {
        let ends = self.lines.values().flat_map(|line| line.waiting.iter().map(|waiting| waiting.until));
        ends.chain(self.lines.values().filter_map(|line| line.next)).min()
    }
}
