//! A mailbox whose backend fails on demand.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use snakepit::mailbox::{
    BackendErrorKind, Capabilities, DeadLetter, FoundMessage, LeaseChange, Mailbox, MailboxError, Message,
    MessageCounts, MessageId, NackOptions, Pending, QueueSettings, Receipt, ReceiveOptions, Reply,
    SendOptions, SettingsChange,
};

#[derive(Debug)]
pub(crate) struct Flaky {
    pub(crate) inner: Arc<dyn Mailbox>,
    pub(crate) broken: AtomicBool,
    /// The number of calls that failed.
    pub(crate) failures: AtomicUsize,
    /// The number of batches in which messages were given back.
    pub(crate) batches: AtomicUsize,
    /// The number of these batches that are neither done nor answered.
    pub(crate) lost_batches: AtomicUsize,
    /// Whether there is no room for replies.
    pub(crate) full: AtomicBool,
    /// The number of receives under way, and its highest value.
    pub(crate) receives: AtomicUsize,
    pub(crate) most_receives: AtomicUsize,
    /// The options of each receive.
    pub(crate) asked: Mutex<Vec<ReceiveOptions>>,
    /// How each lease was changed.
    pub(crate) changes: Mutex<Vec<LeaseChange>>,
}

/// A guard that counts a receive as under way.
struct Receiving(Arc<Flaky>);

impl Receiving {
    fn begin(flaky: &Arc<Flaky>) -> Self {
        let now = flaky.receives.fetch_add(1, Ordering::SeqCst) + 1;
        flaky.most_receives.fetch_max(now, Ordering::SeqCst);
        Self(Arc::clone(flaky))
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.0.receives.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Flaky {
    pub(crate) fn new(inner: &Arc<dyn Mailbox>) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::clone(inner),
            broken: AtomicBool::new(false),
            failures: AtomicUsize::new(0),
            batches: AtomicUsize::new(0),
            lost_batches: AtomicUsize::new(0),
            full: AtomicBool::new(false),
            receives: AtomicUsize::new(0),
            most_receives: AtomicUsize::new(0),
            asked: Mutex::default(),
            changes: Mutex::default(),
        })
    }

    pub(crate) fn set_broken(&self, broken: bool) {
        self.broken.store(broken, Ordering::SeqCst);
    }

    fn or_fail<'a, T: 'a + std::marker::Send>(
        &self,
        works: impl FnOnce() -> Pending<'a, T>,
    ) -> Pending<'a, T> {
        if !self.broken.load(Ordering::SeqCst) {
            return works();
        }
        self.fail("the disk is on fire")
    }

    fn fail<'a, T: 'a + std::marker::Send>(&self, reason: &str) -> Pending<'a, T> {
        self.failures.fetch_add(1, Ordering::SeqCst);
        let reason = reason.to_owned();
        Box::pin(std::future::ready(Err(MailboxError::Backend {
            kind: BackendErrorKind::Other,
            reason,
            source: None,
        })))
    }
}

/// A mailbox behind a flaky one. Its messages are returned through the flaky one.
#[derive(Clone, Debug)]
pub(crate) struct Behind(pub(crate) Arc<Flaky>);

impl Mailbox for Behind {
    fn name(&self) -> &str {
        self.0.inner.name()
    }
    fn capabilities(&self) -> Capabilities {
        self.0.inner.capabilities()
    }
    fn send(&self, body: Vec<u8>, options: SendOptions) -> Pending<'_, MessageId> {
        self.0.or_fail(|| self.0.inner.send(body, options))
    }
    fn send_all(&self, messages: Vec<(Vec<u8>, SendOptions)>) -> Pending<'_, Vec<MessageId>> {
        self.0.or_fail(|| self.0.inner.send_all(messages))
    }
    fn receive(&self, options: ReceiveOptions) -> Pending<'_, Vec<Message>> {
        let this: Arc<dyn Mailbox> = Arc::new(self.clone());
        let receiving = Receiving::begin(&self.0);
        self.0.asked.lock().expect("no panic").push(options);
        self.0.or_fail(|| {
            Box::pin(async move {
                let _receiving = receiving;
                let mut messages = self.0.inner.receive(options).await?;
                for message in &mut messages {
                    message.mailbox = Arc::clone(&this);
                }
                Ok(messages)
            })
        })
    }
    fn change_leases<'a>(&'a self, receipts: &'a [Receipt], change: LeaseChange) -> Pending<'a, usize> {
        self.0.changes.lock().expect("no panic").push(change.clone());
        self.0.or_fail(|| self.0.inner.change_leases(receipts, change))
    }
    fn nack_all<'a>(&'a self, receipts: &'a [Receipt], options: NackOptions) -> Pending<'a, usize> {
        let before = self.0.batches.fetch_add(1, Ordering::SeqCst);
        if before < self.0.lost_batches.load(Ordering::SeqCst) {
            return Box::pin(std::future::pending());
        }
        self.0.or_fail(|| self.0.inner.nack_all(receipts, options))
    }
    fn release<'a>(&'a self, receipts: &'a [Receipt]) -> Pending<'a, usize> {
        let before = self.0.batches.fetch_add(1, Ordering::SeqCst);
        if before < self.0.lost_batches.load(Ordering::SeqCst) {
            return Box::pin(std::future::pending());
        }
        self.0.or_fail(|| self.0.inner.release(receipts))
    }
    fn reply<'a>(
        &'a self,
        receipt: &'a Receipt,
        body: Vec<u8>,
        options: SendOptions,
    ) -> Pending<'a, MessageId> {
        if self.0.full.load(Ordering::SeqCst) {
            return self.0.fail("the disk is full");
        }
        self.0.or_fail(|| self.0.inner.reply(receipt, body, options))
    }
    fn result(&self, id: MessageId, wait: Duration) -> Pending<'_, Option<Reply>> {
        self.0.inner.result(id, wait)
    }
    fn settings(&self) -> Pending<'_, QueueSettings> {
        self.0.inner.settings()
    }
    fn configure(&self, change: SettingsChange) -> Pending<'_, QueueSettings> {
        self.0.or_fail(|| self.0.inner.configure(change))
    }
    fn find(&self, id: MessageId) -> Pending<'_, Option<FoundMessage>> {
        self.0.inner.find(id)
    }
    fn peek(&self, max_messages: usize) -> Pending<'_, Vec<Message>> {
        self.0.inner.peek(max_messages)
    }
    fn count(&self) -> Pending<'_, MessageCounts> {
        self.0.inner.count()
    }
    fn purge(&self) -> Pending<'_, u64> {
        self.0.inner.purge()
    }
    fn dead_letters(&self, max_messages: usize) -> Pending<'_, Vec<DeadLetter>> {
        self.0.inner.dead_letters(max_messages)
    }
    fn redrive<'a>(&'a self, ids: Option<&'a [MessageId]>) -> Pending<'a, u64> {
        self.0.inner.redrive(ids)
    }
    fn purge_dead_letters(&self) -> Pending<'_, u64> {
        self.0.inner.purge_dead_letters()
    }
    fn close(&self) {
        self.0.inner.close();
    }
    fn is_closed(&self) -> bool {
        self.0.inner.is_closed()
    }
    fn health(&self) -> Pending<'_, ()> {
        self.0.inner.health()
    }
}
