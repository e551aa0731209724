//! A history: what concurrent clients requested from a mailbox, what it answered, and when. The
//! [`checker`](super::checker) judges it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use snakepit_mailbox::{
    Attempt, DeadReason, LeaseExtension, Mailbox, MailboxError, Message, MessageCounts, MessageId,
    NackOptions, Receipt, ReceiveOptions, SendOptions,
};
use tokio::time::Instant;

/// Nanoseconds since the history began.
pub type Nanoseconds = u64;

/// A moment of a history. Moments at the same time still have an order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct HistoryMoment {
    /// The number of earlier moments.
    pub order: u64,
    /// The time of the moment.
    pub time: Nanoseconds,
}

impl HistoryMoment {
    /// A moment after all others.
    pub const NEVER: Self = Self { order: u64::MAX, time: Nanoseconds::MAX };
}

/// A hash that stands for a body.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BodyDigest(u64);

impl BodyDigest {
    /// Returns the hash of these bytes.
    pub fn of(body: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        body.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// An operation of a client, or a mark.
#[derive(Clone, Debug)]
pub struct HistoryEvent {
    /// The client.
    pub who: usize,
    /// When the client made the request.
    pub invoked: HistoryMoment,
    /// When the mailbox answered. `None` if the client or its process ended earlier.
    pub returned: Option<HistoryMoment>,
    /// The operation and its answer.
    pub what: ClientOperation,
}

/// An operation and its result. `None` means that the result is unknown.
#[derive(Clone, Debug)]
pub enum ClientOperation {
    /// A message was sent.
    Send {
        /// The body of the message.
        body: BodyDigest,
        /// The id of the message, if the mailbox accepted it.
        id: Option<MessageId>,
        /// Whether the mailbox refused the message. Then it certainly does not exist.
        is_refused: bool,
    },
    /// Messages were received.
    Receive {
        /// The length of their leases.
        lease: Duration,
        /// The messages.
        deliveries: Vec<Delivery>,
    },
    /// A client asked to end a lease.
    End {
        /// The receipt.
        receipt: Receipt,
        /// How to end it.
        way: LeaseEnd,
        /// Whether the mailbox accepted the request.
        is_accepted: Option<bool>,
    },
    /// A client asked for a longer or a shorter lease.
    Extend {
        /// The receipt.
        receipt: Receipt,
        /// The length of the lease from now on.
        lease: Duration,
        /// Whether the lease may become shorter.
        extension: LeaseExtension,
        /// Whether the mailbox accepted the request.
        is_accepted: Option<bool>,
    },
    /// A purge removed messages.
    Purge {
        /// The number of removed messages.
        messages: Option<u64>,
    },
    /// Dead letters were redriven.
    Redrive,
    /// The power was cut or the process killed, and the mailbox was reopened.
    Cut,
    /// The wall clock jumped.
    WallJump,
}

/// A message as a receive returned it.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The id of the message.
    pub id: MessageId,
    /// The body of the message.
    pub body: BodyDigest,
    /// The receipt of its lease.
    pub receipt: Receipt,
    /// The delivery count of the message.
    pub number: u32,
}

/// How a client ends a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseEnd {
    /// The message is acknowledged.
    Ack,
    /// The message is acknowledged with a reply.
    Reply,
    /// The message failed and returns to the mailbox.
    Nack,
    /// The message returns as if it had not been delivered.
    Release,
    /// The message becomes a dead letter.
    Bury,
}

impl LeaseEnd {
    /// Reports whether the message is finished after this end.
    pub fn is_done(self) -> bool {
        matches!(self, Self::Ack | Self::Reply)
    }
}

/// Every operation of every client, in order.
#[derive(Debug)]
pub struct History {
    start: Instant,
    log: Mutex<EventLog>,
}

#[derive(Debug, Default)]
struct EventLog {
    events: Vec<HistoryEvent>,
    moments: u64,
}

impl Default for History {
    fn default() -> Self {
        Self { start: Instant::now(), log: Mutex::default() }
    }
}

impl History {
    /// Creates an empty history.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Returns the time since the history began.
    pub fn now(&self) -> Nanoseconds {
        self.start.elapsed().as_nanos() as u64
    }

    /// Returns all events so far.
    pub fn events(&self) -> Vec<HistoryEvent> {
        self.lock().events.clone()
    }

    /// Records an event that no client caused.
    pub fn mark(&self, what: ClientOperation) {
        let mut log = self.lock();
        let now = self.moment(&mut log);
        log.events.push(HistoryEvent { who: usize::MAX, invoked: now, returned: Some(now), what });
    }

    /// Returns a client that records its operations.
    pub fn client(self: &Arc<Self>, who: usize, mailbox: &Arc<dyn Mailbox>) -> RecordingClient {
        RecordingClient { who, history: Arc::clone(self), mailbox: Arc::clone(mailbox) }
    }

    fn lock(&self) -> MutexGuard<'_, EventLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moment(&self, log: &mut EventLog) -> HistoryMoment {
        log.moments += 1;
        HistoryMoment { order: log.moments, time: self.now() }
    }

    /// Records an operation before it is requested. A client that ends meanwhile leaves a trace.
    fn begin(&self, who: usize, what: ClientOperation) -> usize {
        let mut log = self.lock();
        let invoked = self.moment(&mut log);
        log.events.push(HistoryEvent { who, invoked, returned: None, what });
        log.events.len() - 1
    }

    fn end(&self, event: usize, answer: impl FnOnce(&mut ClientOperation)) {
        let mut log = self.lock();
        let now = self.moment(&mut log);
        let event = &mut log.events[event];
        event.returned = Some(now);
        answer(&mut event.what);
    }
}

/// A client that records its operations.
#[derive(Clone, Debug)]
pub struct RecordingClient {
    who: usize,
    history: Arc<History>,
    mailbox: Arc<dyn Mailbox>,
}

/// Returns whether the mailbox accepted the operation, or `None` if the backend failed.
fn accepted<T>(outcome: &Result<T, MailboxError>) -> Option<bool> {
    match outcome {
        Ok(_) => Some(true),
        Err(MailboxError::Backend { .. }) => None,
        Err(_) => Some(false),
    }
}

fn receipt_of(message: &Message) -> Receipt {
    message.receipt.clone().expect("a message that was received")
}

/// Returns the error with which a delivery is nacked. The checker expects to find it.
pub fn nack_error(delivery: u32) -> String {
    format!("delivery {delivery} failed")
}

impl RecordingClient {
    /// Returns the client's mailbox.
    pub fn mailbox(&self) -> &Arc<dyn Mailbox> {
        &self.mailbox
    }

    /// Like [`Mailbox::send`].
    pub async fn send(&self, body: Vec<u8>, options: SendOptions) -> Result<MessageId, MailboxError> {
        let what = ClientOperation::Send { body: BodyDigest::of(&body), id: None, is_refused: false };
        let event = self.history.begin(self.who, what);
        let outcome = self.mailbox.send(body, options).await;
        self.history.end(event, |what| {
            if let ClientOperation::Send { id, is_refused, .. } = what {
                *id = outcome.as_ref().ok().copied();
                *is_refused = accepted(&outcome) == Some(false);
            }
        });
        outcome
    }

    /// Like [`Mailbox::receive`].
    pub async fn receive(&self, options: ReceiveOptions) -> Result<Vec<Message>, MailboxError> {
        let what = ClientOperation::Receive { lease: options.visibility_timeout, deliveries: Vec::new() };
        let event = self.history.begin(self.who, what);
        let outcome = self.mailbox.receive(options).await;
        if matches!(outcome, Err(MailboxError::Backend { .. })) {
            // The backend may have leased messages, so the receive counts as one that never returned.
            return outcome;
        }
        self.history.end(event, |what| {
            if let ClientOperation::Receive { deliveries, .. } = what {
                let delivery = |message: &Message| Delivery {
                    id: message.id,
                    body: BodyDigest::of(&message.body),
                    receipt: receipt_of(message),
                    number: message.delivery_count,
                };
                *deliveries = outcome.iter().flatten().map(delivery).collect();
            }
        });
        outcome
    }

    async fn end(
        &self,
        message: &Message,
        way: LeaseEnd,
        act: impl Future<Output = Result<(), MailboxError>>,
    ) -> Result<(), MailboxError> {
        let what = ClientOperation::End { receipt: receipt_of(message), way, is_accepted: None };
        let event = self.history.begin(self.who, what);
        let outcome = act.await;
        self.history.end(event, |what| {
            if let ClientOperation::End { is_accepted, .. } = what {
                *is_accepted = accepted(&outcome);
            }
        });
        outcome
    }

    /// Like [`Mailbox::ack`].
    pub async fn ack(&self, message: &Message) -> Result<(), MailboxError> {
        self.end(message, LeaseEnd::Ack, self.mailbox.ack(&receipt_of(message))).await
    }

    /// Like [`Mailbox::nack`], with [`nack_error`] as its error.
    pub async fn nack(&self, message: &Message, pause: Duration) -> Result<(), MailboxError> {
        let error = nack_error(message.delivery_count);
        let options = NackOptions::new().visibility(pause).error(error);
        self.end(message, LeaseEnd::Nack, self.mailbox.nack(&receipt_of(message), options)).await
    }

    /// Like [`Mailbox::release`].
    pub async fn release(&self, message: &Message) -> Result<(), MailboxError> {
        self.end(message, LeaseEnd::Release, message.release()).await
    }

    /// Like [`Mailbox::bury`].
    pub async fn bury(&self, message: &Message, reason: DeadReason) -> Result<(), MailboxError> {
        self.end(message, LeaseEnd::Bury, self.mailbox.bury(&receipt_of(message), reason)).await
    }

    /// Like [`Mailbox::reply`].
    pub async fn reply(&self, message: &Message, body: Vec<u8>) -> Result<(), MailboxError> {
        let receipt = receipt_of(message);
        let act = async { self.mailbox.reply(&receipt, body, SendOptions::new()).await.map(drop) };
        self.end(message, LeaseEnd::Reply, act).await
    }

    /// Like [`Mailbox::extend`].
    pub async fn extend(
        &self,
        message: &Message,
        lease: Duration,
        extension: LeaseExtension,
    ) -> Result<(), MailboxError> {
        let receipt = receipt_of(message);
        let what = ClientOperation::Extend { receipt: receipt.clone(), lease, extension, is_accepted: None };
        let event = self.history.begin(self.who, what);
        let outcome = self.mailbox.extend(&receipt, lease, extension).await;
        self.history.end(event, |what| {
            if let ClientOperation::Extend { is_accepted, .. } = what {
                *is_accepted = accepted(&outcome);
            }
        });
        outcome
    }

    /// Like [`Mailbox::purge`].
    pub async fn purge(&self) -> Result<u64, MailboxError> {
        let event = self.history.begin(self.who, ClientOperation::Purge { messages: None });
        let outcome = self.mailbox.purge().await;
        self.history.end(event, |what| {
            if let ClientOperation::Purge { messages } = what {
                *messages = outcome.as_ref().ok().copied();
            }
        });
        outcome
    }

    /// Like [`Mailbox::redrive`] for all dead letters.
    pub async fn redrive(&self) -> Result<u64, MailboxError> {
        let event = self.history.begin(self.who, ClientOperation::Redrive);
        let outcome = self.mailbox.redrive(None).await;
        self.history.end(event, |_| {});
        outcome
    }
}

/// A dead letter at the end of a history.
#[derive(Clone, Debug)]
pub struct FoundDeadLetter {
    /// The id of the message.
    pub id: MessageId,
    /// The body of the message.
    pub body: BodyDigest,
    /// The reason why the message died.
    pub reason: DeadReason,
    /// The number of its deliveries.
    pub deliveries: u32,
    /// The attempts that the dead letter remembers.
    pub attempts: Vec<Attempt>,
}

/// The state of a mailbox after its last client has finished.
#[derive(Clone, Debug)]
pub struct FinalState {
    /// When the state was read.
    pub at: Nanoseconds,
    /// The messages that could still be received.
    pub present: Vec<(MessageId, BodyDigest)>,
    /// The dead letters.
    pub dead: Vec<FoundDeadLetter>,
    /// The mailbox's own count.
    pub count: MessageCounts,
}

impl FinalState {
    /// Reads the state of a mailbox that is no longer in use.
    pub async fn of(history: &History, mailbox: &dyn Mailbox) -> Result<Self, MailboxError> {
        let seen = mailbox.peek(1_000_000).await?;
        let dead = mailbox.dead_letters(1_000_000).await?;
        Ok(Self {
            at: history.now(),
            present: seen.iter().map(|message| (message.id, BodyDigest::of(&message.body))).collect(),
            dead: dead
                .into_iter()
                .map(|letter| {
                    let Message { id, body, delivery_count, attempts, .. } = letter.message;
                    let body = BodyDigest::of(&body);
                    FoundDeadLetter { id, body, reason: letter.reason, deliveries: delivery_count, attempts }
                })
                .collect(),
            count: mailbox.count().await?,
        })
    }
}
