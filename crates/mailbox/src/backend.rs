//! What every backend decides in the same way: for those who write one outside of this crate, too.
//!
//! A backend stores messages and says what time it is. Whether a message is given up, how many messages a rate limit allows,
//! which attempts a message remembers and how ids are made is decided here, so that all backends keep the same rules.

pub use crate::attempt::{remember_attempt, this_process};
pub use crate::ids::MessageIds;
pub use crate::settings::{RatePeriod, Throttle};

use crate::DeadReason;

/// Whether the age of a message has passed its time to live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeToLive {
    /// It may still be delivered.
    Left,
    /// It must not be delivered again.
    Over,
}

/// Why a message is given up when its lease ends without an ack. `None`: the message comes back.
///
/// A leased message outlives its time to live, but not its lease.
pub fn given_up(deliveries: u32, limit: u32, time_to_live: TimeToLive) -> Option<DeadReason> {
    match time_to_live {
        _ if deliveries >= limit => Some(DeadReason::Deliveries),
        TimeToLive::Over => Some(DeadReason::Expired),
        TimeToLive::Left => None,
    }
}
