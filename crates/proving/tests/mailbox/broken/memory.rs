//! What a broken mailbox must remember for its fault.

use std::collections::HashMap;

use snakepit::mailbox::{DeadLetter, Message, MessageId, Receipt};

#[derive(Default)]
pub(super) struct FaultMemory {
    /// A counter for faults that do not happen every time.
    pub(super) turn: u64,
    /// Every message that was delivered, by its receipt.
    pub(super) given: HashMap<Receipt, Message>,
    /// The latest receipt of each message.
    pub(super) latest: HashMap<MessageId, Receipt>,
    /// Messages that are delivered once more.
    pub(super) again: Vec<Message>,
    pub(super) acked: Vec<Message>,
    pub(super) extra_dead: Vec<DeadLetter>,
    /// Messages that were answered.
    pub(super) answered: Vec<MessageId>,
    pub(super) is_closed: bool,
}

impl FaultMemory {
    pub(super) fn every(&mut self, turns: u64) -> bool {
        self.turn += 1;
        self.turn.is_multiple_of(turns)
    }
}
