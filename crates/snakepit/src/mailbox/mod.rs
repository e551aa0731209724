//! Mailboxes: messages that are leased, acknowledged, given back, or buried; never lost, never accepted twice.
//!
//! [`Mailbox`] is what a backend is; [`MemoryMailbox`] is one. Everything that is the same for all of them is here: what can be
//! asked for ([`Send`], [`Receive`]), what comes back ([`Message`]), when a message is given up ([`DeadLetterPolicy`]), and
//! bodies of a type ([`Typed`]).
//!
//! ```text
//! send ─► delayed ─► visible ─► leased ─► acknowledged
//!                       ▲          │
//!                       └── nack, release, lease over      limit reached, too old, buried ─► dead ─► redrive
//! ```

mod attempt;
mod error;
mod memory;
mod message;
mod options;
mod policy;
mod reply;
mod settings;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod telling;
mod typed;

pub use attempt::{Attempt, AttemptEnd};
pub use error::MailboxError;
pub use memory::{MemoryMailbox, PostOffice};
pub use message::{DeadLetter, DeadReason, Found, Message, MessageId, Place, Receipt, body};
pub use options::{
    ERROR_ATTRIBUTE, Extension, MAX_DELAY, MAX_GROUP, MAX_MESSAGES, MAX_VISIBILITY, MAX_WAIT, Nack, Receive,
    Send, check_visibility, check_wait,
};
pub use policy::{AfterFailure, BAD_ARGUMENTS, Backoff, DeadLetterPolicy};
pub use reply::{Reply, Request};
pub use settings::{QueueSettings, RateLimit, SettingsChange};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteMailbox;
pub use typed::{Typed, TypedMessage};

use futures_util::future::BoxFuture;

/// What an operation of a mailbox is, until it is done.
pub type Pending<'a, T> = BoxFuture<'a, Result<T, MailboxError>>;

/// How many messages a mailbox has, by what may happen to them next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Count {
    /// Can be received now.
    pub visible: u64,
    /// Are with receivers.
    pub in_flight: u64,
    /// Cannot be received yet: their delay is not over, or others of their group are before them.
    pub delayed: u64,
    /// Were given up.
    pub dead: u64,
}

/// What a backend can and cannot do. What it cannot do names its reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// A message that was sent survives the end of the process.
    pub outlives_process: Result<(), &'static str>,
    /// A message that was sent survives a power cut.
    pub outlives_power_cut: Result<(), &'static str>,
    /// Several processes can use it at the same time.
    pub shared: Result<(), &'static str>,
    /// First deliveries of one priority come in the order of their sends.
    pub ordered: Result<(), &'static str>,
    /// Messages of a higher priority come first.
    pub priorities: Result<(), &'static str>,
    /// A reply and the ack of what it answers are one step, if both mailboxes are in one place.
    pub atomic_reply: Result<(), &'static str>,
    /// Messages of one group come one at a time, in order ([`Send::group`]).
    pub groups: Result<(), &'static str>,
    /// No more messages are given out in a period than is allowed ([`SettingsChange::rate_limit`]).
    pub rate_limits: Result<(), &'static str>,
    /// It can be paused for all who receive from it ([`SettingsChange::pause`]).
    pub pauses: Result<(), &'static str>,
}

/// A mailbox: messages of bytes, each leased to one receiver at a time. All of its handles see the same messages.
///
/// Operations with a receipt answer [`MailboxError::ReceiptExpired`] once its lease is over, and change nothing then.
pub trait Mailbox: std::fmt::Debug + std::marker::Send + Sync {
    /// Its name, to which others reply.
    fn name(&self) -> &str;

    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Puts a message in. When it is done, the message is as durable as the backend makes it. A message whose dedup key was
    /// used not long ago is not put in; the id is that of the first.
    fn send(&self, body: Vec<u8>, options: Send) -> Pending<'_, MessageId>;

    /// Puts several messages in, all of them or none.
    fn send_all(&self, messages: Vec<(Vec<u8>, Send)>) -> Pending<'_, Vec<MessageId>>;

    /// Leases messages: those at hand, at least one if it waits and one comes in time.
    fn receive(&self, options: Receive) -> Pending<'_, Vec<Message>>;

    /// The message is done.
    fn ack<'a>(&'a self, receipt: &'a Receipt) -> Pending<'a, ()>;

    /// Several messages are done. Receipts that have expired are left out; says how many were not.
    fn ack_all<'a>(&'a self, receipts: &'a [Receipt]) -> Pending<'a, usize>;

    /// Gives the message back, to be received again after a time, in its old place. Its error stays with the message. One that
    /// was delivered as often as is allowed is a dead letter at once, and so is one whose lease lapses: whoever looks next
    /// finds it there.
    fn nack<'a>(&'a self, receipt: &'a Receipt, options: Nack) -> Pending<'a, ()>;

    /// Gives several back at once. Receipts that have expired are left out; says how many were not.
    fn nack_all<'a>(&'a self, receipts: &'a [Receipt], options: Nack) -> Pending<'a, usize>;

    /// Gives back what nobody has begun, to be received again at once, in its old place: as if it had not been delivered, so
    /// this delivery is not counted. Receipts that have expired are left out; says how many were not.
    fn release<'a>(&'a self, receipts: &'a [Receipt]) -> Pending<'a, usize>;

    /// Lets the lease last for at least `visibility` from now, or exactly as long.
    fn extend<'a>(
        &'a self,
        receipt: &'a Receipt,
        visibility: std::time::Duration,
        extension: Extension,
    ) -> Pending<'a, ()>;

    /// Moves the message to the dead letters, in one step with the end of its lease.
    fn bury<'a>(&'a self, receipt: &'a Receipt, reason: DeadReason) -> Pending<'a, ()>;

    /// Sends a reply to the mailbox that the message names, whether or not anybody has opened that, and acknowledges the message: in
    /// one step where both are in one place ([`Capabilities::atomic_reply`]), else the reply first. The reply has the message's
    /// id, attributes and trace ([`Send::answering`]). If the message was sent with [`Send::keep_result`], the reply is kept, too.
    fn reply<'a>(&'a self, receipt: &'a Receipt, body: Vec<u8>, options: Send) -> Pending<'a, MessageId>;

    /// The reply to the message of this id, for as long as it is kept ([`Send::keep_result`]); waits for it, 0 s to 20 s.
    fn result(&self, id: MessageId, wait: std::time::Duration) -> Pending<'_, Option<Reply>>;

    /// Sends a message and waits for the answer to exactly this one, whoever else asks at the same time, here or in another
    /// process. Whoever drops it waits no more; the message stays sent.
    fn request(&self, body: Vec<u8>, options: Request) -> Pending<'_, Reply> {
        Box::pin(reply::request(self, body, options))
    }

    /// What it keeps about itself.
    fn settings(&self) -> Pending<'_, QueueSettings>;

    /// Changes what it keeps about itself, for all who use it; says what it is now.
    fn configure(&self, change: SettingsChange) -> Pending<'_, QueueSettings>;

    /// The next messages that could be received, without leasing them. Like [`Mailbox::count`], [`Mailbox::find`] and
    /// [`Mailbox::dead_letters`] it changes nothing: what is due is shown as it will be found.
    fn peek(&self, max_messages: usize) -> Pending<'_, Vec<Message>>;

    /// How many messages there are.
    fn count(&self) -> Pending<'_, Count>;

    /// The message of this id, wherever in its life it is. It may have to be searched for.
    fn find(&self, id: MessageId) -> Pending<'_, Option<Found>>;

    /// Removes all messages but the dead ones, also those in flight; says how many. Dedup keys stay known.
    fn purge(&self) -> Pending<'_, u64>;

    /// The dead letters, the oldest first.
    fn dead_letters(&self, max_messages: usize) -> Pending<'_, Vec<DeadLetter>>;

    /// Puts dead letters back as if they had just been sent, those with these ids or all; says how many. Deliveries are counted
    /// from none again, and a time to live begins anew.
    fn redrive<'a>(&'a self, ids: Option<&'a [MessageId]>) -> Pending<'a, u64>;

    /// Removes all dead letters; says how many.
    fn purge_dead_letters(&self) -> Pending<'_, u64>;

    /// Takes no more messages and gives none out: whoever waits in a receive gets [`MailboxError::Closed`]. Receipts keep
    /// working, so that what is under way can be finished.
    fn close(&self);

    /// Whether it was closed.
    fn is_closed(&self) -> bool;

    /// Whether it works, and if not, why, for a person.
    fn health(&self) -> Pending<'_, ()>;
}
