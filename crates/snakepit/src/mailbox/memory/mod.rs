//! A mailbox in the memory of its process: the fastest, and gone with it.
//!
//! Owns the clock, the lock and those who wait. What happens to messages is in [`store`]: `lanes` says who is next, `timers`
//! what is due, `dedup` what was sent before, and `letter` is a message at rest.
//!
//! Nobody looks again and again: a receiver sleeps until it is woken by a send or until the next lease, delay or time to live
//! is over, and works out by itself when that is.

mod dedup;
mod groups;
mod lanes;
pub(super) mod letter;
mod office;
mod results;
mod store;
mod timers;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout_at};

pub use office::PostOffice;
use store::{News, Ring, Store, after};

use super::telling;
use super::{
    Capabilities, Count, DeadLetter, DeadLetterPolicy, DeadReason, Extension, Found, Mailbox, MailboxError,
    Message, MessageId, Nack, Pending, QueueSettings, Receipt, Receive, Reply, Send, SettingsChange,
    check_visibility, check_wait,
};

/// A mailbox in memory. Clones are the same mailbox; those of one [`PostOffice`] find each other by name.
#[derive(Clone)]
pub struct MemoryMailbox {
    queue: Arc<Queue>,
    office: PostOffice,
}

/// What all handles of one mailbox share.
struct Queue {
    name: String,
    /// Times are counted from here.
    start: Instant,
    store: Mutex<Store>,
    bell: Notify,
    /// Rings when a reply is kept.
    answered: Notify,
}

impl Queue {
    fn new(name: String) -> Self {
        let store = Mutex::new(Store::new(QueueSettings::default()));
        Self { name, start: Instant::now(), store, bell: Notify::new(), answered: Notify::new() }
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

    /// Wakes whom it concerns, and tells those who listen.
    fn publish(&self, news: News) {
        match news.ring {
            Ring::Nobody => {}
            Ring::One => self.bell.notify_one(),
            // Whoever is about to wait has registered before it looked, and is woken, too.
            Ring::All => self.bell.notify_waiters(),
        }
        if news.answered {
            self.answered.notify_waiters();
        }
        telling::sent(&self.name, news.sent);
        for (id, delivery) in news.lapsed {
            telling::lease_lapsed(&self.name, id, delivery);
        }
        for (id, reason, deliveries) in news.dead {
            telling::dead_lettered(&self.name, id, &reason, deliveries);
        }
    }

    /// Does something under the lock, and says afterwards what came of it.
    fn with<T>(&self, act: impl FnOnce(&mut Store, u64) -> T) -> T {
        let mut store = self.lock();
        // The time is read under the lock, so that it never goes back from one operation to the next.
        let done = act(&mut store, self.now());
        let news = store.take_news();
        drop(store);
        self.publish(news);
        done
    }

    /// Like [`Queue::with`], for those who look at messages: what was due happens first.
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

/// What a receiver found when it looked.
enum Look {
    Messages(Vec<Message>),
    /// Nothing; look again then, at the latest.
    Until(Option<u64>),
}

impl MemoryMailbox {
    /// A mailbox of this name in a post office of its own.
    pub fn new(name: impl Into<String>) -> Self {
        PostOffice::new().mailbox(name)
    }

    /// The same, with a limit of deliveries if the policy names one.
    pub fn with_policy(name: impl Into<String>, policy: DeadLetterPolicy) -> Result<Self, MailboxError> {
        PostOffice::new().mailbox_with(name, policy)
    }

    /// The post office in which its replies are delivered.
    pub fn office(&self) -> &PostOffice {
        &self.office
    }

    fn shared(&self) -> Arc<dyn Mailbox> {
        Arc::new(self.clone())
    }

    fn look(&self, options: &Receive) -> Result<Look, MailboxError> {
        let look = self.queue.settled(|store, now| {
            self.queue.check_open(store)?;
            let due = after(now, options.visibility_timeout);
            let now = (now, SystemTime::now());
            let messages = store.receive(options.max_messages, now, due, || self.shared());
            Ok(if messages.is_empty() {
                Look::Until(store.next_look(now.0))
            } else {
                Look::Messages(messages)
            })
        })?;
        if let Look::Messages(messages) = &look {
            telling::received(&self.queue.name, messages.len());
        }
        Ok(look)
    }

    fn ack_now(&self, receipts: &[Receipt]) -> usize {
        let acked = |store: &mut Store, now| receipts.iter().filter(|it| store.ack(it, now).is_ok()).count();
        let acked = self.queue.with(acked);
        telling::acked(&self.queue.name, acked);
        acked
    }

    fn nack_now(&self, receipts: &[Receipt], options: &Nack) -> Result<usize, MailboxError> {
        options.check()?;
        let nacked = self
            .queue
            .with(|store, now| receipts.iter().filter(|it| store.nack(it, options, now).is_ok()).count());
        telling::nacked(&self.queue.name, nacked);
        Ok(nacked)
    }

    fn release_now(&self, receipts: &[Receipt]) -> usize {
        let released =
            |store: &mut Store, now| receipts.iter().filter(|it| store.release(it, now).is_ok()).count();
        let released = self.queue.with(released);
        telling::nacked(&self.queue.name, released);
        released
    }

    async fn receive_in_time(&self, options: Receive) -> Result<Vec<Message>, MailboxError> {
        options.check()?;
        // Most often there is something, or the caller does not wait: then nobody has to be told that it does.
        if let Look::Messages(messages) = self.look(&options)? {
            return Ok(messages);
        }
        if options.wait.is_zero() {
            return Ok(Vec::new());
        }
        let until = after(self.queue.now(), options.wait);
        loop {
            let bell = self.queue.bell.notified();
            tokio::pin!(bell);
            // Before it looks, so that nothing that comes in between is missed.
            bell.as_mut().enable();
            let due = match self.look(&options)? {
                Look::Messages(messages) => return Ok(messages),
                Look::Until(due) => due.map_or(until, |due| due.min(until)),
            };
            if self.queue.now() >= until {
                return Ok(Vec::new());
            }
            tokio::select! {
                () = bell => {}
                () = sleep_until(self.queue.instant(due)) => {}
            }
        }
    }

    fn send_now(&self, messages: Vec<(Vec<u8>, Send)>) -> Result<Vec<MessageId>, MailboxError> {
        messages.iter().try_for_each(|(_, options)| options.check())?;
        self.queue.with(|store, now| {
            self.queue.check_open(store)?;
            let wall = SystemTime::now();
            let send = |(body, mut options): (_, Send)| store.send(body, &mut options, now, wall);
            Ok(messages.into_iter().map(send).collect())
        })
    }

    fn reply_now(&self, receipt: &Receipt, body: Vec<u8>, options: Send) -> Result<MessageId, MailboxError> {
        options.check()?;
        let (name, mut options) = self.queue.with(|store, now| store.reply_to(receipt, options, now))?;
        let wall = SystemTime::now();
        // As it is kept, if it is.
        let kept = {
            let (body, options) = (body.clone(), options.clone());
            move |id, in_reply_to| {
                let Send { attributes, trace, .. } = options;
                Reply { id, in_reply_to, body: body.into(), attributes, trace, replied_at: wall }
            }
        };
        // It waits there whether or not anybody has opened it.
        let target = name.map(|name| self.office.queue(&name));
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
        telling::acked(&self.queue.name, 1);
        Ok(id)
    }

    fn reply_to(
        &self,
        target: &Queue,
        receipt: &Receipt,
        (body, mut options): (Vec<u8>, Send),
        kept: impl FnOnce(MessageId, MessageId) -> Reply,
    ) -> Result<MessageId, MailboxError> {
        // Two who reply to each other take the locks in the same order.
        let (mut mine, mut theirs);
        if std::ptr::from_ref::<Queue>(&self.queue) < std::ptr::from_ref(target) {
            mine = self.queue.lock();
            theirs = target.lock();
        } else {
            theirs = target.lock();
            mine = self.queue.lock();
        }
        target.check_open(&theirs)?;
        let now = self.queue.now();
        mine.check_lease(receipt, now)?;
        let id = theirs.send(body, &mut options, target.now(), SystemTime::now());
        mine.answer(receipt, |request| kept(id, request), now)?;
        let (my_news, their_news) = (mine.take_news(), theirs.take_news());
        drop((mine, theirs));
        self.queue.publish(my_news);
        target.publish(their_news);
        Ok(id)
    }

    async fn result_in_time(&self, id: MessageId, wait: Duration) -> Result<Option<Reply>, MailboxError> {
        check_wait(wait)?;
        let until = Instant::now() + wait;
        loop {
            let answered = self.queue.answered.notified();
            tokio::pin!(answered);
            // Before it looks, so that nothing that comes in between is missed.
            answered.as_mut().enable();
            let found = self.queue.with(|store, now| store.result(id, now));
            if found.is_some() || Instant::now() >= until {
                return Ok(found);
            }
            // One more look when the time is over, which is the last.
            let _ = timeout_at(until, answered).await;
        }
    }
}

/// What was asked of one receipt only, and was done to so many.
fn one(done: usize) -> Result<(), MailboxError> {
    if done == 1 { Ok(()) } else { Err(MailboxError::ReceiptExpired) }
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
        const MEMORY: Result<(), &str> = Err("it is in the memory of its process");
        Capabilities {
            outlives_process: MEMORY,
            outlives_power_cut: MEMORY,
            shared: MEMORY,
            ordered: Ok(()),
            priorities: Ok(()),
            atomic_reply: Ok(()),
            groups: Ok(()),
            rate_limits: Ok(()),
            pauses: Ok(()),
        }
    }

    fn send(&self, body: Vec<u8>, mut options: Send) -> Pending<'_, MessageId> {
        Box::pin(async move {
            options.check()?;
            self.queue.with(|store, now| {
                self.queue.check_open(store)?;
                Ok(store.send(body, &mut options, now, SystemTime::now()))
            })
        })
    }

    fn send_all(&self, messages: Vec<(Vec<u8>, Send)>) -> Pending<'_, Vec<MessageId>> {
        Box::pin(async move { self.send_now(messages) })
    }

    fn receive(&self, options: Receive) -> Pending<'_, Vec<Message>> {
        Box::pin(self.receive_in_time(options))
    }

    fn ack<'a>(&'a self, receipt: &'a Receipt) -> Pending<'a, ()> {
        Box::pin(async move { one(self.ack_now(std::slice::from_ref(receipt))) })
    }

    fn ack_all<'a>(&'a self, receipts: &'a [Receipt]) -> Pending<'a, usize> {
        Box::pin(async move { Ok(self.ack_now(receipts)) })
    }

    fn nack<'a>(&'a self, receipt: &'a Receipt, options: Nack) -> Pending<'a, ()> {
        Box::pin(async move { one(self.nack_now(std::slice::from_ref(receipt), &options)?) })
    }

    fn nack_all<'a>(&'a self, receipts: &'a [Receipt], options: Nack) -> Pending<'a, usize> {
        Box::pin(async move { self.nack_now(receipts, &options) })
    }

    fn release<'a>(&'a self, receipts: &'a [Receipt]) -> Pending<'a, usize> {
        Box::pin(async move { Ok(self.release_now(receipts)) })
    }

    fn extend<'a>(
        &'a self,
        receipt: &'a Receipt,
        visibility: Duration,
        extension: Extension,
    ) -> Pending<'a, ()> {
        Box::pin(async move {
            check_visibility(visibility)?;
            self.queue.with(|store, now| store.extend(receipt, visibility, extension, now))
        })
    }

    fn bury<'a>(&'a self, receipt: &'a Receipt, reason: DeadReason) -> Pending<'a, ()> {
        Box::pin(async move { self.queue.with(|store, now| store.bury(receipt, reason, now)) })
    }

    fn reply<'a>(&'a self, receipt: &'a Receipt, body: Vec<u8>, options: Send) -> Pending<'a, MessageId> {
        Box::pin(async move { self.reply_now(receipt, body, options) })
    }

    fn result(&self, id: MessageId, wait: Duration) -> Pending<'_, Option<Reply>> {
        Box::pin(self.result_in_time(id, wait))
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

    fn count(&self) -> Pending<'_, Count> {
        Box::pin(async move { Ok(self.queue.settled(|store, _| store.count())) })
    }

    fn find(&self, id: MessageId) -> Pending<'_, Option<Found>> {
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
            store.ring(Ring::All);
        });
    }

    fn is_closed(&self) -> bool {
        self.queue.lock().is_closed
    }

    fn health(&self) -> Pending<'_, ()> {
        Box::pin(async move { self.queue.check_open(&self.queue.lock()) })
    }
}
