//! The messages that a run has received but not settled. Their leases are extended, and they go back if the run is
//! dropped.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use crate::mailbox::{Message, NackOptions, Receipt};
use crate::receive::RunContext;
use crate::settle::{CUT_OFF, receipts};
use crate::{Control, InFlightGuard, locked};

/// The id of a message in the table, in the order of receives.
pub(crate) type LeaseId = u64;

/// The messages that a run has received but not settled. Some of them wait to be started.
#[derive(Debug)]
pub(crate) struct LeasedMessages {
    control: Control,
    state: Mutex<LeasedState>,
}

#[derive(Debug, Default)]
struct LeasedState {
    next: LeaseId,
    messages: BTreeMap<LeaseId, Message>,
    /// The messages on their way back, whose leases are not extended. A run that is dropped meanwhile gives them back
    /// once more.
    returning: BTreeMap<LeaseId, Message>,
    waiting: VecDeque<LeaseId>,
    /// Messages in handling that no worker has begun, and that none will begin.
    not_begun: HashSet<Receipt>,
}

impl LeasedState {
    fn take_waiting(&mut self) -> Vec<(LeaseId, Message)> {
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        waiting.filter_map(|id| Some((id, self.messages.remove(&id)?))).collect()
    }

    fn has_begun(&self, message: &Message) -> bool {
        message.receipt.as_ref().is_none_or(|receipt| !self.not_begun.contains(receipt))
    }
}

/// A message that is being handled.
#[derive(Debug)]
pub(crate) struct StartedMessage {
    pub(crate) id: LeaseId,
    pub(crate) message: Message,
    pub(crate) holding: InFlightGuard,
}

/// The contents of the table.
#[derive(Debug)]
pub(crate) struct TakenMessages {
    /// The messages that a handler, or a worker, has begun.
    pub(crate) started: Vec<Message>,
    pub(crate) not_started: Vec<Message>,
}

impl LeasedMessages {
    pub(crate) fn new(control: Control) -> Self {
        Self { control, state: Mutex::default() }
    }

    /// Adds received messages.
    pub(crate) fn add(&self, messages: Vec<Message>) {
        let mut state = locked(&self.state);
        for message in messages {
            let id = state.next;
            state.next += 1;
            state.messages.insert(id, message);
            state.waiting.push_back(id);
        }
        self.control.note_waiting(state.waiting.len());
    }

    /// Starts the next waiting message. The message is in flight before it stops waiting, so that it always counts.
    pub(crate) fn start(&self) -> Option<StartedMessage> {
        let mut state = locked(&self.state);
        loop {
            let id = state.waiting.pop_front()?;
            // A message whose lease was lost is no longer in the table.
            let started = state.messages.get(&id).cloned().map(|message| {
                let holding = self.control.hold(message.id.to_string(), message.trace.clone());
                StartedMessage { id, message, holding }
            });
            self.control.note_waiting(state.waiting.len());
            if started.is_some() {
                return started;
            }
        }
    }

    /// Returns how many messages wait to be started.
    pub(crate) fn waiting(&self) -> usize {
        locked(&self.state).waiting.len()
    }

    /// Removes the messages that wait to be started, so that they can go back.
    pub(crate) fn begin_return(&self) -> (Vec<LeaseId>, Vec<Message>) {
        let mut state = locked(&self.state);
        let waiting = state.take_waiting();
        state.returning.extend(waiting.iter().cloned());
        self.control.note_waiting(0);
        waiting.into_iter().unzip()
    }

    /// Records that these messages are back in the mailbox.
    pub(crate) fn end_return(&self, ids: &[LeaseId]) {
        let mut state = locked(&self.state);
        for id in ids {
            state.returning.remove(id);
        }
    }

    /// Removes a message that is settled or whose lease is lost. Returns how many messages are left.
    pub(crate) fn remove(&self, id: LeaseId) -> (Option<Message>, usize) {
        let mut state = locked(&self.state);
        let removed = state.messages.remove(&id);
        if let Some(receipt) = removed.as_ref().and_then(|message| message.receipt.as_ref()) {
            state.not_begun.remove(receipt);
        }
        (removed, state.messages.len())
    }

    /// Records that no worker has begun the message of this receipt, and that none will.
    pub(crate) fn note_not_begun(&self, receipt: Receipt) {
        locked(&self.state).not_begun.insert(receipt);
    }

    /// Records that a worker may begin the message after all.
    pub(crate) fn note_begun(&self, message: &Message) {
        if let Some(receipt) = &message.receipt {
            locked(&self.state).not_begun.remove(receipt);
        }
    }

    pub(crate) fn all(&self) -> Vec<(LeaseId, Message)> {
        locked(&self.state).messages.iter().map(|(id, message)| (*id, message.clone())).collect()
    }

    pub(crate) fn take_all(&self) -> TakenMessages {
        let mut state = locked(&self.state);
        let waiting = state.take_waiting().into_iter().map(|(_, message)| message);
        self.control.note_waiting(0);
        let mut not_started: Vec<Message> =
            std::mem::take(&mut state.returning).into_values().chain(waiting).collect();
        let in_handling = std::mem::take(&mut state.messages).into_values();
        let (started, not_begun): (Vec<_>, Vec<_>) =
            in_handling.partition(|message| state.has_begun(message));
        not_started.extend(not_begun);
        TakenMessages { started, not_started }
    }
}

/// Gives messages back if a run is dropped before its end.
pub(crate) struct ReturnOnDrop(pub(crate) Arc<RunContext>);

impl Drop for ReturnOnDrop {
    fn drop(&mut self) {
        let TakenMessages { mut started, not_started } = self.0.leased.take_all();
        // After the deadline the leases run out, like those of a killed process, because the work may still be running
        // somewhere.
        if self.0.control.wanted().is_overdue() {
            started.clear();
        }
        let Some(first) = started.first().or(not_started.first()) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mailbox = Arc::clone(&first.mailbox);
        let (started, not_started) = (receipts(&started), receipts(&not_started));
        runtime.spawn(async move {
            // If the mailbox fails, the leases run out.
            let _ = mailbox.release(&not_started).await;
            let _ = mailbox.nack_all(&started, NackOptions::new().error(CUT_OFF)).await;
        });
    }
}
