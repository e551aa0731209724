//! The messages of one mailbox and the operations on them. Must not know the clock or the waiting callers: the caller
//! passes the time in, and collects the side effects of an operation afterwards ([`Store::take_effects`]).
//!
//! This file sends, delivers and gives back messages. `replies` answers messages, `dead_letters` gives them up,
//! `inspection` reads them, and `configuration` changes the settings.

mod configuration;
mod dead_letters;
mod inspection;
mod replies;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::expiring_map::ExpiringMap;
use super::groups::MessageGroups;
use super::priorities::PriorityQueue;
use super::queued_message::QueuedMessage;
use super::rates::{RateUsage, RateWait};
use super::timers::{Timer, Timers};
use crate::LeaseChange;
use crate::backend::Throttle;
use crate::backend::{TimeToLive, given_up, remember_attempt};
use crate::clock::Clock;
use crate::message::ReceiptKey;
use crate::message::ids::{MessageIds, random};
use crate::telemetry::{self, MessageEvent};
use crate::{
    Attempt, AttemptEnd, DeadReason, LeaseExtension, Mailbox, MailboxError, Message, MessageCounts,
    MessageId, QueueSettings, Receipt, Reply, SendOptions,
};

/// A time that is never reached.
const NEVER: u64 = u64::MAX;

/// Returns the time that lies `time` after `now`, in nanoseconds.
pub(crate) fn after(now: u64, time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).map_or(NEVER, |nanos| now.saturating_add(nanos))
}

/// Which receivers to wake.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Wake {
    #[default]
    Nobody,
    /// A message became visible. A receiver that leaves messages wakes the next receiver.
    One,
    /// A timer is due earlier than receivers assume, or the mailbox was closed.
    All,
}

/// The side effects of operations that the caller must publish.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) wake: Wake,
    pub(crate) sent: usize,
    /// Whether a reply was kept.
    pub(crate) answered: bool,
    pub(crate) events: Vec<MessageEvent>,
}

pub(crate) struct Store {
    clock: Arc<dyn Clock>,
    /// The live messages. A receipt contains the slot, so no search is needed.
    slots: Vec<Option<LiveMessage>>,
    free: Vec<u32>,
    visible: PriorityQueue,
    timers: Timers,
    dead: VecDeque<DeadMessage>,
    /// The ids of messages sent with a dedup key.
    dedup: ExpiringMap<String, MessageId>,
    groups: MessageGroups,
    rates: RateUsage,
    /// The kept replies, by the ids of their requests.
    replies: ExpiringMap<MessageId, Reply>,
    ids: MessageIds,
    /// The last number given to a send, a lease or a delay. The first number is random, so that a receipt of another
    /// mailbox, or of a mailbox with this name in an earlier process, is not valid here.
    numbers: u64,
    count: MessageCounts,
    settings: QueueSettings,
    effects: Effects,
    pub(crate) is_closed: bool,
}

/// A message that is not dead.
struct LiveMessage {
    message: QueuedMessage,
    /// The message's position among all sends.
    sequence: u64,
    /// The number of the lease or delay.
    term: u64,
    state: LiveState,
    /// The end of the lease or delay.
    due: u64,
    /// The end of the time to live.
    expires: u64,
    /// The start of the last lease, by the mailbox's clock and by the wall clock.
    leased: (u64, SystemTime),
    /// Whether its key had used up its rate when a receiver came, since the last lease.
    waits_for_rate: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LiveState {
    /// Earlier messages of the group come first.
    Behind,
    Delayed,
    Visible,
    Leased,
}

struct DeadMessage {
    message: QueuedMessage,
    reason: DeadReason,
    died: SystemTime,
}

fn is_visible(slots: &[Option<LiveMessage>], (sequence, slot): (u64, u32)) -> bool {
    matches!(&slots[slot as usize], Some(live) if live.sequence == sequence && live.state == LiveState::Visible)
}

/// Reports whether a timer still refers to a current lease, delay or message.
fn is_pending(slots: &[Option<LiveMessage>], timer: &Timer) -> bool {
    slots[timer.slot as usize].as_ref().is_some_and(|live| match live.state {
        LiveState::Delayed | LiveState::Leased if live.term == timer.number => true,
        LiveState::Behind | LiveState::Delayed | LiveState::Visible | LiveState::Leased => {
            live.sequence == timer.number
        }
    })
}

fn count_of(count: &mut MessageCounts, state: LiveState) -> &mut u64 {
    match state {
        LiveState::Behind | LiveState::Delayed => &mut count.delayed,
        LiveState::Visible => &mut count.visible,
        LiveState::Leased => &mut count.in_flight,
    }
}

impl Store {
    pub(crate) fn new(settings: QueueSettings, clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            slots: Vec::new(),
            free: Vec::new(),
            visible: PriorityQueue::default(),
            timers: Timers::default(),
            dead: VecDeque::new(),
            dedup: ExpiringMap::default(),
            groups: MessageGroups::default(),
            rates: RateUsage::default(),
            replies: ExpiringMap::default(),
            ids: MessageIds::new(),
            numbers: random() as u64,
            count: MessageCounts::default(),
            settings,
            effects: Effects::default(),
            is_closed: false,
        }
    }

    /// Returns the side effects since the last call.
    pub(crate) fn take_effects(&mut self) -> Effects {
        std::mem::take(&mut self.effects)
    }

    pub(crate) fn wake(&mut self, wake: Wake) {
        self.effects.wake = self.effects.wake.max(wake);
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn live(&mut self, slot: u32) -> Option<&mut LiveMessage> {
        self.slots[slot as usize].as_mut()
    }

    fn add_timer(&mut self, at: u64, number: u64, slot: u32) {
        if at != NEVER && self.timers.add(Timer { at, number, slot }) {
            self.wake(Wake::All);
        }
    }

    fn drop_timers(&mut self, timers: usize) {
        let slots = &self.slots;
        self.timers.note_stale(timers, |timer| is_pending(slots, timer));
    }

    /// Stores a message and returns its id. Takes only the needed values out of the options, because the options are
    /// large and most messages need few of them.
    pub(crate) fn send(
        &mut self,
        body: Vec<u8>,
        options: &mut SendOptions,
        now: u64,
        wall: SystemTime,
    ) -> MessageId {
        let (key, window) = (options.dedup_key.take(), options.dedup_window());
        if let Some(id) = key.as_ref().and_then(|key| self.dedup.find(key, now)) {
            return id;
        }
        let id = self.ids.next(wall);
        if let Some(key) = key {
            self.dedup.insert(key, id, after(now, window), now);
        }
        let delay = options.delay;
        self.effects.sent += 1;
        self.put(QueuedMessage::new(id, body, options, wall), delay, now);
        id
    }

    /// Adds a message behind all other messages of its priority.
    fn put(&mut self, message: QueuedMessage, delay: Duration, now: u64) {
        let (sequence, priority) = (self.number(), message.priority);
        let expires = message.time_to_live.map_or(NEVER, |time| after(now, time));
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        let is_first = message.group().is_none_or(|group| self.groups.join(group, sequence, slot));
        let leased = (now, SystemTime::UNIX_EPOCH);
        let state = LiveState::Visible;
        let (term, due, waits_for_rate) = (sequence, NEVER, false);
        let live = LiveMessage { message, sequence, term, state, due, expires, leased, waits_for_rate };
        let live = self.slots[slot as usize].insert(live);
        if !is_first {
            live.state = LiveState::Behind;
            self.count.delayed += 1;
        } else if delay.is_zero() {
            self.visible.append(priority, sequence, slot);
            self.count.visible += 1;
            self.wake(Wake::One);
        } else {
            self.count.visible += 1;
            self.delay(slot, after(now, delay));
        }
        self.add_timer(expires, sequence, slot);
    }

    /// Makes a message unavailable until `due`.
    fn delay(&mut self, slot: u32, due: u64) {
        let term = self.number();
        let Some(live) = &mut self.slots[slot as usize] else { return };
        *count_of(&mut self.count, live.state) -= 1;
        self.count.delayed += 1;
        live.state = LiveState::Delayed;
        live.term = term;
        live.due = due;
        self.add_timer(due, term, slot);
    }

    /// Makes a message visible in its old position.
    fn show(&mut self, slot: u32) {
        let Some(live) = &mut self.slots[slot as usize] else { return };
        *count_of(&mut self.count, live.state) -= 1;
        self.count.visible += 1;
        live.state = LiveState::Visible;
        live.due = NEVER;
        self.visible.restore(live.message.priority, live.sequence, slot);
        self.wake(Wake::One);
    }

    /// Processes all timers that are due. Every operation that reads messages calls this first.
    pub(crate) fn settle(&mut self, now: u64) {
        while let Some(timer) = self.timers.pop_due(now) {
            if !is_pending(&self.slots, &timer) {
                self.timers.drop_stale();
                continue;
            }
            let Some(live) = &self.slots[timer.slot as usize] else { continue };
            if live.term == timer.number && matches!(live.state, LiveState::Leased | LiveState::Delayed) {
                if live.due > timer.at {
                    // The lease was extended after this timer was set.
                    self.add_timer(live.due, timer.number, timer.slot);
                    continue;
                }
                if live.state == LiveState::Leased {
                    let (id, delivery) = (live.message.id, live.message.deliveries);
                    telemetry::note(&mut self.effects.events, || MessageEvent::LeaseLapsed(id, delivery));
                    self.record_attempt(timer.slot, AttemptEnd::Lapse, None, timer.at);
                }
                self.come_back(timer.slot, Duration::ZERO, timer.at);
            } else if live.state != LiveState::Leased {
                self.die(timer.slot, DeadReason::Expired);
            }
        }
    }

    /// Records a lease that ends without an ack.
    fn record_attempt(&mut self, slot: u32, end: AttemptEnd, error: Option<&str>, now: u64) {
        let Some(live) = self.live(slot) else { return };
        let (leased, began_at) = live.leased;
        let took = Duration::from_nanos(now.saturating_sub(leased));
        let attempt = Attempt::new(live.message.deliveries, began_at, took, end, error);
        remember_attempt(&mut live.message.attempts, attempt);
    }

    /// Ends a lease or delay: the message can be received again after `pause`, unless it is given up.
    fn come_back(&mut self, slot: u32, pause: Duration, now: u64) {
        let Some(live) = &self.slots[slot as usize] else { return };
        // The delivery limit applies only at the end of a lease.
        let deliveries = if live.state == LiveState::Leased { live.message.deliveries } else { 0 };
        let time_to_live = if live.expires <= now { TimeToLive::Over } else { TimeToLive::Left };
        if let Some(reason) = given_up(deliveries, self.settings.max_deliveries, time_to_live) {
            self.die(slot, reason);
        } else if pause.is_zero() {
            self.show(slot);
        } else {
            self.delay(slot, after(now, pause));
        }
    }

    /// Removes a message in any state.
    fn remove(&mut self, slot: u32) -> Option<QueuedMessage> {
        let live = self.slots[slot as usize].take()?;
        self.free.push(slot);
        *count_of(&mut self.count, live.state) -= 1;
        let slots = &self.slots;
        if live.state == LiveState::Visible {
            self.visible.note_gone(live.message.priority, |entry| is_visible(slots, entry));
        }
        self.drop_timers(usize::from(live.due != NEVER) + usize::from(live.expires != NEVER));
        match live.message.group() {
            Some(group) if live.state == LiveState::Behind => self.groups.leave(group, live.sequence, slot),
            Some(group) => {
                if let Some(next) = self.groups.next(group) {
                    self.show(next);
                }
            }
            None => {}
        }
        Some(live.message)
    }

    fn throttle(&self, now: u64) -> Throttle {
        let Ok(throttle) = self.settings.throttle(now, |rate| {
            Ok::<_, std::convert::Infallible>((self.rates.period(), after(0, rate.per)))
        });
        throttle
    }

    /// Returns when a receiver that got nothing must look again.
    pub(crate) fn next_look(&self, now: u64) -> Option<u64> {
        let due = self.timers.next();
        match self.throttle(now) {
            Throttle::Until(until) if self.count.visible > 0 => Some(due.map_or(until, |due| due.min(until))),
            Throttle::Until(_) | Throttle::AtMost(_) | Throttle::Paused => due,
        }
    }

    /// Delays the message if its key has reached its rate limit, and returns whether it has.
    fn delay_by_rate(&mut self, slot: u32, now: u64) -> bool {
        let (Some(rate), Some(live)) = (&self.settings.group_rate_limit, &self.slots[slot as usize]) else {
            return false;
        };
        let Some(key) = live.message.rate_key() else { return false };
        let wait = if live.waits_for_rate { RateWait::Again } else { RateWait::First };
        let Some(until) = self.rates.spend_of_key(key, rate, now, wait) else { return false };
        self.delay(slot, until);
        if let Some(live) = self.live(slot) {
            live.waits_for_rate = true;
        }
        true
    }

    /// Leases up to `most` messages until `due`.
    pub(crate) fn receive(
        &mut self,
        most: usize,
        (now, wall): (u64, SystemTime),
        due: u64,
        mailbox: impl Fn() -> Arc<dyn Mailbox>,
    ) -> Vec<Message> {
        let Throttle::AtMost(allowed) = self.throttle(now) else { return Vec::new() };
        let most = most.min(self.count.visible as usize).min(allowed as usize);
        if most == 0 {
            return Vec::new();
        }
        let mailbox = mailbox();
        let mut messages = Vec::with_capacity(most);
        while messages.len() < most {
            let slots = &self.slots;
            let Some((_, slot)) = self.visible.pop(|entry| is_visible(slots, entry)) else { break };
            if self.delay_by_rate(slot, now) {
                continue;
            }
            let lease = self.number();
            let Some(live) = &mut self.slots[slot as usize] else { break };
            live.state = LiveState::Leased;
            live.waits_for_rate = false;
            live.term = lease;
            live.due = due;
            live.leased = (now, wall);
            live.message.deliveries += 1;
            let receipt = Receipt(ReceiptKey::Numbers { message: u64::from(slot), lease });
            messages.push(live.message.message(Some(receipt), self.settings.max_deliveries, &mailbox));
            self.count.visible -= 1;
            self.count.in_flight += 1;
            self.add_timer(due, lease, slot);
        }
        if let Some(rate) = &self.settings.rate_limit {
            self.rates.spend(rate, now, messages.len() as u32);
        }
        if self.count.visible > 0 {
            self.wake(Wake::One);
        }
        messages
    }

    /// Returns the slot of the message that this receipt leases.
    fn leased(&self, receipt: &Receipt, now: u64) -> Result<u32, MailboxError> {
        let ReceiptKey::Numbers { message, lease } = receipt.0 else {
            return Err(MailboxError::ReceiptExpired);
        };
        let slot = usize::try_from(message).ok().and_then(|slot| self.slots.get(slot)?.as_ref());
        match slot {
            Some(live) if live.state == LiveState::Leased && live.term == lease && now < live.due => {
                Ok(message as u32)
            }
            _ => Err(MailboxError::ReceiptExpired),
        }
    }

    pub(crate) fn change_lease(
        &mut self,
        receipt: &Receipt,
        change: &LeaseChange,
        now: u64,
    ) -> Result<(), MailboxError> {
        let slot = self.leased(receipt, now)?;
        match change {
            LeaseChange::Ack => {
                self.remove(slot);
            }
            LeaseChange::Nack(options) => {
                self.record_attempt(slot, AttemptEnd::Nack, options.error.as_deref(), now);
                self.give_back(slot, options.visibility, now);
            }
            LeaseChange::Release => {
                if let Some(live) = self.live(slot) {
                    live.message.deliveries -= 1;
                }
                self.give_back(slot, Duration::ZERO, now);
            }
            LeaseChange::Extend(visibility, extension) => {
                self.extend(slot, after(now, *visibility), *extension);
            }
            LeaseChange::Bury(reason) => {
                self.record_attempt(slot, AttemptEnd::Bury, reason.error(), now);
                self.die(slot, reason.clone());
            }
        }
        Ok(())
    }

    fn give_back(&mut self, slot: u32, pause: Duration, now: u64) {
        // The message may become a dead letter here; messages whose timers are already due must come before it.
        self.settle(now);
        self.come_back(slot, pause, now);
        self.drop_timers(1);
    }

    fn extend(&mut self, slot: u32, due: u64, extension: LeaseExtension) {
        let Some(live) = self.live(slot) else { return };
        if due > live.due {
            // The old timer stays: when it is due, it is set again to the new end.
            live.due = due;
        } else if extension == LeaseExtension::Exactly && due < live.due {
            live.due = due;
            let lease = live.term;
            self.add_timer(due, lease, slot);
        }
    }

    pub(crate) fn purge(&mut self) -> u64 {
        let MessageCounts { visible, in_flight, delayed, dead } = self.count;
        self.slots.clear();
        self.free.clear();
        self.visible.clear();
        self.groups.clear();
        self.timers.clear();
        self.count = MessageCounts { dead, ..MessageCounts::default() };
        visible + in_flight + delayed
    }
}
