//! The calls that a loop has submitted to its pool, so that those that no worker has begun can be withdrawn.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::locked;
use crate::mailbox::Receipt;
use snakepit_core::request::Withdrawal;

/// The calls whose answers a loop awaits. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct SubmittedCalls(Arc<SubmittedState>);

#[derive(Default)]
struct SubmittedState {
    next: AtomicU64,
    calls: Mutex<HashMap<u64, CallOfMessage>>,
}

struct CallOfMessage {
    receipt: Option<Receipt>,
    withdrawal: Withdrawal,
}

/// A submitted call whose answer is awaited.
pub(crate) struct SubmittedCall {
    all: SubmittedCalls,
    number: u64,
}

impl fmt::Debug for SubmittedCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SubmittedCalls").field(&locked(&self.0.calls).len()).finish()
    }
}

impl SubmittedCalls {
    /// Registers the call of a message.
    pub(crate) fn submit(&self, receipt: Option<Receipt>, withdrawal: Withdrawal) -> SubmittedCall {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        locked(&self.0.calls).insert(number, CallOfMessage { receipt, withdrawal });
        SubmittedCall { all: self.clone(), number }
    }

    /// Withdraws the calls that wait in the pool's queue. This is exact: a call that is not withdrawn is with a worker,
    /// or has ended. `note` gets the receipts of their messages before a handler can see that its call was withdrawn.
    pub(crate) fn withdraw_queued(&self, note: impl FnMut(Receipt)) {
        let mut calls = locked(&self.0.calls);
        let withdrawn = calls.extract_if(|_, call| call.withdrawal.withdraw());
        withdrawn.filter_map(|(_, call)| call.receipt).for_each(note);
    }
}

impl SubmittedCall {
    /// Withdraws the call if it waits in the pool's queue.
    pub(crate) fn withdraw(&self) {
        let mut calls = locked(&self.all.0.calls);
        if calls.get(&self.number).is_some_and(|call| call.withdrawal.withdraw()) {
            calls.remove(&self.number);
        }
    }

    /// Reports whether the call was withdrawn. If so, no worker has it or will get it.
    pub(crate) fn is_withdrawn(&self) -> bool {
        !locked(&self.all.0.calls).contains_key(&self.number)
    }
}

impl Drop for SubmittedCall {
    fn drop(&mut self) {
        locked(&self.all.0.calls).remove(&self.number);
    }
}
