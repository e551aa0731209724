//! Stream credit: how much a sender may send before the reader of the stream allows more.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::call::Portion;

/// The amount that the reader of a stream still allows its sender.
///
/// The sender waits with [`Credit::available`] before it makes the next item, and pays for the item with
/// [`Credit::spend`]. An item may cost more than what is left. Otherwise an item larger than the whole credit could
/// never pass.
#[derive(Debug)]
pub struct Credit {
    /// `None` once the stream has no reader.
    left: Mutex<Option<Left>>,
    granted: Notify,
}

/// The remaining credit. It is below zero after an item that was larger than what was left.
#[derive(Debug)]
struct Left {
    items: i64,
    bytes: i64,
}

impl Credit {
    /// Creates a credit of this amount.
    pub fn new(first: Portion) -> Self {
        let credit = Self { left: Mutex::new(Some(Left { items: 0, bytes: 0 })), granted: Notify::new() };
        credit.grant(first);
        credit
    }

    fn left(&self) -> MutexGuard<'_, Option<Left>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to the credit.
    pub fn grant(&self, more: Portion) {
        if let Some(left) = &mut *self.left() {
            left.items = left.items.saturating_add(more.items.into());
            left.bytes = left.bytes.saturating_add(i64::try_from(more.bytes).unwrap_or(i64::MAX));
        }
        self.granted.notify_waiters();
    }

    /// Lifts the limit: the stream has no reader any more, so its sender need not wait for one.
    pub fn release(&self) {
        *self.left() = None;
        self.granted.notify_waiters();
    }

    /// Pays for one item of this size.
    pub fn spend(&self, bytes: usize) {
        self.spend_all(Portion { items: 1, bytes: bytes as u64 });
    }

    /// Pays for several items.
    pub fn spend_all(&self, amount: Portion) {
        if let Some(left) = &mut *self.left() {
            left.items = left.items.saturating_sub(amount.items.into());
            left.bytes = left.bytes.saturating_sub(i64::try_from(amount.bytes).unwrap_or(i64::MAX));
        }
    }

    /// Waits until an item may be sent. Even if there is always enough credit, this yields now and then, so that other
    /// tasks run and the sender can be aborted.
    pub async fn available(&self) {
        tokio::task::coop::consume_budget().await;
        loop {
            // Registered before the check, so that no later grant is missed.
            let granted = self.granted.notified();
            if self.left().as_ref().is_none_or(|left| left.items > 0 && left.bytes > 0) {
                return;
            }
            granted.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn is_available(credit: &Credit) -> bool {
        credit.available().now_or_never().is_some()
    }

    #[test]
    fn a_sender_waits_when_the_credit_of_items_or_of_bytes_is_used_up() {
        let items = Credit::new(Portion { items: 1, bytes: 100 });
        items.spend(1);
        assert!(!is_available(&items));
        let bytes = Credit::new(Portion { items: 100, bytes: 1 });
        assert!(is_available(&bytes));
        bytes.spend(1);
        assert!(!is_available(&bytes));
    }

    #[test]
    fn an_item_larger_than_the_credit_passes_and_is_charged_afterwards() {
        let credit = Credit::new(Portion { items: 10, bytes: 4 });
        credit.spend(10);
        credit.grant(Portion { items: 1, bytes: 6 });
        assert!(!is_available(&credit));
        credit.grant(Portion { items: 0, bytes: 1 });
        assert!(is_available(&credit));
    }

    #[tokio::test]
    async fn a_grant_wakes_a_waiting_sender() {
        let credit = Credit::new(Portion::default());
        let (grant, wait) = (async { credit.grant(Portion { items: 1, bytes: 1 }) }, credit.available());
        tokio::join!(biased; wait, grant);
    }

    #[test]
    fn a_released_stream_never_waits() {
        let credit = Credit::new(Portion::default());
        credit.release();
        for _ in 0..1000 {
            credit.spend(usize::MAX);
        }
        credit.grant(Portion { items: u32::MAX, bytes: u64::MAX });
        assert!(is_available(&credit));
    }
}
