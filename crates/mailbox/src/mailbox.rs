//! [`Mailbox`]: what every backend can do. Knows no backend.

use std::slice::from_ref;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::leases::one;
use crate::{
    DeadLetter, DeadReason, FoundMessage, LeaseChange, LeaseExtension, MailboxError, Message, MessageId,
    NackOptions, QueueSettings, Receipt, ReceiveOptions, Reply, RequestOptions, SendOptions, SettingsChange,
    reply,
};

/// What an operation of a mailbox is, until it is done.
pub type Pending<'a, T> = BoxFuture<'a, Result<T, MailboxError>>;

/// The result of a change of one lease.
async fn change_one(changed: Pending<'_, usize>) -> Result<(), MailboxError> {
    one(changed.await?)
}

/// How many messages a mailbox has, by what may happen to them next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct MessageCounts {
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
    /// Messages of one group come one at a time, in order ([`SendOptions::group`]).
    pub groups: Result<(), &'static str>,
    /// No more messages are given out in a period than is allowed ([`SettingsChange::rate_limit`]).
    pub rate_limits: Result<(), &'static str>,
    /// It can be paused for all who receive from it ([`SettingsChange::pause`]).
    pub pauses: Result<(), &'static str>,
}

impl Capabilities {
    /// A backend that can do everything.
    pub const ALL: Self = Self {
        outlives_process: Ok(()),
        outlives_power_cut: Ok(()),
        shared: Ok(()),
        ordered: Ok(()),
        priorities: Ok(()),
        atomic_reply: Ok(()),
        groups: Ok(()),
        rate_limits: Ok(()),
        pauses: Ok(()),
    };
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
    fn send(&self, body: Vec<u8>, options: SendOptions) -> Pending<'_, MessageId>;

    /// Puts several messages in, all of them or none.
    fn send_all(&self, messages: Vec<(Vec<u8>, SendOptions)>) -> Pending<'_, Vec<MessageId>>;

    /// Leases messages: those at hand, at least one if it waits and one comes in time.
    fn receive(&self, options: ReceiveOptions) -> Pending<'_, Vec<Message>>;

    /// Changes the leases that these receipts name, and returns how many it changed. Expired receipts are left out. The methods
    /// below call this one.
    fn change_leases<'a>(&'a self, receipts: &'a [Receipt], change: LeaseChange) -> Pending<'a, usize>;

    /// The message is done.
    fn ack<'a>(&'a self, receipt: &'a Receipt) -> Pending<'a, ()> {
        Box::pin(change_one(self.change_leases(from_ref(receipt), LeaseChange::Ack)))
    }

    /// Several messages are done. Returns how many; expired receipts are left out.
    fn ack_all<'a>(&'a self, receipts: &'a [Receipt]) -> Pending<'a, usize> {
        self.change_leases(receipts, LeaseChange::Ack)
    }

    /// Gives the message back, to be received again after a time, in its old position. Its error stays with the message. A
    /// message that has reached the delivery limit becomes a dead letter at once, and so does one whose lease lapses.
    fn nack<'a>(&'a self, receipt: &'a Receipt, options: NackOptions) -> Pending<'a, ()> {
        Box::pin(change_one(self.change_leases(from_ref(receipt), LeaseChange::Nack(options))))
    }

    /// Gives several messages back. Returns how many; expired receipts are left out.
    fn nack_all<'a>(&'a self, receipts: &'a [Receipt], options: NackOptions) -> Pending<'a, usize> {
        self.change_leases(receipts, LeaseChange::Nack(options))
    }

    /// Gives back messages that nobody has begun, to be received again at once, in their old positions. These deliveries do
    /// not count. Returns how many; expired receipts are left out.
    fn release<'a>(&'a self, receipts: &'a [Receipt]) -> Pending<'a, usize> {
        self.change_leases(receipts, LeaseChange::Release)
    }

    /// Lets the lease last for at least `visibility` from now, or exactly as long.
    fn extend<'a>(
        &'a self,
        receipt: &'a Receipt,
        visibility: Duration,
        extension: LeaseExtension,
    ) -> Pending<'a, ()> {
        let change = LeaseChange::Extend(visibility, extension);
        Box::pin(change_one(self.change_leases(from_ref(receipt), change)))
    }

    /// Moves the message to the dead letters, in one step with the end of its lease.
    fn bury<'a>(&'a self, receipt: &'a Receipt, reason: DeadReason) -> Pending<'a, ()> {
        Box::pin(change_one(self.change_leases(from_ref(receipt), LeaseChange::Bury(reason))))
    }

    /// Sends a reply to the mailbox that the message names, whether or not anybody has opened that, and acknowledges the message: in
    /// one step where both are in one place ([`Capabilities::atomic_reply`]), else the reply first. The reply has the message's
    /// id, attributes and trace ([`SendOptions::answering`]). If the message was sent with [`SendOptions::keep_result`], the reply is kept, too.
    fn reply<'a>(
        &'a self,
        receipt: &'a Receipt,
        body: Vec<u8>,
        options: SendOptions,
    ) -> Pending<'a, MessageId>;

    /// The reply to the message of this id, for as long as it is kept ([`SendOptions::keep_result`]); waits for it, 0 s to 20 s.
    fn result(&self, id: MessageId, wait: Duration) -> Pending<'_, Option<Reply>>;

    /// Sends a message and waits for the answer to exactly this one, whoever else asks at the same time, here or in another
    /// process. Dropping the future stops the wait; the message stays sent.
    fn request(&self, body: Vec<u8>, options: RequestOptions) -> Pending<'_, Reply> {
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
    fn count(&self) -> Pending<'_, MessageCounts>;

    /// The message of this id, wherever in its life it is. It may have to be searched for.
    fn find(&self, id: MessageId) -> Pending<'_, Option<FoundMessage>>;

    /// Removes all messages but the dead ones, also those in flight; says how many. Dedup keys stay known.
    fn purge(&self) -> Pending<'_, u64>;

    /// The dead letters, the oldest first.
    fn dead_letters(&self, max_messages: usize) -> Pending<'_, Vec<DeadLetter>>;

    /// Puts dead letters back as if they had just been sent, those with these ids or all; says how many. Deliveries are counted
    /// from none again, and a time to live starts again.
    fn redrive<'a>(&'a self, ids: Option<&'a [MessageId]>) -> Pending<'a, u64>;

    /// Removes all dead letters; says how many.
    fn purge_dead_letters(&self) -> Pending<'_, u64>;

    /// Accepts and delivers no more messages: waiting receivers get [`MailboxError::Closed`]. Receipts keep
    /// working, so that what is under way can be finished.
    fn close(&self);

    /// Whether it was closed.
    fn is_closed(&self) -> bool;

    /// Whether it works, and if not, why, for a person.
    fn health(&self) -> Pending<'_, ()>;
}
