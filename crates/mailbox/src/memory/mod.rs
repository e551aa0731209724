//! A mailbox in the memory of its process: the fastest backend. Its messages are lost when the process ends.
//!
//! Owns the clock, the lock and the wake-ups. Must not know the order of messages or when they become dead letters:
//! `store` decides both.
//!
//! A message passes through `registry` (mailboxes by name), then the files that `store` uses: `queued_message`,
//! `groups`, `priorities` (the order of delivery), `rates`, `timers` (the ends of leases and delays) and `expiring_map`
//! (dedup keys and replies).
//!
//! There is no polling: a receiver sleeps until a send wakes it, or until the next lease, delay or time to live ends.

mod expiring_map;
mod groups;
mod priorities;
mod queued_message;
mod rates;
mod registry;
mod store;
mod timers;

use std::fmt;
use std::slice::from_ref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout_at};

pub use registry::MemoryMailboxes;
use store::{Effects, Store, Wake, after};

use super::clock::Clock;
use super::leases::one;
use super::{
    Capabilities, DeadLetter, DeadLetterPolicy, FoundMessage, LeaseChange, Mailbox, MailboxError, Message,
    MessageCounts, MessageId, Pending, QueueSettings, Receipt, ReceiveOptions, Reply, SendOptions,
    SettingsChange, Support, check_wait, telemetry,
};

/// A mailbox in memory. Clones refer to the same mailbox. The mailboxes of one [`MemoryMailboxes`] find each other by
/// name.
///
/// ```
/// use snakepit::mailbox::{Mailbox, MemoryMailbox, SendOptions};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let orders = MemoryMailbox::new("orders");
/// let same = orders.clone();
/// orders.send(b"one coffee".to_vec(), SendOptions::new()).await?;
/// assert_eq!(same.count().await?.visible, 1);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemoryMailbox {
    queue: Arc<MemoryQueue>,
    registry: MemoryMailboxes,
}

/// The state that all handles of a mailbox share.
struct MemoryQueue {
    name: String,
    /// The origin of all times of this mailbox.
    start: Instant,
    clock: Arc<dyn Clock>,
    store: Mutex<Store>,
    /// Wakes receivers.
    message_visible: Notify,
    /// Wakes callers that wait for a reply.
    reply_kept: Notify,
}

impl MemoryQueue {
    fn new(name: String, clock: Arc<dyn Clock>) -> Self {
        let store = Mutex::new(Store::new(QueueSettings::default(), Arc::clone(&clock)));
        let (message_visible, reply_kept) = (Notify::new(), Notify::new());
        Self { name, start: Instant::now(), clock, store, message_visible, reply_kept }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn instant(&self, time: u64) -> Instant {
        self.start + Duration::from_nanos(time)
    }

    fn lock(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, effects: Effects) {
        match effects.wake {
            Wake::Nobody => {}
            Wake::One => self.message_visible.notify_one(),
            // A receiver registers before it looks for messages, so this also wakes a receiver that is about to sleep.
            Wake::All => self.message_visible.notify_waiters(),
        }
        if effects.answered {
            self.reply_kept.notify_waiters();
        }
        telemetry::sent(&self.name, effects.sent);
        for event in effects.events {
            event.report(&self.name);
        }
    }

    /// Runs an operation under the lock, then publishes its effects.
    fn with<T>(&self, act: impl FnOnce(&mut Store, u64) -> T) -> T {
        let mut store = self.lock();
        // The time is read under the lock, so that it never goes back from one operation to the next.
        let done = act(&mut store, self.now());
        let effects = store.take_effects();
        drop(store);
        self.publish(effects);
        done
    }

    /// Like [`MemoryQueue::with`], but first processes all timers that are due.
    fn settled<T>(&self, act: impl FnOnce(&mut Store, u64) -> T) -> T {
        self.with(|store, now| {
            store.settle(now);
            act(store, now)
        })
    }

    fn check_open(&self, store: &Store) -> Result<(), MailboxError> {
        if store.is_closed { Err(MailboxError::Closed(self.name.clone())) } else { Ok(()) }
    }
}

impl MemoryMailbox {
    /// Creates a mailbox with this name that no other mailbox can reply to.
    pub fn new(name: impl Into<String>) -> Self {
        MemoryMailboxes::new().mailbox(name)
    }

    /// Like [`MemoryMailbox::new`], with the delivery limit of the policy if it sets one.
    pub fn with_policy(name: impl Into<String>, policy: DeadLetterPolicy) -> Result<Self, MailboxError> {
        MemoryMailboxes::new().mailbox_with(name, policy)
    }

    /// Returns the mailboxes to which this one can reply.
    pub fn mailboxes(&self) -> &MemoryMailboxes {
        &self.registry
    }

    fn shared(&self) -> Arc<dyn Mailbox> {
        Arc::new(self.clone())
    }

    /// Leases visible messages. If there are none, also returns when to look again.
    fn try_receive(&self, options: &ReceiveOptions) -> Result<(Vec<Message>, Option<u64>), MailboxError> {
        let (messages, next) = self.queue.settled(|store, now| {
            self.queue.check_open(store)?;
            let due = after(now, options.visibility_timeout);
            let times = (now, self.queue.clock.wall());
            let messages = store.receive(options.max_messages, times, due, || self.shared());
            let next = if messages.is_empty() { store.next_look(now) } else { None };
            Ok((messages, next))
        })?;
        telemetry::received(&self.queue.name, messages.len());
        Ok((messages, next))
    }

    async fn receive_or_wait(&self, options: ReceiveOptions) -> Result<Vec<Message>, MailboxError> {
        options.check()?;
        // Most receivers find a message or do not wait, and then need no registration.
        let (messages, _) = self.try_receive(&options)?;
        if !messages.is_empty() || options.wait.is_zero() {
            return Ok(messages);
        }
        let until = after(self.queue.now(), options.wait);
        loop {
            let visible = self.queue.message_visible.notified();
            tokio::pin!(visible);
            // Registering before looking makes sure that no message in between is missed.
            visible.as_mut().enable();
            let (messages, next) = self.try_receive(&options)?;
            if !messages.is_empty() || self.queue.now() >= until {
                return Ok(messages);
            }
            let due = next.map_or(until, |next| next.min(until));
            tokio::select! {
                () = visible => {}
                () = sleep_until(self.queue.instant(due)) => {}
            }
        }
    }

    fn change_leases_now(&self, receipts: &[Receipt], change: &LeaseChange) -> Result<usize, MailboxError> {
        change.check()?;
        let changed = self.queue.with(|store, now| {
            receipts.iter().filter(|receipt| store.change_lease(receipt, change, now).is_ok()).count()
        });
        change.report(&self.queue.name, changed);
        Ok(changed)
    }

    fn reply_now(
        &self,
        receipt: &Receipt,
        body: Vec<u8>,
        options: SendOptions,
    ) -> Result<MessageId, MailboxError> {
        options.check()?;
        let (name, mut options) = self.queue.with(|store, now| store.reply_to(receipt, options, now))?;
        let wall = self.queue.clock.wall();
        let kept = {
            let (body, options) = (body.clone(), options.clone());
            move |id, in_reply_to| Reply::new(id, in_reply_to, body, options, wall)
        };
        // The target mailbox is created if nobody has opened it: the reply waits there.
        let target = name.map(|name| self.registry.queue(&name));
        let id = match target {
            None => self.queue.with(|store, now| {
                let id = store.next_id(wall);
                store.answer(receipt, |request| kept(id, request), now).map(|()| id)
            })?,
            Some(target) if Arc::ptr_eq(&target, &self.queue) => self.queue.with(|store, now| {
                self.queue.check_open(store)?;
                store.check_lease(receipt, now)?;
                let id = store.send(body, &mut options, now, wall);
                store.answer(receipt, |request| kept(id, request), now).map(|()| id)
            })?,
            Some(target) => self.reply_to(&target, receipt, (body, options), kept)?,
        };
        telemetry::acked(&self.queue.name, 1);
        Ok(id)
    }

    fn reply_to(
        &self,
        target: &MemoryQueue,
        receipt: &Receipt,
        (body, mut options): (Vec<u8>, SendOptions),
        kept: impl FnOnce(MessageId, MessageId) -> Reply,
    ) -> Result<MessageId, MailboxError> {
        // Both locks are always taken in the same order, because two mailboxes may reply to each other at the same
        // time.
        let (mut mine, mut theirs);
        if std::ptr::from_ref::<MemoryQueue>(&self.queue) < std::ptr::from_ref(target) {
            mine = self.queue.lock();
            theirs = target.lock();
        } else {
            theirs = target.lock();
            mine = self.queue.lock();
        }
        target.check_open(&theirs)?;
        let now = self.queue.now();
        mine.check_lease(receipt, now)?;
        let id = theirs.send(body, &mut options, target.now(), target.clock.wall());
        mine.answer(receipt, |request| kept(id, request), now)?;
        let (my_effects, their_effects) = (mine.take_effects(), theirs.take_effects());
        drop((mine, theirs));
        self.queue.publish(my_effects);
        target.publish(their_effects);
        Ok(id)
    }

    async fn result_or_wait(&self, id: MessageId, wait: Duration) -> Result<Option<Reply>, MailboxError> {
        check_wait(wait)?;
        let until = Instant::now() + wait;
        loop {
            let reply_kept = self.queue.reply_kept.notified();
            tokio::pin!(reply_kept);
            // Registering before looking makes sure that no reply in between is missed.
            reply_kept.as_mut().enable();
            let found = self.queue.with(|store, now| store.result(id, now));
            if found.is_some() || Instant::now() >= until {
                return Ok(found);
            }
            // After a timeout, the loop looks once more.
            let _ = timeout_at(until, reply_kept).await;
        }
    }
}

impl fmt::Debug for MemoryMailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryMailbox").field("name", &self.queue.name).finish_non_exhaustive()
    }
}

impl Mailbox for MemoryMailbox {
    fn name(&self) -> &str {
        &self.queue.name
    }

    fn capabilities(&self) -> Capabilities {
        const MEMORY: Support = Support::No("it is in the memory of its process");
        Capabilities {
            outlives_process: MEMORY,
            outlives_power_cut: MEMORY,
            shared: MEMORY,
            ..Capabilities::ALL
        }
    }

    fn send(&self, body: Vec<u8>, mut options: SendOptions) -> Pending<'_, MessageId> {
        Box::pin(async move {
            options.check()?;
            self.queue.with(|store, now| {
                self.queue.check_open(store)?;
                Ok(store.send(body, &mut options, now, self.queue.clock.wall()))
            })
        })
    }

    fn send_all(&self, messages: Vec<(Vec<u8>, SendOptions)>) -> Pending<'_, Vec<MessageId>> {
        Box::pin(async move {
            messages.iter().try_for_each(|(_, options)| options.check())?;
            self.queue.with(|store, now| {
                self.queue.check_open(store)?;
                let wall = self.queue.clock.wall();
                let send = |(body, mut options): (_, SendOptions)| store.send(body, &mut options, now, wall);
                Ok(messages.into_iter().map(send).collect())
            })
        })
    }

    fn receive(&self, options: ReceiveOptions) -> Pending<'_, Vec<Message>> {
        Box::pin(self.receive_or_wait(options))
    }

    fn change_leases<'a>(&'a self, receipts: &'a [Receipt], change: LeaseChange) -> Pending<'a, usize> {
        Box::pin(async move { self.change_leases_now(receipts, &change) })
    }

    /// Saves one allocation compared with the default method.
    fn ack<'a>(&'a self, receipt: &'a Receipt) -> Pending<'a, ()> {
        Box::pin(async move { one(self.change_leases_now(from_ref(receipt), &LeaseChange::Ack)?) })
    }

    fn reply<'a>(
        &'a self,
        receipt: &'a Receipt,
        body: Vec<u8>,
        options: SendOptions,
    ) -> Pending<'a, MessageId> {
        Box::pin(async move { self.reply_now(receipt, body, options) })
    }

    fn result(&self, id: MessageId, wait: Duration) -> Pending<'_, Option<Reply>> {
        Box::pin(self.result_or_wait(id, wait))
    }

    fn settings(&self) -> Pending<'_, QueueSettings> {
        Box::pin(async move { Ok(self.queue.lock().settings()) })
    }

    fn configure(&self, change: SettingsChange) -> Pending<'_, QueueSettings> {
        Box::pin(async move {
            change.check()?;
            Ok(self.queue.with(|store, now| store.configure(&change, now)))
        })
    }

    fn peek(&self, max_messages: usize) -> Pending<'_, Vec<Message>> {
        Box::pin(async move { Ok(self.queue.settled(|store, _| store.peek(max_messages, &self.shared()))) })
    }

    fn count(&self) -> Pending<'_, MessageCounts> {
        Box::pin(async move { Ok(self.queue.settled(|store, _| store.count())) })
    }

    fn find(&self, id: MessageId) -> Pending<'_, Option<FoundMessage>> {
        Box::pin(async move { Ok(self.queue.settled(|store, _| store.find(id, &self.shared()))) })
    }

    fn purge(&self) -> Pending<'_, u64> {
        Box::pin(async move { Ok(self.queue.settled(|store, _| store.purge())) })
    }

    fn dead_letters(&self, max_messages: usize) -> Pending<'_, Vec<DeadLetter>> {
        Box::pin(async move {
            Ok(self.queue.settled(|store, _| store.dead_letters(max_messages, &self.shared())))
        })
    }

    fn redrive<'a>(&'a self, ids: Option<&'a [MessageId]>) -> Pending<'a, u64> {
        Box::pin(async move { Ok(self.queue.settled(|store, now| store.redrive(ids, now))) })
    }

    fn purge_dead_letters(&self) -> Pending<'_, u64> {
        Box::pin(async move { Ok(self.queue.settled(|store, _| store.purge_dead_letters())) })
    }

    fn close(&self) {
        self.queue.with(|store, _| {
            store.is_closed = true;
            store.wake(Wake::All);
        });
    }

    fn is_closed(&self) -> bool {
        self.queue.lock().is_closed
    }

    fn health(&self) -> Pending<'_, ()> {
        Box::pin(async move { self.queue.check_open(&self.queue.lock()) })
    }
}
