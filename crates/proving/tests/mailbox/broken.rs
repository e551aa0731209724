//! Backends that are broken on purpose: memory, with one fault each.

mod fault;
mod fixture;
mod notes;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use snakepit::mailbox::{
    AttemptEnd, Capabilities, Count, DeadLetter, DeadLetterPolicy, DeadReason, Extension, Found, Mailbox,
    MailboxError, MemoryMailbox, Message, MessageId, Nack, Pending, PostOffice, QueueSettings, Receipt,
    Receive, Reply, Send, SettingsChange,
};
use tokio::time::{Instant, sleep_until};

pub(crate) use fault::Fault;
pub(crate) use fixture::BrokenMemory;
use notes::Notes;

/// A mailbox with a fault.
pub(crate) struct Broken {
    inner: MemoryMailbox,
    /// Where messages come from that never were in the mailbox.
    shadow: MemoryMailbox,
    fault: Fault,
    memory: Mutex<Notes>,
    /// The mailboxes of this post office that somebody has opened.
    opened: Arc<Mutex<HashSet<String>>>,
    me: Weak<Broken>,
}

impl std::fmt::Debug for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Broken({:?})", self.fault)
    }
}

impl Broken {
    pub(crate) fn new(
        office: &PostOffice,
        name: &str,
        policy: DeadLetterPolicy,
        fault: Fault,
        opened: Arc<Mutex<HashSet<String>>>,
    ) -> Result<Arc<Self>, MailboxError> {
        opened.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        let policy = match (fault, policy.max_deliveries) {
            (Fault::IgnoresTheLimit, Some(_)) => policy.max_deliveries(u32::MAX),
            (Fault::GivesUpEarly, Some(limit)) => policy.max_deliveries(limit.saturating_sub(1).max(1)),
            _ => policy,
        };
        let inner = office.mailbox_with(name, policy)?;
        let shadow = MemoryMailbox::new("shadow");
        Ok(Arc::new_cyclic(|me| Self {
            inner,
            shadow,
            fault,
            memory: Mutex::default(),
            opened,
            me: me.clone(),
        }))
    }

    fn was_opened(&self, name: &str) -> bool {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// The power is cut.
    pub(crate) async fn cut(&self) {
        match self.fault {
            Fault::ForgetsAtCuts => drop(self.inner.purge().await),
            Fault::UndoesAcksAtCuts => {
                let mut notes = self.notes();
                let acked = std::mem::take(&mut notes.acked);
                notes.again.extend(acked.into_iter().rev().take(3));
            }
            _ => {}
        }
    }

    /// By a limit of its own.
    async fn bury_what_was_delivered_often(&self) -> Result<(), MailboxError> {
        let often = |message: &Message| message.delivery_count > 2;
        let seen = self.inner.peek(10).await?;
        if !seen.iter().any(often) {
            return Ok(());
        }
        for message in self.inner.receive(Receive::new().max_messages(10)).await? {
            if often(&message) {
                message.bury(DeadReason::Deliveries).await?;
            } else {
                message.release().await?;
            }
        }
        Ok(())
    }

    /// As whoever forgets crashes remembers it.
    fn without_lapses(&self, mut message: Message) -> Message {
        if self.is(Fault::LosesLapses) {
            message.attempts.retain(|attempt| attempt.end != AttemptEnd::Lapse);
        }
        message
    }

    fn lease(&self, asked: Duration) -> Duration {
        match self.fault {
            Fault::LapsesLate => asked + asked / 2,
            Fault::LapsesEarly => asked / 2,
            Fault::LeasesByTheWallClock => Duration::from_hours(12),
            _ => asked,
        }
    }

    async fn fetch(&self, mut options: Receive) -> Result<Vec<Message>, MailboxError> {
        if self.is(Fault::ClampsRanges) {
            options.max_messages = options.max_messages.clamp(1, 10);
            options.wait = options.wait.min(Duration::from_secs(20));
        }
        options.check()?;
        options.visibility_timeout = self.lease(options.visibility_timeout);
        let until = Instant::now() + options.wait;
        match self.fault {
            Fault::NeverWakes if !options.wait.is_zero() => {
                let now = self.inner.receive(options.wait(Duration::ZERO)).await?;
                if !now.is_empty() {
                    return Ok(now);
                }
                sleep_until(until).await;
                options.wait = Duration::ZERO;
                self.inner.receive(options).await
            }
            Fault::FillsBatches => {
                let mut all = Vec::new();
                loop {
                    let more = options.max_messages(options.max_messages - all.len());
                    all.extend(self.inner.receive(more).await?);
                    options.wait = until.saturating_duration_since(Instant::now());
                    if all.len() == options.max_messages || options.wait.is_zero() {
                        return Ok(all);
                    }
                }
            }
            _ => self.inner.receive(options).await,
        }
    }

    /// What becomes of the messages on their way out.
    async fn give(&self, mut messages: Vec<Message>) -> Vec<Message> {
        if self.is(Fault::DeliversUnsent) && self.notes().every(9) {
            self.shadow.send(b"never sent".to_vec(), Send::new()).await.expect("the shadow takes it");
            messages.extend(self.shadow.receive(Receive::new()).await.expect("the shadow gives it"));
        }
        let mut notes = self.notes();
        messages.extend(std::mem::take(&mut notes.again).into_iter().map(|mut message| {
            notes.turn += 1;
            message.delivery_count += 1;
            message.receipt = Some(Receipt::from(format!("again {}", notes.turn).as_str()));
            message
        }));
        for message in &mut messages {
            *message = self.without_lapses(message.clone());
            message.mailbox = self.me.upgrade().expect("it is alive");
            match self.fault {
                Fault::ChangesBodies if notes.every(7) => message.body = b"changed"[..].into(),
                Fault::ForgetsAttempts => message.delivery_count = 1,
                Fault::CountsTwice => message.delivery_count *= 2,
                Fault::LeasesOverlap if notes.every(6) => notes.again.push(message.clone()),
                Fault::ReusesReceipts => {
                    let given = Receipt::from(message.id.to_string().as_str());
                    let real = message.receipt.replace(given).expect("a receipt");
                    notes.latest.insert(message.id, real);
                }
                _ => {}
            }
            let receipt = message.receipt.clone().expect("a receipt");
            if !self.is(Fault::ReusesReceipts) {
                notes.latest.insert(message.id, receipt.clone());
            }
            notes.given.insert(receipt, message.clone());
        }
        if self.is(Fault::Reorders) {
            messages.reverse();
        }
        messages
    }

    /// The receipt as the inner mailbox knows it.
    fn real(&self, receipt: &Receipt) -> Receipt {
        if !matches!(self.fault, Fault::ReusesReceipts | Fault::AcksByIdNotByReceipt) {
            return receipt.clone();
        }
        let notes = self.notes();
        let id = notes.given.get(receipt).map(|message| message.id);
        id.and_then(|id| notes.latest.get(&id)).unwrap_or(receipt).clone()
    }

    fn judged(&self, outcome: Result<(), MailboxError>) -> Result<(), MailboxError> {
        match outcome {
            Err(MailboxError::ReceiptExpired) if self.is(Fault::AcceptsStaleReceipts) => Ok(()),
            outcome => outcome,
        }
    }

    async fn copy_to_the_dead(&self, receipt: &Receipt, reason: DeadReason) {
        let Some(original) = self.notes().given.get(receipt).cloned() else { return };
        self.shadow.send(original.body.to_vec(), Send::new()).await.expect("the shadow takes it");
        for copy in self.shadow.receive(Receive::new()).await.expect("the shadow gives it") {
            copy.bury(reason.clone()).await.expect("the shadow buries it");
        }
        let mut letters = self.shadow.dead_letters(1).await.expect("the shadow lists it");
        self.shadow.purge_dead_letters().await.expect("the shadow forgets it");
        for letter in &mut letters {
            letter.message.id = original.id;
            letter.message.delivery_count = original.delivery_count;
        }
        self.notes().extra_dead.extend(letters);
    }
}

impl Mailbox for Broken {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn send(&self, body: Vec<u8>, mut options: Send) -> Pending<'_, MessageId> {
        Box::pin(async move {
            let is_closed = self.inner.is_closed();
            match self.fault {
                Fault::LosesSends if self.notes().every(11) => return self.shadow.send(body, options).await,
                Fault::SendsWhenClosed if is_closed => return self.shadow.send(body, options).await,
                Fault::NeverDrains if self.notes().every(20) => options.delay = Duration::from_hours(12),
                Fault::IgnoresPriorities => options.priority = 0,
                Fault::ForgetsDedupKeys => options.dedup_key = None,
                _ => {}
            }
            self.inner.send(body, options).await
        })
    }

    fn send_all(&self, messages: Vec<(Vec<u8>, Send)>) -> Pending<'_, Vec<MessageId>> {
        self.inner.send_all(messages)
    }

    fn receive(&self, options: Receive) -> Pending<'_, Vec<Message>> {
        Box::pin(async move {
            if self.notes().is_closed {
                return Err(MailboxError::Closed(self.name().to_owned()));
            }
            let messages = self.fetch(options).await?;
            Ok(self.give(messages).await)
        })
    }

    fn ack<'a>(&'a self, receipt: &'a Receipt) -> Pending<'a, ()> {
        Box::pin(async move {
            let outcome = self.inner.ack(&self.real(receipt)).await;
            let mut notes = self.notes();
            if outcome.is_ok()
                && let Some(message) = notes.given.get(receipt).cloned()
            {
                notes.acked.push(message.clone());
                if self.is(Fault::DeliversAfterAck) && notes.every(5) {
                    notes.again.push(message);
                }
            }
            drop(notes);
            self.judged(outcome)
        })
    }

    fn ack_all<'a>(&'a self, receipts: &'a [Receipt]) -> Pending<'a, usize> {
        self.inner.ack_all(receipts)
    }

    fn nack<'a>(&'a self, receipt: &'a Receipt, mut options: Nack) -> Pending<'a, ()> {
        Box::pin(async move {
            let real = self.real(receipt);
            let outcome = match self.fault {
                Fault::LosesNacks if self.notes().every(3) => self.inner.ack(&real).await,
                Fault::KeepsLeasesAfterNack => {
                    self.inner.extend(&real, Duration::ZERO, Extension::AtLeast).await
                }
                Fault::UncountsNacks => self.inner.release(&[real]).await.and_then(|released| {
                    if released == 1 { Ok(()) } else { Err(MailboxError::ReceiptExpired) }
                }),
                _ => {
                    if self.is(Fault::LosesErrors) {
                        options.error = None;
                    }
                    self.inner.nack(&real, options).await
                }
            };
            self.judged(outcome)
        })
    }

    fn nack_all<'a>(&'a self, receipts: &'a [Receipt], options: Nack) -> Pending<'a, usize> {
        self.inner.nack_all(receipts, options)
    }

    fn release<'a>(&'a self, receipts: &'a [Receipt]) -> Pending<'a, usize> {
        Box::pin(async move {
            let mut released = 0;
            for receipt in receipts {
                let real = [self.real(receipt)];
                released += match self.fault {
                    Fault::CountsReleases => self.inner.nack_all(&real, Nack::new()).await?,
                    Fault::LosesReleases if self.notes().every(3) => self.inner.ack_all(&real).await?,
                    _ => self.inner.release(&real).await?,
                };
            }
            Ok(released)
        })
    }

    fn extend<'a>(
        &'a self,
        receipt: &'a Receipt,
        visibility: Duration,
        extension: Extension,
    ) -> Pending<'a, ()> {
        Box::pin(async move {
            let real = self.real(receipt);
            let outcome = match self.fault {
                Fault::IgnoresExtensions => {
                    self.inner.extend(&real, Duration::ZERO, Extension::AtLeast).await
                }
                Fault::ExtensionsShorten => self.inner.extend(&real, visibility, Extension::Exactly).await,
                _ => self.inner.extend(&real, self.lease(visibility), extension).await,
            };
            self.judged(outcome)
        })
    }

    fn bury<'a>(&'a self, receipt: &'a Receipt, reason: DeadReason) -> Pending<'a, ()> {
        Box::pin(async move {
            let real = self.real(receipt);
            if !self.is(Fault::CopiesInsteadOfMoving) {
                return self.judged(self.inner.bury(&real, reason).await);
            }
            self.inner.nack(&real, Nack::new()).await?;
            self.copy_to_the_dead(receipt, reason).await;
            Ok(())
        })
    }

    fn reply<'a>(&'a self, receipt: &'a Receipt, body: Vec<u8>, options: Send) -> Pending<'a, MessageId> {
        Box::pin(async move {
            let real = self.real(receipt);
            let named = self.notes().given.get(receipt).and_then(|message| message.reply_to.clone());
            match self.fault {
                // As if it were any other message.
                Fault::RepliesWithoutId => {
                    let name = named.ok_or(MailboxError::NoReplyTo)?;
                    self.inner.ack(&real).await?;
                    return self.inner.office().mailbox(name).send(body, options).await;
                }
                // A mailbox without a trace of anybody is taken for one that nobody has.
                Fault::LosesEarlyReplies => {
                    if let Some(name) = &named
                        && !self.was_opened(name)
                    {
                        self.inner.ack(&real).await?;
                        return self.shadow.send(body, options).await;
                    }
                    return self.inner.reply(&real, body, options).await;
                }
                Fault::RepliesWithoutAck => {}
                _ => {
                    let answered = self.notes().given.get(receipt).map(|message| message.id);
                    self.notes().answered.extend(answered);
                    return self.inner.reply(&real, body, options).await;
                }
            }
            self.inner.extend(&real, Duration::ZERO, Extension::AtLeast).await?;
            let name = named.ok_or(MailboxError::NoReplyTo)?;
            self.inner.office().mailbox(name).send(body, options).await
        })
    }

    fn result(&self, id: MessageId, wait: Duration) -> Pending<'_, Option<Reply>> {
        Box::pin(async move {
            let reply = self.inner.result(id, wait).await?;
            let last = self.notes().answered.last().copied();
            match (self.fault, last) {
                // The latest answer is taken for everybody's.
                (Fault::MixesUpResults, Some(last)) => self.inner.result(last, Duration::ZERO).await,
                (Fault::ForgetsResults, _) if self.notes().every(2) => Ok(None),
                _ => Ok(reply),
            }
        })
    }

    fn settings(&self) -> Pending<'_, QueueSettings> {
        self.inner.settings()
    }

    fn configure(&self, change: SettingsChange) -> Pending<'_, QueueSettings> {
        Box::pin(async move {
            match (self.fault, change.max_deliveries) {
                // Only this handle knows of it.
                (Fault::KeepsTheLimitToItself, Some(_)) => {
                    Ok(change.applied_to(&self.inner.settings().await?))
                }
                _ => self.inner.configure(change).await,
            }
        })
    }

    fn find(&self, id: MessageId) -> Pending<'_, Option<Found>> {
        self.inner.find(id)
    }

    fn peek(&self, max_messages: usize) -> Pending<'_, Vec<Message>> {
        self.inner.peek(max_messages)
    }

    fn count(&self) -> Pending<'_, Count> {
        Box::pin(async move {
            if self.is(Fault::BuriesWhenLookedAt) {
                self.bury_what_was_delivered_often().await?;
            }
            let mut count = self.inner.count().await?;
            match self.fault {
                Fault::DropsDeadLetters => count.dead = self.dead_letters(usize::MAX).await?.len() as u64,
                _ => count.dead += self.notes().extra_dead.len() as u64,
            }
            Ok(count)
        })
    }

    fn purge(&self) -> Pending<'_, u64> {
        self.inner.purge()
    }

    fn dead_letters(&self, max_messages: usize) -> Pending<'_, Vec<DeadLetter>> {
        Box::pin(async move {
            let mut letters = self.inner.dead_letters(max_messages).await?;
            letters.extend(self.notes().extra_dead.iter().cloned());
            for letter in &mut letters {
                letter.message = self.without_lapses(letter.message.clone());
            }
            match self.fault {
                Fault::DropsDeadLetters => letters.retain(|letter| letter.reason != DeadReason::Deliveries),
                Fault::DeadLettersTwice => letters.extend(letters.clone()),
                _ => {}
            }
            Ok(letters)
        })
    }

    fn redrive<'a>(&'a self, ids: Option<&'a [MessageId]>) -> Pending<'a, u64> {
        self.inner.redrive(ids)
    }

    fn purge_dead_letters(&self) -> Pending<'_, u64> {
        self.inner.purge_dead_letters()
    }

    fn close(&self) {
        self.notes().is_closed = true;
        if !self.is(Fault::SleepsThroughClose) {
            self.inner.close();
        }
    }

    fn is_closed(&self) -> bool {
        self.notes().is_closed
    }

    fn health(&self) -> Pending<'_, ()> {
        self.inner.health()
    }
}
