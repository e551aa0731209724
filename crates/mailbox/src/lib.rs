//! Mailboxes of messages that are leased, acknowledged, given back or moved to the dead letters; never lost, never
//! accepted twice.
//!
//! ```text
//! send ─► delayed ─► visible ─► leased ─► acknowledged
//!                       ▲          │
//!                       └── nack, release, lapsed lease      delivery limit, time to live, bury ─► dead ─► redrive
//! ```
//!
//! Owns the mailbox contract and two backends, [`MemoryMailbox`] and [`SqliteMailbox`]. Knows nothing of loops, workers
//! or pools.
//!
//! A message passes through these files: `mailbox` (the trait), `options` (the options of each operation), one of the
//! backends `memory` and `sqlite`, which share `leases`, `settings` (delivery limit, pause, rate limits), `ids`,
//! `attempt` and `telemetry`; then `message` (what a receiver gets), `reply`, and `typed` (bodies of one type).
//! `policy` decides when a failed message is given up, and `error` has the errors.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod backend;
mod clock;
mod dead_letter_policy;
mod error;
mod leases;
mod mailbox;
mod memory;
mod message;
mod options;
mod settings;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod telemetry;

pub use clock::{BootClock, Clock};
pub use dead_letter_policy::{AfterFailure, BAD_ARGUMENTS, Backoff, DeadLetterPolicy};
pub use error::{BackendErrorKind, MailboxError};
pub use leases::LeaseChange;
pub use mailbox::{Capabilities, Mailbox, MessageCounts, Pending, Support};
pub use memory::{MemoryMailbox, MemoryMailboxes};
pub use message::attempt::{Attempt, AttemptEnd};
pub use message::reply::{Reply, RequestOptions};
pub use message::typed::{TypedMailbox, TypedMessage};
pub use message::{DeadLetter, DeadReason, FoundMessage, Message, MessageId, MessageState, Receipt, body};
pub use options::{
    ERROR_ATTRIBUTE, LeaseExtension, MAX_DELAY, MAX_GROUP, MAX_MESSAGES, MAX_VISIBILITY, MAX_WAIT,
    NackOptions, ReceiveOptions, SendOptions, check_visibility, check_wait,
};
pub use settings::{QueueSettings, RateLimit, SettingsChange};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteMailbox;

#[cfg(test)]
mod tests {
    mod errors;
    mod options;
}
