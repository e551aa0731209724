//! [`Mailbox`]: the contract of every backend. Knows nothing of any backend.

use std::slice::from_ref;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::leases::one;
use crate::message::reply;
use crate::{
    DeadLetter, DeadReason, FoundMessage, LeaseChange, LeaseExtension, MailboxError, Message, MessageId,
    NackOptions, QueueSettings, Receipt, ReceiveOptions, Reply, RequestOptions, SendOptions, SettingsChange,
};

/// The future of a mailbox operation.
pub type Pending<'a, T> = BoxFuture<'a, Result<T, MailboxError>>;

/// Awaits a change of one lease, and fails if no lease was changed.
async fn change_one(changed: Pending<'_, usize>) -> Result<(), MailboxError> {
    one(changed.await?)
}

/// The number of messages in a mailbox, by state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
#[non_exhaustive]
pub struct MessageCounts {
    /// Messages that can be received now.
    pub visible: u64,
    /// Messages that receivers hold.
    pub in_flight: u64,
    /// Messages that cannot be received yet: their delay has not passed, or earlier messages of their group come first.
    pub delayed: u64,
    /// Messages that were given up.
    pub dead: u64,
}

/// Whether a backend has a capability.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Support {
    /// The backend has it.
    Yes,
    /// The backend does not have it, for this reason.
    No(&'static str),
}

impl Support {
    /// Returns the reason why the backend does not have the capability, or `None` if it has it.
    pub fn reason_against(self) -> Option<&'static str> {
        match self {
            Self::Yes => None,
            Self::No(reason) => Some(reason),
        }
    }
}

/// What a backend can do.
///
/// A backend starts from [`Capabilities::ALL`] and says what it lacks:
///
/// ```
/// use snakepit::mailbox::{Capabilities, Support};
///
/// let mut capabilities = Capabilities::ALL;
/// capabilities.shared = Support::No("it is stored in this process");
/// assert_eq!(capabilities.groups, Support::Yes);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Capabilities {
    /// A sent message survives the end of the process.
    pub outlives_process: Support,
    /// A sent message survives a power cut.
    pub outlives_power_cut: Support,
    /// Several processes can use the mailbox at the same time.
    pub shared: Support,
    /// First deliveries of one priority follow the order of their sends.
    pub ordered: Support,
    /// Messages of a higher priority are delivered first.
    pub priorities: Support,
    /// A reply and the ack of its request are one atomic step, if both mailboxes are stored in one place.
    pub atomic_reply: Support,
    /// Messages of one group are delivered one at a time, in order ([`SendOptions::group`]).
    pub groups: Support,
    /// The number of deliveries per period can be limited ([`SettingsChange::rate_limit`]).
    pub rate_limits: Support,
    /// The mailbox can be paused for all receivers ([`SettingsChange::pause`]).
    pub pauses: Support,
}

impl Capabilities {
    /// All capabilities.
    pub const ALL: Self = Self {
        outlives_process: Support::Yes,
        outlives_power_cut: Support::Yes,
        shared: Support::Yes,
        ordered: Support::Yes,
        priorities: Support::Yes,
        atomic_reply: Support::Yes,
        groups: Support::Yes,
        rate_limits: Support::Yes,
        pauses: Support::Yes,
    };
}

/// A mailbox of messages with byte bodies, each leased to one receiver at a time. All handles of a mailbox see the same
/// messages.
///
/// Operations with a receipt fail with [`MailboxError::ReceiptExpired`] once the lease has ended, and change nothing
/// then.
///
/// ```
/// use std::time::Duration;
///
/// use snakepit::mailbox::{Mailbox, MemoryMailbox, ReceiveOptions, SendOptions};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mailbox = MemoryMailbox::new("orders");
/// mailbox.send(b"one coffee".to_vec(), SendOptions::new()).await?;
///
/// let options = ReceiveOptions::new().visibility_timeout(Duration::from_mins(1));
/// for message in mailbox.receive(options).await? {
///     assert_eq!(&message.body[..], b"one coffee");
///     if let Some(receipt) = &message.receipt {
///         mailbox.ack(receipt).await?;
///     }
/// }
/// # Ok(()) }
/// ```
pub trait Mailbox: std::fmt::Debug + std::marker::Send + Sync {
    /// Returns the mailbox's name, which is the address for replies.
    fn name(&self) -> &str;

    /// Returns what the backend can do.
    fn capabilities(&self) -> Capabilities;

    /// Sends a message. When the future completes, the message is as durable as the backend makes it. A message whose
    /// dedup key is still remembered is not stored; the result is then the id of the first message with that key.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use snakepit::mailbox::{Mailbox, MailboxError, SendOptions, body};
    ///
    /// # async fn example(mailbox: &dyn Mailbox) -> Result<(), MailboxError> {
    /// let options = SendOptions::new().delay(Duration::from_secs(10)).dedup_key("order-7");
    /// let id = mailbox.send(body(&["coffee", "cake"])?, options).await?;
    /// # Ok(()) }
    /// ```
    fn send(&self, body: Vec<u8>, options: SendOptions) -> Pending<'_, MessageId>;

    /// Sends several messages, either all of them or none.
    fn send_all(&self, messages: Vec<(Vec<u8>, SendOptions)>) -> Pending<'_, Vec<MessageId>>;

    /// Leases messages that are available now. If there are none, waits up to `options.wait` for at least one.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use snakepit::mailbox::{Mailbox, MailboxError, ReceiveOptions};
    ///
    /// # async fn example(mailbox: &dyn Mailbox) -> Result<(), MailboxError> {
    /// let options = ReceiveOptions::new().max_messages(10).wait(Duration::from_secs(20));
    /// for message in mailbox.receive(options).await? {
    ///     println!("{} for the {}. time: {:?}", message.id, message.delivery_count, message.read::<Vec<String>>()?);
    /// }
    /// # Ok(()) }
    /// ```
    fn receive(&self, options: ReceiveOptions) -> Pending<'_, Vec<Message>>;

    /// Changes the leases of these receipts and returns how many it changed. Skips expired receipts. The methods below
    /// call this one.
    fn change_leases<'a>(&'a self, receipts: &'a [Receipt], change: LeaseChange) -> Pending<'a, usize>;

    /// Acknowledges the message: it is finished.
    ///
    /// ```no_run
    /// use snakepit::mailbox::{Mailbox, MailboxError, Receipt};
    ///
    /// # async fn example(mailbox: &dyn Mailbox, receipt: &Receipt) -> Result<(), MailboxError> {
    /// match mailbox.ack(receipt).await {
    ///     Err(MailboxError::ReceiptExpired) => println!("too late: it may be delivered again"),
    ///     done => done?,
    /// }
    /// # Ok(()) }
    /// ```
    fn ack<'a>(&'a self, receipt: &'a Receipt) -> Pending<'a, ()> {
        Box::pin(change_one(self.change_leases(from_ref(receipt), LeaseChange::Ack)))
    }

    /// Acknowledges several messages. Returns how many; skips expired receipts.
    fn ack_all<'a>(&'a self, receipts: &'a [Receipt]) -> Pending<'a, usize> {
        self.change_leases(receipts, LeaseChange::Ack)
    }

    /// Gives the message back, to be received again after a delay, in its old position. The error is kept with the
    /// message. A message that has reached the delivery limit becomes a dead letter at once; the same holds when a
    /// lease lapses.
    fn nack<'a>(&'a self, receipt: &'a Receipt, options: NackOptions) -> Pending<'a, ()> {
        Box::pin(change_one(self.change_leases(from_ref(receipt), LeaseChange::Nack(options))))
    }

    /// Gives several messages back. Returns how many; skips expired receipts.
    fn nack_all<'a>(&'a self, receipts: &'a [Receipt], options: NackOptions) -> Pending<'a, usize> {
        self.change_leases(receipts, LeaseChange::Nack(options))
    }

    /// Gives back messages that nobody has started to handle. They can be received again at once, in their old
    /// positions, and these deliveries do not count. Returns how many; skips expired receipts.
    fn release<'a>(&'a self, receipts: &'a [Receipt]) -> Pending<'a, usize> {
        self.change_leases(receipts, LeaseChange::Release)
    }

    /// Extends the lease to end at least, or exactly, `visibility` from now.
    fn extend<'a>(
        &'a self,
        receipt: &'a Receipt,
        visibility: Duration,
        extension: LeaseExtension,
    ) -> Pending<'a, ()> {
        let change = LeaseChange::Extend(visibility, extension);
        Box::pin(change_one(self.change_leases(from_ref(receipt), change)))
    }

    /// Moves the message to the dead letters and ends its lease in one atomic step.
    fn bury<'a>(&'a self, receipt: &'a Receipt, reason: DeadReason) -> Pending<'a, ()> {
        Box::pin(change_one(self.change_leases(from_ref(receipt), LeaseChange::Bury(reason))))
    }

    /// Sends a reply to the mailbox that the message names, and acknowledges the message. The named mailbox need not be
    /// open anywhere. Both happen in one atomic step if both mailboxes are stored in one place
    /// ([`Capabilities::atomic_reply`]); otherwise the reply is sent first. The reply carries the message's id,
    /// attributes and trace ([`SendOptions::answering`]). If the message was sent with [`SendOptions::keep_result`],
    /// the reply is also kept.
    fn reply<'a>(
        &'a self,
        receipt: &'a Receipt,
        body: Vec<u8>,
        options: SendOptions,
    ) -> Pending<'a, MessageId>;

    /// Returns the reply to the message with this id while the reply is kept ([`SendOptions::keep_result`]). Waits for
    /// it for 0 s to 20 s.
    fn result(&self, id: MessageId, wait: Duration) -> Pending<'_, Option<Reply>>;

    /// Sends a message and waits for the reply to exactly this message, even if others make requests at the same time,
    /// in this or another process. Dropping the future stops the wait but does not withdraw the message.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use snakepit::mailbox::{Mailbox, MailboxError, RequestOptions, body};
    ///
    /// # async fn example(mailbox: &dyn Mailbox) -> Result<(), MailboxError> {
    /// let options = RequestOptions::new().timeout(Duration::from_secs(30));
    /// let reply = mailbox.request(body(&7)?, options).await?;
    /// let square: i64 = reply.read()?;
    /// # Ok(()) }
    /// ```
    fn request(&self, body: Vec<u8>, options: RequestOptions) -> Pending<'_, Reply> {
        Box::pin(reply::request(self, body, options))
    }

    /// Returns the mailbox's settings.
    fn settings(&self) -> Pending<'_, QueueSettings>;

    /// Changes the mailbox's settings for all of its users, and returns the new settings.
    fn configure(&self, change: SettingsChange) -> Pending<'_, QueueSettings>;

    /// Returns the next messages that could be received, without leasing them. Like [`Mailbox::count`],
    /// [`Mailbox::find`] and [`Mailbox::dead_letters`], it changes nothing, but takes into account the leases and times
    /// to live that have run out.
    fn peek(&self, max_messages: usize) -> Pending<'_, Vec<Message>>;

    /// Counts the messages by state.
    fn count(&self) -> Pending<'_, MessageCounts>;

    /// Returns the message with this id in whichever state it is. May scan the mailbox.
    fn find(&self, id: MessageId) -> Pending<'_, Option<FoundMessage>>;

    /// Removes all messages except the dead letters, including those in flight, and returns how many. Dedup keys stay
    /// remembered.
    fn purge(&self) -> Pending<'_, u64>;

    /// Returns the dead letters, oldest first.
    fn dead_letters(&self, max_messages: usize) -> Pending<'_, Vec<DeadLetter>>;

    /// Puts dead letters back as if they had just been sent: those with these ids, or all. Returns how many. The
    /// delivery count and the time to live start again.
    fn redrive<'a>(&'a self, ids: Option<&'a [MessageId]>) -> Pending<'a, u64>;

    /// Removes all dead letters and returns how many.
    fn purge_dead_letters(&self) -> Pending<'_, u64>;

    /// Stops accepting and delivering messages: waiting receivers get [`MailboxError::Closed`]. Receipts keep working,
    /// so that messages in flight can be finished.
    fn close(&self);

    /// Reports whether the mailbox was closed.
    fn is_closed(&self) -> bool;

    /// Checks whether the mailbox works. The error says why it does not.
    fn health(&self) -> Pending<'_, ()>;
}
