//! What happens to a message after it was handled: reply, ack, nack or bury.
//!
//! Owns the end of a lease. Does not know what handled the message.
//!
//! - `handling_outcome`: the outcome of handling a message.
//! - `settlement_rules`: the rules for a handled message: the policy, replies, and messages that are given up.
//! - `settlement`: ends leases, with retries while the mailbox fails.

mod handling_outcome;
mod settlement;
mod settlement_rules;

pub use crate::mailbox::ERROR_ATTRIBUTE;
pub(crate) use handling_outcome::HandlingOutcome;
pub(crate) use settlement::{
    CUT_OFF, nack, receipts, release, report_lease_lost, settle, write_delivery_limit,
};
pub(crate) use settlement_rules::SettlementRules;
pub use settlement_rules::{GiveUpAction, Replies};
