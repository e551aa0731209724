//! The messages that a run has received and not settled, waiting ones too: whose leases are extended, and what is given
//! back if the run is dropped.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::settle::CUT_OFF;
use super::{Control, Holding};
use crate::mailbox::{Message, Nack, Receipt};

/// A message's place in the hand.
pub(super) type Place = u64;

/// The messages by their places, the first received first, and which of them wait to be started.
#[derive(Debug)]
pub(super) struct Hand {
    control: Control,
    cards: Mutex<Cards>,
}

#[derive(Debug, Default)]
struct Cards {
    next: Place,
    messages: BTreeMap<Place, Message>,
    /// On their way back: nobody extends their leases, and if the way is cut off, they are given back once more.
    returning: BTreeMap<Place, Message>,
    waiting: VecDeque<Place>,
}

/// A message that is being handled.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) place: Place,
    pub(super) message: Message,
    pub(super) holding: Holding,
}

/// What was in hand.
#[derive(Debug)]
pub(super) struct Taken {
    /// A handler has begun these.
    pub(super) started: Vec<Message>,
    pub(super) not_started: Vec<Message>,
}

impl Hand {
    pub(super) fn new(control: Control) -> Self {
        Self { control, cards: Mutex::default() }
    }

    fn cards(&self) -> MutexGuard<'_, Cards> {
        self.cards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what was received.
    pub(super) fn put(&self, messages: Vec<Message>) {
        let mut cards = self.cards();
        for message in messages {
            let place = cards.next;
            cards.next += 1;
            cards.messages.insert(place, message);
            cards.waiting.push_back(place);
        }
        self.control.note_waiting(cards.waiting.len());
    }

    /// The next one that waits. It is in flight before it no longer waits, so that whoever counts finds it.
    pub(super) fn start(&self) -> Option<Started> {
        let mut cards = self.cards();
        loop {
            let place = cards.waiting.pop_front()?;
            // One whose lease was lost is gone.
            let message = cards.messages.get(&place).cloned();
            let started = message.map(|message| {
                let holding = self.control.hold(message.id.to_string(), message.trace.clone());
                Started { place, message, holding }
            });
            self.control.note_waiting(cards.waiting.len());
            if started.is_some() {
                return started;
            }
        }
    }

    /// How many wait to be started.
    pub(super) fn waiting(&self) -> usize {
        self.cards().waiting.len()
    }

    /// Those that wait to be started, which go back instead.
    pub(super) fn begin_return(&self) -> (Vec<Place>, Vec<Message>) {
        let cards = &mut *self.cards();
        let waiting = std::mem::take(&mut cards.waiting).into_iter();
        let found = waiting.filter_map(|place| Some((place, cards.messages.remove(&place)?)));
        let found: Vec<(Place, Message)> = found.collect();
        cards.returning.extend(found.iter().cloned());
        self.control.note_waiting(0);
        found.into_iter().unzip()
    }

    /// It is settled, or somebody else's; says how many are left in hand.
    pub(super) fn remove(&self, place: Place) -> (Option<Message>, usize) {
        let mut cards = self.cards();
        (cards.messages.remove(&place), cards.messages.len())
    }

    pub(super) fn all(&self) -> Vec<(Place, Message)> {
        self.cards().messages.iter().map(|(place, message)| (*place, message.clone())).collect()
    }

    /// They are back.
    pub(super) fn end_return(&self, places: &[Place]) {
        let mut cards = self.cards();
        for place in places {
            cards.returning.remove(place);
        }
    }

    pub(super) fn take_all(&self) -> Taken {
        let cards = &mut *self.cards();
        let waiting = std::mem::take(&mut cards.waiting).into_iter();
        let waiting: Vec<Message> = waiting.filter_map(|place| cards.messages.remove(&place)).collect();
        self.control.note_waiting(0);
        let returning = std::mem::take(&mut cards.returning).into_values();
        let started = std::mem::take(&mut cards.messages).into_values().collect();
        Taken { started, not_started: returning.chain(waiting).collect() }
    }
}

/// Gives back what is in hand when a run is dropped in the middle.
#[derive(Debug)]
pub(super) struct Leavings {
    pub(super) hand: Arc<Hand>,
    pub(super) control: Control,
}

impl Drop for Leavings {
    fn drop(&mut self) {
        let Taken { started, not_started } = self.hand.take_all();
        let Some(first) = started.first().or(not_started.first()) else { return };
        // Past the deadline leases run out, as for a process that was killed: the work may be going on somewhere.
        if self.control.wanted().is_overdue() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mailbox = Arc::clone(&first.mailbox);
        let receipts = |messages: Vec<Message>| -> Vec<Receipt> {
            messages.into_iter().filter_map(|message| message.receipt).collect()
        };
        let (started, not_started) = (receipts(started), receipts(not_started));
        runtime.spawn(async move {
            // If it fails, the leases run out.
            let _ = mailbox.release(&not_started).await;
            let _ = mailbox.nack_all(&started, Nack::new().error(CUT_OFF)).await;
        });
    }
}
