//! What concurrent clients did to a mailbox and what they were told: who, what, from when to when. Judges nothing; that is for
//! [`checker`](super::checker).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use snakepit::mailbox::{
    Attempt, Count, DeadReason, Extension, Mailbox, MailboxError, Message, MessageId, Nack, Receipt, Receive,
    Send,
};
use tokio::time::Instant;

/// Nanoseconds since the history began.
pub type Time = u64;

/// A moment of a history: what happens at the same time still has an order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moment {
    /// How many there were before it.
    pub order: u64,
    /// When it was.
    pub time: Time,
}

impl Moment {
    /// After all others.
    pub const NEVER: Self = Self { order: u64::MAX, time: Time::MAX };
}

/// A body, short enough to be kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Digest(u64);

impl Digest {
    /// Of these bytes.
    pub fn of(body: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        body.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// One operation of one client, or one mark.
#[derive(Clone, Debug)]
pub struct Event {
    /// The client.
    pub who: usize,
    /// When it asked.
    pub invoked: Moment,
    /// When it was told; never, if it or its process went away before.
    pub returned: Option<Moment>,
    /// What, and what it was told.
    pub what: What,
}

/// What was asked, and what came of it. `None` is what nobody knows.
#[derive(Clone, Debug)]
pub enum What {
    /// A message was put in.
    Send {
        /// What it says.
        body: Digest,
        /// Its id, if it was accepted.
        id: Option<MessageId>,
        /// Whether it was refused, and so is surely not there.
        is_refused: bool,
    },
    /// Messages were received.
    Receive {
        /// How long they are leased.
        lease: Duration,
        /// What came.
        deliveries: Vec<Delivery>,
    },
    /// A lease was to be ended.
    End {
        /// By this right.
        receipt: Receipt,
        /// In this way.
        way: Way,
        /// Whether it was.
        is_accepted: Option<bool>,
    },
    /// A lease was to last longer, or shorter.
    Extend {
        /// By this right.
        receipt: Receipt,
        /// For so long from now.
        lease: Duration,
        /// Whether it may get shorter.
        extension: Extension,
        /// Whether it was done.
        is_accepted: Option<bool>,
    },
    /// Messages were removed.
    Purge {
        /// How many.
        messages: Option<u64>,
    },
    /// Dead letters were put back.
    Redrive,
    /// The power was cut, or the process killed; the mailbox was opened anew.
    Cut,
    /// The wall clock jumped.
    WallJump,
}

/// One message as one receive gave it out.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Which.
    pub id: MessageId,
    /// What it says.
    pub body: Digest,
    /// The right to it.
    pub receipt: Receipt,
    /// Which delivery of it this is said to be.
    pub number: u32,
}

/// How a lease is ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// The message is done.
    Ack,
    /// The message is done, with a reply.
    Reply,
    /// It is given back.
    Nack,
    /// It is given back as if it had not been delivered.
    Release,
    /// It is given up.
    Bury,
}

impl Way {
    /// Whether the message is done with it.
    pub fn is_done(self) -> bool {
        matches!(self, Self::Ack | Self::Reply)
    }
}

/// Everything that happened.
#[derive(Debug)]
pub struct History {
    start: Instant,
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    events: Vec<Event>,
    moments: u64,
}

impl Default for History {
    fn default() -> Self {
        Self { start: Instant::now(), log: Mutex::default() }
    }
}

impl History {
    /// One in which nothing has happened yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// What time it is.
    pub fn now(&self) -> Time {
        self.start.elapsed().as_nanos() as u64
    }

    /// All that was recorded.
    pub fn events(&self) -> Vec<Event> {
        self.lock().events.clone()
    }

    /// Something happened that no client did.
    pub fn mark(&self, what: What) {
        let mut log = self.lock();
        let now = self.moment(&mut log);
        log.events.push(Event { who: usize::MAX, invoked: now, returned: Some(now), what });
    }

    /// Somebody who uses the mailbox and takes notes.
    pub fn client(self: &Arc<Self>, who: usize, mailbox: &Arc<dyn Mailbox>) -> Client {
        Client { who, history: Arc::clone(self), mailbox: Arc::clone(mailbox) }
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moment(&self, log: &mut Log) -> Moment {
        log.moments += 1;
        Moment { order: log.moments, time: self.now() }
    }

    /// Notes what is asked before it is: who goes away meanwhile leaves that behind.
    fn begin(&self, who: usize, what: What) -> usize {
        let mut log = self.lock();
        let invoked = self.moment(&mut log);
        log.events.push(Event { who, invoked, returned: None, what });
        log.events.len() - 1
    }

    fn end(&self, event: usize, answer: impl FnOnce(&mut What)) {
        let mut log = self.lock();
        let now = self.moment(&mut log);
        let event = &mut log.events[event];
        event.returned = Some(now);
        answer(&mut event.what);
    }
}

/// Somebody who uses the mailbox and takes notes.
#[derive(Clone, Debug)]
pub struct Client {
    who: usize,
    history: Arc<History>,
    mailbox: Arc<dyn Mailbox>,
}

/// Whether it was done; not known if the backend failed.
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

/// The error with which a delivery is given back: the checker wants each to have one.
pub fn nack_error(delivery: u32) -> String {
    format!("delivery {delivery} failed")
}

impl Client {
    /// The mailbox that it uses.
    pub fn mailbox(&self) -> &Arc<dyn Mailbox> {
        &self.mailbox
    }

    /// As [`Mailbox::send`].
    pub async fn send(&self, body: Vec<u8>, options: Send) -> Result<MessageId, MailboxError> {
        let what = What::Send { body: Digest::of(&body), id: None, is_refused: false };
        let event = self.history.begin(self.who, what);
        let outcome = self.mailbox.send(body, options).await;
        self.history.end(event, |what| {
            if let What::Send { id, is_refused, .. } = what {
                *id = outcome.as_ref().ok().copied();
                *is_refused = accepted(&outcome) == Some(false);
            }
        });
        outcome
    }

    /// As [`Mailbox::receive`].
    pub async fn receive(&self, options: Receive) -> Result<Vec<Message>, MailboxError> {
        let what = What::Receive { lease: options.visibility_timeout, deliveries: Vec::new() };
        let event = self.history.begin(self.who, what);
        let outcome = self.mailbox.receive(options).await;
        if matches!(outcome, Err(MailboxError::Backend { .. })) {
            // It may have leased some, so it counts as one that never returned.
            return outcome;
        }
        self.history.end(event, |what| {
            if let What::Receive { deliveries, .. } = what {
                let delivery = |message: &Message| Delivery {
                    id: message.id,
                    body: Digest::of(&message.body),
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
        way: Way,
        act: impl Future<Output = Result<(), MailboxError>>,
    ) -> Result<(), MailboxError> {
        let what = What::End { receipt: receipt_of(message), way, is_accepted: None };
        let event = self.history.begin(self.who, what);
        let outcome = act.await;
        self.history.end(event, |what| {
            if let What::End { is_accepted, .. } = what {
                *is_accepted = accepted(&outcome);
            }
        });
        outcome
    }

    /// As [`Mailbox::ack`].
    pub async fn ack(&self, message: &Message) -> Result<(), MailboxError> {
        self.end(message, Way::Ack, self.mailbox.ack(&receipt_of(message))).await
    }

    /// As [`Mailbox::nack`], with an error that tells of the delivery.
    pub async fn nack(&self, message: &Message, pause: Duration) -> Result<(), MailboxError> {
        let error = nack_error(message.delivery_count);
        let options = Nack::new().visibility(pause).error(error);
        self.end(message, Way::Nack, self.mailbox.nack(&receipt_of(message), options)).await
    }

    /// As [`Mailbox::release`].
    pub async fn release(&self, message: &Message) -> Result<(), MailboxError> {
        self.end(message, Way::Release, message.release()).await
    }

    /// As [`Mailbox::bury`].
    pub async fn bury(&self, message: &Message, reason: DeadReason) -> Result<(), MailboxError> {
        self.end(message, Way::Bury, self.mailbox.bury(&receipt_of(message), reason)).await
    }

    /// As [`Mailbox::reply`].
    pub async fn reply(&self, message: &Message, body: Vec<u8>) -> Result<(), MailboxError> {
        let receipt = receipt_of(message);
        let act = async { self.mailbox.reply(&receipt, body, Send::new()).await.map(drop) };
        self.end(message, Way::Reply, act).await
    }

    /// As [`Mailbox::extend`].
    pub async fn extend(
        &self,
        message: &Message,
        lease: Duration,
        extension: Extension,
    ) -> Result<(), MailboxError> {
        let receipt = receipt_of(message);
        let what = What::Extend { receipt: receipt.clone(), lease, extension, is_accepted: None };
        let event = self.history.begin(self.who, what);
        let outcome = self.mailbox.extend(&receipt, lease, extension).await;
        self.history.end(event, |what| {
            if let What::Extend { is_accepted, .. } = what {
                *is_accepted = accepted(&outcome);
            }
        });
        outcome
    }

    /// As [`Mailbox::purge`].
    pub async fn purge(&self) -> Result<u64, MailboxError> {
        let event = self.history.begin(self.who, What::Purge { messages: None });
        let outcome = self.mailbox.purge().await;
        self.history.end(event, |what| {
            if let What::Purge { messages } = what {
                *messages = outcome.as_ref().ok().copied();
            }
        });
        outcome
    }

    /// As [`Mailbox::redrive`], of all.
    pub async fn redrive(&self) -> Result<u64, MailboxError> {
        let event = self.history.begin(self.who, What::Redrive);
        let outcome = self.mailbox.redrive(None).await;
        self.history.end(event, |_| {});
        outcome
    }
}

/// A dead letter as it was found.
#[derive(Clone, Debug)]
pub struct Dead {
    /// Its id.
    pub id: MessageId,
    /// What it says.
    pub body: Digest,
    /// Why it was given up.
    pub reason: DeadReason,
    /// How often it was delivered.
    pub deliveries: u32,
    /// What it remembers of that.
    pub attempts: Vec<Attempt>,
}

/// How a mailbox was found when everybody had left.
#[derive(Clone, Debug)]
pub struct Ending {
    /// When that was.
    pub at: Time,
    /// What could still be received.
    pub present: Vec<(MessageId, Digest)>,
    /// The dead letters.
    pub dead: Vec<Dead>,
    /// What the mailbox counts.
    pub count: Count,
}

impl Ending {
    /// Looks at a mailbox that nobody uses any more.
    pub async fn of(history: &History, mailbox: &dyn Mailbox) -> Result<Self, MailboxError> {
        let seen = mailbox.peek(1_000_000).await?;
        let dead = mailbox.dead_letters(1_000_000).await?;
        Ok(Self {
            at: history.now(),
            present: seen.iter().map(|message| (message.id, Digest::of(&message.body))).collect(),
            dead: dead
                .into_iter()
                .map(|letter| {
                    let Message { id, body, delivery_count, attempts, .. } = letter.message;
                    let body = Digest::of(&body);
                    Dead { id, body, reason: letter.reason, deliveries: delivery_count, attempts }
                })
                .collect(),
            count: mailbox.count().await?,
        })
    }
}
