//! What becomes of a message that was handled: reply, ack, nack or bury.
//!
//! Owns the end of a lease. It does not know who handled the message.
//!
//! - `handling_outcome`: what handling a message came to.
//! - `settlement_rules`: what decides about a message: the policy, replies, and what happens to messages that are given up.
//! - `settlement`: ends leases, with retries while the mailbox fails.

mod handling_outcome;
mod settlement;
mod settlement_rules;

pub use crate::mailbox::ERROR_ATTRIBUTE;
pub(crate) use handling_outcome::HandlingOutcome;
pub(crate) use settlement::{
    CUT_OFF, nack, receipts, release, settle, tell_lease_lost, write_delivery_limit,
};
pub(crate) use settlement_rules::SettlementRules;
pub use settlement_rules::{GiveUpAction, Replies};
