//! The rules that every backend shares, also backends outside of this crate.
//!
//! A backend stores messages and provides the time. This module decides when a message is given up, how many messages a
//! rate limit allows, which attempts are kept and how ids are made, so that all backends follow the same rules.

pub use crate::message::attempt::{remember_attempt, this_process};
pub use crate::message::ids::MessageIds;
pub use crate::settings::{RatePeriod, Throttle};

use crate::DeadReason;

/// Whether a message has outlived its time to live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeToLive {
    /// The message may still be delivered.
    Left,
    /// The message must not be delivered again.
    Over,
}

/// Returns why a message is given up when its lease ends without an ack, or `None` if it is to be delivered again.
///
/// The time to live does not end a lease: a leased message expires only when its lease ends.
pub fn given_up(deliveries: u32, limit: u32, time_to_live: TimeToLive) -> Option<DeadReason> {
    match time_to_live {
        _ if deliveries >= limit => Some(DeadReason::Deliveries),
        TimeToLive::Over => Some(DeadReason::Expired),
        TimeToLive::Left => None,
    }
}
