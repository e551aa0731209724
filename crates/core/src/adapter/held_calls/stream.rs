//! The streams of held calls: their items and their credit.

use std::sync::Arc;

use super::{HeldCall, HeldCalls};
use crate::adapter::{Credit, CreditUnit};
use crate::call::Portion;
use crate::value::{Encoded, EncodedItems};

/// The result of [`HeldCalls::item`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ItemDelivery {
    /// The caller has the item.
    Passed,
    /// The caller has the item, but the worker has sent more of this than the call's credit allows. A worker that was
    /// told its credit breaks the protocol.
    OverCredit(CreditUnit),
    /// The caller did not ask for a stream, and this is the first item. Cancel the call; it fails when it is finished.
    Unasked,
    /// The item has no recipient.
    Dropped,
}

impl<T> HeldCalls<T> {
    /// Passes an item of a stream to the caller, and charges it to the call's credit.
    pub fn item(&mut self, number: u64, item: Encoded) -> ItemDelivery {
        self.items(number, EncodedItems::one(item))
    }

    /// Passes items of a stream that came together to the caller, and charges them to the call's credit.
    pub fn items(&mut self, number: u64, items: EncodedItems) -> ItemDelivery {
        let Some(held) = self.calls.get_mut(&number) else { return ItemDelivery::Dropped };
        let Some(first) = held.call.stream_credit() else {
            // The mistake fails only this call.
            let is_first = !std::mem::replace(&mut held.streams_unasked, true);
            return if is_first { ItemDelivery::Unasked } else { ItemDelivery::Dropped };
        };
        let count = items.len();
        if let Some(credit) = held.credit() {
            credit.spend_all(Portion { items: count, bytes: items.payload_len() as u64 });
        }
        let unread = held.call.send_items(items);
        if unread.items.saturating_add(count) > first.items {
            ItemDelivery::OverCredit(CreditUnit::Items)
        } else if unread.bytes >= first.bytes {
            ItemDelivery::OverCredit(CreditUnit::Bytes)
        } else {
            ItemDelivery::Passed
        }
    }

    /// Returns the credit of a call's stream, for an adapter that holds the stream back itself. Returns `None` if the
    /// caller did not ask for a stream.
    pub fn credit(&self, number: u64) -> Option<Arc<Credit>> {
        self.calls.get(&number)?.credit().map(Arc::clone)
    }

    /// Adds to the credit of a stream. Returns whether the worker holds the call.
    pub fn grant(&mut self, number: u64, more: Portion) -> bool {
        let held = self.calls.get(&number);
        if let Some(credit) = held.and_then(HeldCall::credit) {
            credit.grant(more);
        }
        held.is_some()
    }

    /// Lifts the limit of a call's stream, because the stream has no reader any more.
    pub fn release_stream(&self, number: u64) {
        if let Some(credit) = self.calls.get(&number).and_then(HeldCall::credit) {
            credit.release();
        }
    }

    /// Lifts the limit of all streams, like [`HeldCalls::release_stream`].
    pub fn release_streams(&self) {
        self.calls.values().filter_map(HeldCall::credit).for_each(|credit| credit.release());
    }
}
