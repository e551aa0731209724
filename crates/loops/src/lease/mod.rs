//! The messages that a run has received but not settled, and their leases.
//!
//! Owns the list of a run's messages, and extends their leases. Does not know what handles a message.
//!
//! - `leased_messages`: the table of these messages. A dropped run gives them back.
//! - `extension`: extends leases in time, and warns of slow messages and short leases.
//! - `lease_thread`: extends leases when handlers block the runtime.

mod extension;
mod lease_thread;
mod leased_messages;

pub(crate) use extension::{
    LeaseTimes, SlowMessages, extend_all, extension_period, retry_period, still_leased,
};
pub(crate) use lease_thread::LeaseGuard;
pub(crate) use leased_messages::{LeaseId, LeasedMessages, ReturnOnDrop, StartedMessage, TakenMessages};
