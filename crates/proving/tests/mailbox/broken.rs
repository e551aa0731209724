//! Memory mailboxes that are broken on purpose, with one fault each.

mod fault;
mod fixture;
mod memory;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use snakepit::mailbox::{
    AttemptEnd, Capabilities, DeadLetter, DeadLetterPolicy, DeadReason, FoundMessage, LeaseChange,
    LeaseExtension, Mailbox, MailboxError, MemoryMailbox, MemoryMailboxes, Message, MessageCounts, MessageId,
    NackOptions, Pending, QueueSettings, Receipt, ReceiveOptions, Reply, SendOptions, SettingsChange,
    Support,
};
use tokio::time::{Instant, sleep_until};

pub(crate) use fault::BackendFault;
pub(crate) use fixture::BrokenFixture;
use memory::FaultMemory;

/// A mailbox with a fault.
pub(crate) struct BrokenMailbox {
    inner: MemoryMailbox,
    /// The source of messages that were never in the mailbox.
    shadow: MemoryMailbox,
    fault: BackendFault,
    memory: Mutex<FaultMemory>,
    /// The mailboxes that were opened.
    opened: Arc<Mutex<HashSet<String>>>,
    me: Weak<BrokenMailbox>,
}

impl BrokenMailbox {
    pub(crate) fn new(
        office: &MemoryMailboxes,
        name: &str,
        policy: DeadLetterPolicy,
        fault: BackendFault,
        opened: Arc<Mutex<HashSet<String>>>,
    ) -> Result<Arc<Self>, MailboxError> {
        opened.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        let policy = fault.change_limit(policy);
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

    fn memory(&self) -> MutexGuard<'_, FaultMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is(&self, fault: BackendFault) -> bool {
        self.fault == fault
    }

    /// Forgets what the fault loses when another process opens the mailbox.
    async fn reopen(&self) -> Result<(), MailboxError> {
        if self.is(BackendFault::ForgetsThePauseAtReopening) {
            self.inner.configure(SettingsChange::new().resume()).await?;
        }
        Ok(())
    }

    /// Cuts the power.
    pub(crate) async fn cut(&self) {
        match self.fault {
            BackendFault::ForgetsAtCuts => drop(self.inner.purge().await),
            BackendFault::UndoesAcksAtCuts => {
                let mut memory = self.memory();
                let acked = std::mem::take(&mut memory.acked);
                memory.again.extend(acked.into_iter().rev().take(3));
            }
            _ => {}
        }
    }

    /// Buries messages by another limit than that of the mailbox.
    async fn bury_what_was_delivered_often(&self) -> Result<(), MailboxError> {
        let often = |message: &Message| message.delivery_count > 2;
        let seen = self.inner.peek(10).await?;
        if !seen.iter().any(often) {
            return Ok(());
        }
        for message in self.inner.receive(ReceiveOptions::new().max_messages(10)).await? {
            if often(&message) {
                message.bury(DeadReason::Deliveries).await?;
            } else {
                message.release().await?;
            }
        }
        Ok(())
    }

    /// Removes lapsed attempts, like the store of a backend that forgets them at a crash.
    fn without_lapses(&self, mut message: Message) -> Message {
        if self.is(BackendFault::LosesLapses) {
            message.attempts.retain(|attempt| attempt.end != AttemptEnd::Lapse);
        }
        message
    }

    async fn fetch(&self, mut options: ReceiveOptions) -> Result<Vec<Message>, MailboxError> {
        if self.is(BackendFault::ClampsRanges) {
            options.max_messages = options.max_messages.clamp(1, 10);
            options.wait = options.wait.min(Duration::from_secs(20));
        }
        options.check()?;
        options.visibility_timeout = self.fault.change_lease(options.visibility_timeout);
        let until = Instant::now() + options.wait;
        match self.fault {
            BackendFault::NeverWakes if !options.wait.is_zero() => {
                let now = self.inner.receive(options.wait(Duration::ZERO)).await?;
                if !now.is_empty() {
                    return Ok(now);
                }
                sleep_until(until).await;
                options.wait = Duration::ZERO;
                self.inner.receive(options).await
            }
            BackendFault::FillsBatches => {
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

    /// Applies the fault to messages that are delivered.
    async fn give(&self, mut messages: Vec<Message>) -> Vec<Message> {
        if self.is(BackendFault::DeliversUnsent) && self.memory().every(9) {
            self.shadow.send(b"never sent".to_vec(), SendOptions::new()).await.expect("the shadow takes it");
            messages.extend(self.shadow.receive(ReceiveOptions::new()).await.expect("the shadow gives it"));
        }
        let mut memory = self.memory();
        messages.extend(std::mem::take(&mut memory.again).into_iter().map(|mut message| {
            memory.turn += 1;
            message.delivery_count += 1;
            message.receipt = Some(Receipt::from(format!("again {}", memory.turn).as_str()));
            message
        }));
        for message in &mut messages {
            *message = self.without_lapses(message.clone());
            message.mailbox = self.me.upgrade().expect("it is alive");
            match self.fault {
                BackendFault::ChangesBodies if memory.every(7) => message.body = b"changed"[..].into(),
                BackendFault::ForgetsAttempts => message.delivery_count = 1,
                BackendFault::CountsTwice => message.delivery_count *= 2,
                BackendFault::LeasesOverlap if memory.every(6) => memory.again.push(message.clone()),
                BackendFault::ReusesReceipts => {
                    let given = Receipt::from(message.id.to_string().as_str());
                    let real = message.receipt.replace(given).expect("a receipt");
                    memory.latest.insert(message.id, real);
                }
                _ => {}
            }
            let receipt = message.receipt.clone().expect("a receipt");
            if !self.is(BackendFault::ReusesReceipts) {
                memory.latest.insert(message.id, receipt.clone());
            }
            memory.given.insert(receipt, message.clone());
        }
        if self.is(BackendFault::Reorders) {
            messages.reverse();
        }
        messages
    }

    /// Returns the receipt as the inner mailbox knows it.
    fn real(&self, receipt: &Receipt) -> Receipt {
        if !matches!(self.fault, BackendFault::ReusesReceipts | BackendFault::AcksByIdNotByReceipt) {
            return receipt.clone();
        }
        let memory = self.memory();
        let id = memory.given.get(receipt).map(|message| message.id);
        id.and_then(|id| memory.latest.get(&id)).unwrap_or(receipt).clone()
    }

    fn judged(&self, outcome: Result<(), MailboxError>) -> Result<(), MailboxError> {
        match outcome {
            Err(MailboxError::ReceiptExpired) if self.is(BackendFault::AcceptsStaleReceipts) => Ok(()),
            outcome => outcome,
        }
    }

    async fn copy_to_the_dead(&self, receipt: &Receipt, reason: DeadReason) {
        let Some(original) = self.memory().given.get(receipt).cloned() else { return };
        self.shadow.send(original.body.to_vec(), SendOptions::new()).await.expect("the shadow takes it");
        for copy in self.shadow.receive(ReceiveOptions::new()).await.expect("the shadow gives it") {
            copy.bury(reason.clone()).await.expect("the shadow buries it");
        }
        let mut letters = self.shadow.dead_letters(1).await.expect("the shadow lists it");
        self.shadow.purge_dead_letters().await.expect("the shadow forgets it");
        for letter in &mut letters {
            letter.message.id = original.id;
            letter.message.delivery_count = original.delivery_count;
        }
        self.memory().extra_dead.extend(letters);
    }
}

impl Mailbox for BrokenMailbox {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        // Reopening it is opening it again in the same process.
        let mut capabilities = self.inner.capabilities();
        capabilities.outlives_process = Support::Yes;
        capabilities
    }

    fn send(&self, body: Vec<u8>, mut options: SendOptions) -> Pending<'_, MessageId> {
        Box::pin(async move {
            let is_closed = self.inner.is_closed();
            match self.fault {
                BackendFault::LosesSends if self.memory().every(11) => {
                    return self.shadow.send(body, options).await;
                }
                BackendFault::SendsWhenClosed if is_closed => return self.shadow.send(body, options).await,
                BackendFault::NeverDrains if self.memory().every(20) => {
                    options.delay = Duration::from_hours(12);
                }
                _ => self.fault.change_options(&mut options),
            }
            self.inner.send(body, options).await
        })
    }

    fn send_all(&self, messages: Vec<(Vec<u8>, SendOptions)>) -> Pending<'_, Vec<MessageId>> {
        self.inner.send_all(messages)
    }

    fn receive(&self, options: ReceiveOptions) -> Pending<'_, Vec<Message>> {
        Box::pin(async move {
            if self.memory().is_closed {
                return Err(MailboxError::Closed(self.name().to_owned()));
            }
            let messages = self.fetch(options).await?;
            Ok(self.give(messages).await)
        })
    }

    fn ack<'a>(&'a self, receipt: &'a Receipt) -> Pending<'a, ()> {
        Box::pin(async move {
            let outcome = self.inner.ack(&self.real(receipt)).await;
            let mut memory = self.memory();
            if outcome.is_ok()
                && let Some(message) = memory.given.get(receipt).cloned()
            {
                memory.acked.push(message.clone());
                if self.is(BackendFault::DeliversAfterAck) && memory.every(5) {
                    memory.again.push(message);
                }
            }
            drop(memory);
            self.judged(outcome)
        })
    }

    fn change_leases<'a>(&'a self, receipts: &'a [Receipt], change: LeaseChange) -> Pending<'a, usize> {
        self.inner.change_leases(receipts, change)
    }

    fn nack<'a>(&'a self, receipt: &'a Receipt, mut options: NackOptions) -> Pending<'a, ()> {
        Box::pin(async move {
            let real = self.real(receipt);
            let outcome = match self.fault {
                BackendFault::LosesNacks if self.memory().every(3) => self.inner.ack(&real).await,
                BackendFault::KeepsLeasesAfterNack => {
                    self.inner.extend(&real, Duration::ZERO, LeaseExtension::AtLeast).await
                }
                BackendFault::UncountsNacks => self.inner.release(&[real]).await.and_then(|released| {
                    if released == 1 { Ok(()) } else { Err(MailboxError::ReceiptExpired) }
                }),
                _ => {
                    if self.is(BackendFault::LosesErrors) {
                        options.error = None;
                    }
                    self.inner.nack(&real, options).await
                }
            };
            self.judged(outcome)
        })
    }

    fn release<'a>(&'a self, receipts: &'a [Receipt]) -> Pending<'a, usize> {
        Box::pin(async move {
            let mut released = 0;
            for receipt in receipts {
                let real = [self.real(receipt)];
                released += match self.fault {
                    BackendFault::CountsReleases => self.inner.nack_all(&real, NackOptions::new()).await?,
                    BackendFault::LosesReleases if self.memory().every(3) => {
                        self.inner.ack_all(&real).await?
                    }
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
        extension: LeaseExtension,
    ) -> Pending<'a, ()> {
        Box::pin(async move {
            let real = self.real(receipt);
            let outcome = match self.fault {
                BackendFault::IgnoresExtensions => {
                    self.inner.extend(&real, Duration::ZERO, LeaseExtension::AtLeast).await
                }
                BackendFault::ExtensionsShorten => {
                    self.inner.extend(&real, visibility, LeaseExtension::Exactly).await
                }
                _ => self.inner.extend(&real, self.fault.change_lease(visibility), extension).await,
            };
            self.judged(outcome)
        })
    }

    fn bury<'a>(&'a self, receipt: &'a Receipt, reason: DeadReason) -> Pending<'a, ()> {
        Box::pin(async move {
            let real = self.real(receipt);
            if !self.is(BackendFault::CopiesInsteadOfMoving) {
                return self.judged(self.inner.bury(&real, reason).await);
            }
            self.inner.nack(&real, NackOptions::new()).await?;
            self.copy_to_the_dead(receipt, reason).await;
            Ok(())
        })
    }

    fn reply<'a>(
        &'a self,
        receipt: &'a Receipt,
        body: Vec<u8>,
        options: SendOptions,
    ) -> Pending<'a, MessageId> {
        Box::pin(async move {
            let real = self.real(receipt);
            let named = self.memory().given.get(receipt).and_then(|message| message.reply_to.clone());
            match self.fault {
                // Replies as to any other message.
                BackendFault::RepliesWithoutId => {
                    let name = named.ok_or(MailboxError::NoReplyTo)?;
                    self.inner.ack(&real).await?;
                    return self.inner.mailboxes().mailbox(name).send(body, options).await;
                }
                // The fault: a mailbox that was never opened counts as one that does not exist.
                BackendFault::LosesEarlyReplies => {
                    if let Some(name) = &named
                        && !self.was_opened(name)
                    {
                        self.inner.ack(&real).await?;
                        return self.shadow.send(body, options).await;
                    }
                    return self.inner.reply(&real, body, options).await;
                }
                BackendFault::RepliesWithoutAck => {}
                _ => {
                    let answered = self.memory().given.get(receipt).map(|message| message.id);
                    self.memory().answered.extend(answered);
                    return self.inner.reply(&real, body, options).await;
                }
            }
            self.inner.extend(&real, Duration::ZERO, LeaseExtension::AtLeast).await?;
            let name = named.ok_or(MailboxError::NoReplyTo)?;
            self.inner.mailboxes().mailbox(name).send(body, options).await
        })
    }

    fn result(&self, id: MessageId, wait: Duration) -> Pending<'_, Option<Reply>> {
        Box::pin(async move {
            let reply = self.inner.result(id, wait).await?;
            let last = self.memory().answered.last().copied();
            match (self.fault, last) {
                // Every requester gets the latest answer.
                (BackendFault::MixesUpResults, Some(last)) => self.inner.result(last, Duration::ZERO).await,
                (BackendFault::ForgetsResults, _) if self.memory().every(2) => Ok(None),
                _ => Ok(reply),
            }
        })
    }

    fn settings(&self) -> Pending<'_, QueueSettings> {
        self.inner.settings()
    }

    fn configure(&self, mut change: SettingsChange) -> Pending<'_, QueueSettings> {
        Box::pin(async move {
            self.fault.change_settings(&mut change);
            match (self.fault, change.max_deliveries) {
                // Only this handle knows the new limit.
                (BackendFault::KeepsTheLimitToItself, Some(_)) => {
                    Ok(change.applied_to(&self.inner.settings().await?))
                }
                _ => self.inner.configure(change).await,
            }
        })
    }

    fn find(&self, id: MessageId) -> Pending<'_, Option<FoundMessage>> {
        self.inner.find(id)
    }

    fn peek(&self, max_messages: usize) -> Pending<'_, Vec<Message>> {
        self.inner.peek(max_messages)
    }

    fn count(&self) -> Pending<'_, MessageCounts> {
        Box::pin(async move {
            if self.is(BackendFault::BuriesWhenLookedAt) {
                self.bury_what_was_delivered_often().await?;
            }
            let mut count = self.inner.count().await?;
            match self.fault {
                BackendFault::DropsDeadLetters => {
                    count.dead = self.dead_letters(usize::MAX).await?.len() as u64;
                }
                _ => count.dead += self.memory().extra_dead.len() as u64,
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
            letters.extend(self.memory().extra_dead.iter().cloned());
            for letter in &mut letters {
                letter.message = self.without_lapses(letter.message.clone());
            }
            match self.fault {
                BackendFault::DropsDeadLetters => {
                    letters.retain(|letter| letter.reason != DeadReason::Deliveries);
                }
                BackendFault::DeadLettersTwice => letters.extend(letters.clone()),
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
        self.memory().is_closed = true;
        if !self.is(BackendFault::SleepsThroughClose) {
            self.inner.close();
        }
    }

    fn is_closed(&self) -> bool {
        self.memory().is_closed
    }

    fn health(&self) -> Pending<'_, ()> {
        self.inner.health()
    }
}
