//! The messages of one mailbox and all that can happen to them. Knows no clock and nobody who waits: whoever calls says what
//! time it is, and asks afterwards what is new ([`Store::take_news`]).

mod graves;
mod looking;
mod replies;
mod settings;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::dedup::Dedup;
use super::groups::{Groups, Rates};
use super::lanes::Lanes;
use super::letter::{Ids, Letter, random};
use super::results::Results;
use super::timers::{Timer, Timers};
use crate::mailbox::attempt::{remember, shortened, this_process};
use crate::mailbox::message::Right;
use crate::mailbox::telling::hears_of_single_messages;
use crate::mailbox::{
    Attempt, AttemptEnd, Count, DeadReason, Extension, Mailbox, MailboxError, Message, MessageId, Nack,
    QueueSettings, Receipt, Send,
};

/// A time that never comes.
const NEVER: u64 = u64::MAX;

/// A time from now, in nanoseconds.
pub(super) fn after(now: u64, time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).map_or(NEVER, |nanos| now.saturating_add(nanos))
}

/// Whom to wake.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Ring {
    #[default]
    Nobody,
    /// There is something to receive; whoever takes some and leaves some wakes the next.
    One,
    /// Something is due earlier than those who wait believe, or the mailbox was closed.
    All,
}

/// What others should hear of.
#[derive(Default)]
pub(super) struct News {
    pub(super) ring: Ring,
    pub(super) sent: usize,
    /// A reply is kept.
    pub(super) answered: bool,
    /// Single messages, if anybody listens.
    pub(super) lapsed: Vec<(MessageId, u32)>,
    pub(super) dead: Vec<(MessageId, DeadReason, u32)>,
}

pub(super) struct Store {
    /// A receipt names a slot, so that nothing has to be searched.
    slots: Vec<Option<Held>>,
    free: Vec<u32>,
    lanes: Lanes,
    timers: Timers,
    dead: VecDeque<Dead>,
    dedup: Dedup,
    groups: Groups,
    rates: Rates,
    results: Results,
    ids: Ids,
    /// The last number that was given to a send, a lease or a delay. They start somewhere, so that a receipt of another mailbox,
    /// or of one that had this name in an earlier process, is good for nothing here.
    numbers: u64,
    count: Count,
    settings: QueueSettings,
    news: News,
    pub(super) is_closed: bool,
}

/// A message that is not dead.
struct Held {
    letter: Letter,
    /// Its place among all sends.
    sequence: u64,
    /// The number of its lease or delay.
    stage: u64,
    place: Place,
    /// When its lease or delay ends.
    due: u64,
    /// When its time to live does.
    expires: u64,
    /// When it was leased, if it is: by the mailbox's clock, and by the wall.
    leased: (u64, SystemTime),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Others of its group are before it.
    Behind,
    Delayed,
    Visible,
    Leased,
}

struct Dead {
    letter: Letter,
    reason: DeadReason,
    died: SystemTime,
}

fn is_visible(slots: &[Option<Held>], (sequence, slot): (u64, u32)) -> bool {
    matches!(&slots[slot as usize], Some(held) if held.sequence == sequence && held.place == Place::Visible)
}

fn matters(slots: &[Option<Held>], timer: &Timer) -> bool {
    slots[timer.slot as usize].as_ref().is_some_and(|held| match held.place {
        Place::Delayed | Place::Leased if held.stage == timer.about => true,
        Place::Behind | Place::Delayed | Place::Visible | Place::Leased => held.sequence == timer.about,
    })
}

impl Store {
    pub(super) fn new(settings: QueueSettings) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            lanes: Lanes::default(),
            timers: Timers::default(),
            dead: VecDeque::new(),
            dedup: Dedup::default(),
            groups: Groups::default(),
            rates: Rates::default(),
            results: Results::default(),
            ids: Ids::new(),
            numbers: random() as u64,
            count: Count::default(),
            settings,
            news: News::default(),
            is_closed: false,
        }
    }

    /// What has happened since this was last asked.
    pub(super) fn take_news(&mut self) -> News {
        std::mem::take(&mut self.news)
    }

    pub(super) fn ring(&mut self, ring: Ring) {
        self.news.ring = self.news.ring.max(ring);
    }

    /// When something happens by itself.
    pub(super) fn next_due(&self) -> Option<u64> {
        self.timers.next()
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn add_timer(&mut self, at: u64, about: u64, slot: u32) {
        if at != NEVER && self.timers.add(Timer { at, about, slot }) {
            self.ring(Ring::All);
        }
    }

    /// Takes what it needs out of the options: they are large, and most messages need next to nothing of them.
    pub(super) fn send(
        &mut self,
        body: Vec<u8>,
        options: &mut Send,
        now: u64,
        wall: SystemTime,
    ) -> MessageId {
        let (key, window) = (options.dedup_key.take(), options.dedup_window());
        if let Some(id) = key.as_ref().and_then(|key| self.dedup.find(key, now)) {
            return id;
        }
        let id = self.ids.next(wall);
        if let Some(key) = key {
            self.dedup.note(key, id, window, now);
        }
        let delay = options.delay;
        self.news.sent += 1;
        self.put(Letter::new(id, body, options, wall), delay, now);
        id
    }

    /// Behind all others of its priority.
    fn put(&mut self, letter: Letter, delay: Duration, now: u64) {
        let (sequence, priority) = (self.number(), letter.priority);
        let expires = letter.time_to_live.map_or(NEVER, |time| after(now, time));
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        let leased = (now, SystemTime::UNIX_EPOCH);
        let mut held =
            Held { letter, sequence, stage: sequence, place: Place::Visible, due: NEVER, expires, leased };
        let is_first = held.letter.group().is_none_or(|group| self.groups.join(group, sequence, slot));
        if !is_first {
            held.place = Place::Behind;
            self.count.delayed += 1;
        } else if delay.is_zero() {
            self.lanes.append(priority, sequence, slot);
            self.count.visible += 1;
            self.ring(Ring::One);
        } else {
            held.place = Place::Delayed;
            held.stage = self.number();
            held.due = after(now, delay);
            self.count.delayed += 1;
            self.add_timer(held.due, held.stage, slot);
        }
        self.slots[slot as usize] = Some(held);
        self.add_timer(expires, sequence, slot);
    }

    /// Does what was due before now: every operation that looks at messages begins with it.
    pub(super) fn settle(&mut self, now: u64) {
        while let Some(timer) = self.timers.pop_due(now) {
            if !matters(&self.slots, &timer) {
                self.timers.drop_stale();
                continue;
            }
            let Some(held) = &self.slots[timer.slot as usize] else { continue };
            if held.stage == timer.about && held.place != Place::Visible {
                if held.due > timer.at {
                    // The lease was extended since.
                    self.add_timer(held.due, timer.about, timer.slot);
                } else {
                    if held.place == Place::Leased && hears_of_single_messages() {
                        self.news.lapsed.push((held.letter.id, held.letter.deliveries));
                    }
                    if held.place == Place::Leased {
                        self.note_attempt(timer.slot, AttemptEnd::Lapse, None, timer.at);
                    }
                    self.come_back(timer.slot, Duration::ZERO, timer.at);
                }
            } else if held.place != Place::Leased {
                self.die(timer.slot, DeadReason::Expired);
            }
        }
    }

    /// A lease is about to end without an ack.
    fn note_attempt(&mut self, slot: u32, end: AttemptEnd, error: Option<&str>, now: u64) {
        let Some(held) = &mut self.slots[slot as usize] else { return };
        let (leased, began_at) = held.leased;
        let attempt = Attempt {
            delivery: held.letter.deliveries,
            began_at,
            took: Duration::from_nanos(now.saturating_sub(leased)),
            holder: this_process(),
            end,
            error: error.map(shortened),
        };
        remember(&mut held.letter.attempts, attempt);
    }

    /// A lease or a delay is over: the message can be received again after `pause`, unless it is given up.
    fn come_back(&mut self, slot: u32, pause: Duration, now: u64) {
        let stage = self.number();
        let Some(held) = &mut self.slots[slot as usize] else { return };
        if held.place == Place::Leased && held.letter.deliveries >= self.settings.max_deliveries {
            return self.die(slot, DeadReason::Deliveries);
        }
        if held.expires <= now {
            return self.die(slot, DeadReason::Expired);
        }
        *place_count(&mut self.count, held.place) -= 1;
        if pause.is_zero() {
            held.place = Place::Visible;
            held.due = NEVER;
            self.lanes.restore(held.letter.priority, held.sequence, slot);
            self.count.visible += 1;
            self.ring(Ring::One);
        } else {
            held.place = Place::Delayed;
            held.stage = stage;
            held.due = after(now, pause);
            let due = held.due;
            self.count.delayed += 1;
            self.add_timer(due, stage, slot);
        }
    }

    /// Takes the message out, wherever it is.
    fn remove(&mut self, slot: u32) -> Option<Letter> {
        let held = self.slots[slot as usize].take()?;
        self.free.push(slot);
        *place_count(&mut self.count, held.place) -= 1;
        let slots = &self.slots;
        if held.place == Place::Visible {
            self.lanes.note_gone(held.letter.priority, |entry| is_visible(slots, entry));
        }
        let timers = usize::from(held.due != NEVER) + usize::from(held.expires != NEVER);
        self.timers.note_stale(timers, |timer| matters(slots, timer));
        match held.letter.group() {
            Some(group) if held.place == Place::Behind => self.groups.leave(group, held.sequence, slot),
            Some(group) => {
                if let Some(next) = self.groups.next(group) {
                    self.promote(next);
                }
            }
            None => {}
        }
        Some(held.letter)
    }

    /// It is the first of its group now.
    fn promote(&mut self, slot: u32) {
        let Some(held) = &mut self.slots[slot as usize] else { return };
        held.place = Place::Visible;
        self.lanes.restore(held.letter.priority, held.sequence, slot);
        self.count.delayed -= 1;
        self.count.visible += 1;
        self.ring(Ring::One);
    }

    /// How many may be given out now, if so many are asked for.
    fn allowed(&self, most: usize, now: u64) -> usize {
        let most = most.min(self.count.visible as usize);
        match &self.settings.rate_limit {
            _ if self.settings.paused => 0,
            Some(rate) => most.min(self.rates.whole(rate, now).0 as usize),
            None => most,
        }
    }

    /// When a receiver that was given nothing has to look again.
    pub(super) fn next_look(&self, now: u64) -> Option<u64> {
        let due = self.next_due();
        match &self.settings.rate_limit {
            Some(rate) if self.count.visible > 0 && !self.settings.paused => {
                let (left, until) = self.rates.whole(rate, now);
                if left == 0 { Some(due.map_or(until, |due| due.min(until))) } else { due }
            }
            _ => due,
        }
    }

    /// Delays a message whose group has used up its rate; whether it has.
    fn put_off(&mut self, slot: u32, now: u64) -> bool {
        let stage = self.number();
        let (Some(rate), Some(held)) = (&self.settings.group_rate_limit, &mut self.slots[slot as usize])
        else {
            return false;
        };
        let Some(group) = held.letter.group() else { return false };
        let (left, until) = self.rates.of_group(group, rate, now);
        if left > 0 {
            self.rates.spend_of_group(group, rate, now);
            return false;
        }
        held.place = Place::Delayed;
        held.stage = stage;
        held.due = until;
        self.count.visible -= 1;
        self.count.delayed += 1;
        self.add_timer(until, stage, slot);
        true
    }

    /// Leases up to `most` messages until `due`.
    pub(super) fn receive(
        &mut self,
        most: usize,
        (now, wall): (u64, SystemTime),
        due: u64,
        mailbox: impl Fn() -> Arc<dyn Mailbox>,
    ) -> Vec<Message> {
        let most = self.allowed(most, now);
        if most == 0 {
            return Vec::new();
        }
        let mailbox = mailbox();
        let mut messages = Vec::with_capacity(most);
        while messages.len() < most {
            let slots = &self.slots;
            let Some((_, slot)) = self.lanes.pop(|entry| is_visible(slots, entry)) else { break };
            if self.put_off(slot, now) {
                continue;
            }
            let lease = self.number();
            let Some(held) = &mut self.slots[slot as usize] else { break };
            held.place = Place::Leased;
            held.stage = lease;
            held.due = due;
            held.leased = (now, wall);
            held.letter.deliveries += 1;
            let receipt = Receipt(Right::Numbers { message: u64::from(slot), lease });
            messages.push(held.letter.message(Some(receipt), self.settings.max_deliveries, &mailbox));
            self.count.visible -= 1;
            self.count.in_flight += 1;
            self.add_timer(due, lease, slot);
        }
        if let Some(rate) = &self.settings.rate_limit {
            self.rates.spend_whole(rate, now, messages.len() as u32);
        }
        if self.count.visible > 0 {
            self.ring(Ring::One);
        }
        messages
    }

    /// The slot of the message that the receipt is a right to, if it is one now.
    fn leased(&self, receipt: &Receipt, now: u64) -> Result<u32, MailboxError> {
        let Right::Numbers { message, lease } = receipt.0 else { return Err(MailboxError::ReceiptExpired) };
        let slot = usize::try_from(message).ok().and_then(|slot| self.slots.get(slot)?.as_ref());
        match slot {
            Some(held) if held.place == Place::Leased && held.stage == lease && now < held.due => {
                Ok(message as u32)
            }
            _ => Err(MailboxError::ReceiptExpired),
        }
    }

    pub(super) fn ack(&mut self, receipt: &Receipt, now: u64) -> Result<(), MailboxError> {
        let slot = self.leased(receipt, now)?;
        self.remove(slot);
        Ok(())
    }

    pub(super) fn release(&mut self, receipt: &Receipt, now: u64) -> Result<(), MailboxError> {
        let slot = self.leased(receipt, now)?;
        if let Some(held) = &mut self.slots[slot as usize] {
            held.letter.deliveries -= 1;
        }
        self.give_back(slot, Duration::ZERO, now);
        Ok(())
    }

    pub(super) fn nack(&mut self, receipt: &Receipt, options: &Nack, now: u64) -> Result<(), MailboxError> {
        let slot = self.leased(receipt, now)?;
        self.note_attempt(slot, AttemptEnd::Nack, options.error.as_deref(), now);
        self.give_back(slot, options.visibility, now);
        Ok(())
    }

    fn give_back(&mut self, slot: u32, pause: Duration, now: u64) {
        self.come_back(slot, pause, now);
        let slots = &self.slots;
        self.timers.note_stale(1, |timer| matters(slots, timer));
    }

    pub(super) fn extend(
        &mut self,
        receipt: &Receipt,
        time: Duration,
        extension: Extension,
        now: u64,
    ) -> Result<(), MailboxError> {
        let slot = self.leased(receipt, now)?;
        let Some(held) = &mut self.slots[slot as usize] else { return Err(MailboxError::ReceiptExpired) };
        let due = after(now, time);
        if due > held.due {
            // The timer is looked at when it is due, and put off then.
            held.due = due;
        } else if extension == Extension::Exactly && due < held.due {
            held.due = due;
            let lease = held.stage;
            self.add_timer(due, lease, slot);
        }
        Ok(())
    }

    pub(super) fn purge(&mut self) -> u64 {
        let Count { visible, in_flight, delayed, dead } = self.count;
        self.slots.clear();
        self.free.clear();
        self.lanes.clear();
        self.groups.clear();
        self.timers.clear();
        self.count = Count { dead, ..Count::default() };
        visible + in_flight + delayed
    }
}

fn place_count(count: &mut Count, place: Place) -> &mut u64 {
    match place {
        Place::Behind | Place::Delayed => &mut count.delayed,
        Place::Visible => &mut count.visible,
        Place::Leased => &mut count.in_flight,
    }
}

#[cfg(test)]
mod tests;
