//! The messages that a run has received and not settled, waiting ones too: whose leases are extended, and what is given
//! back if the run is dropped.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Control;
use crate::mailbox::{Message, Receipt};

/// A message's place in the hand.
pub(super) type Place = u64;

/// The messages by their places, the first received first.
#[derive(Debug, Default)]
pub(super) struct Hand(Mutex<Cards>);

#[derive(Debug, Default)]
struct Cards {
    next: Place,
    messages: BTreeMap<Place, Message>,
    /// On their way back: nobody extends their leases, and if the way is cut off, they are given back once more.
    returning: BTreeMap<Place, Message>,
}

impl Hand {
    fn cards(&self) -> MutexGuard<'_, Cards> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, message: Message) -> Place {
        let mut cards = self.cards();
        let place = cards.next;
        cards.next += 1;
        cards.messages.insert(place, message);
        place
    }

    pub(super) fn get(&self, place: Place) -> Option<Message> {
        self.cards().messages.get(&place).cloned()
    }

    pub(super) fn remove(&self, place: Place) -> Option<Message> {
        self.cards().messages.remove(&place)
    }

    pub(super) fn all(&self) -> Vec<(Place, Message)> {
        self.cards().messages.iter().map(|(place, message)| (*place, message.clone())).collect()
    }

    /// They go back.
    pub(super) fn begin_return(&self, places: &[Place]) -> Vec<Message> {
        let cards = &mut *self.cards();
        let found = places.iter().filter_map(|place| Some((*place, cards.messages.remove(place)?)));
        let found: Vec<(Place, Message)> = found.collect();
        cards.returning.extend(found.iter().cloned());
        found.into_iter().map(|(_, message)| message).collect()
    }

    /// They are back.
    pub(super) fn end_return(&self, places: &[Place]) {
        let mut cards = self.cards();
        for place in places {
            cards.returning.remove(place);
        }
    }

    pub(super) fn take_all(&self) -> Vec<Message> {
        let mut cards = self.cards();
        let mut all = std::mem::take(&mut cards.returning);
        all.append(&mut cards.messages);
        all.into_values().collect()
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
        let messages = self.hand.take_all();
        let Some(first) = messages.first() else { return };
        // Past the deadline leases run out, as for a process that was killed: the work may be going on somewhere.
        if self.control.wanted().is_overdue() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mailbox = Arc::clone(&first.mailbox);
        let receipts: Vec<Receipt> = messages.into_iter().filter_map(|message| message.receipt).collect();
        runtime.spawn(async move {
            // If it fails, the leases run out.
            let _ = mailbox.nack_all(&receipts, Duration::ZERO).await;
        });
    }
}
