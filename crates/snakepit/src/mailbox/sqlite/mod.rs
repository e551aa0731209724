//! Mailboxes in a SQLite file: one file, many queues, many processes; what was sent survives a power cut.
//!
//! An operation travels [`SqliteMailbox`] → `inbox` → `writer` → `desk`. The writer is one thread per file and process: it does
//! all orders that wait in one transaction and answers when the log is on the disk. `parked` has the receivers that wait, and
//! `bell` wakes those of other processes. `wal` syncs the file's log and
//! moves it into the file, `upkeep` copies it and gives room back, `patience` waits for locks of others. `site` opens the file, `schema` says what is in it, `clock` what time it is, `health`
//! who blocks it, and `failure` what SQLite's errors mean.

mod bell;
mod clock;
mod desk;
mod failpoint;
mod failure;
mod group;
mod health;
mod inbox;
mod open;
mod order;
mod parked;
mod patience;
mod private;
mod schema;
mod site;
mod upkeep;
mod wal;
mod writer;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

pub use clock::{BootClock, Clock};
use inbox::{Inbox, Order, deserted};
pub use open::SqliteOptions;
use open::{Gate, Office};
use order::{Answer, Ask, Lease, expired};
use site::beside;
pub use upkeep::FileSize;
pub use wal::{DiskSync, LogSync};

use super::{
    Capabilities, Count, DeadLetter, DeadReason, Extension, Found, Mailbox, MailboxError, Message, MessageId,
    Nack, Pending, QueueSettings, Receipt, Receive, Reply, Send, SettingsChange, check_visibility,
    check_wait, telling,
};

/// The queue of a file for which none is named.
pub const DEFAULT_QUEUE: &str = "main";

/// A mailbox in a SQLite file. [`close`](Mailbox::close) closes it for all handles of this process, and for no other process;
/// whoever opens it anew has it open.
#[derive(Clone)]
pub struct SqliteMailbox {
    queue: Arc<str>,
    office: Arc<Office>,
    gate: Gate,
}

impl fmt::Debug for SqliteMailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteMailbox")
            .field("path", &self.office.path())
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

impl SqliteMailbox {
    /// Opens the queue `main` of a file, which is made if there is none.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, MailboxError> {
        SqliteOptions::new().open(path)
    }

    /// Opens a queue of a file. Queues of one file can reply to each other by their names.
    pub fn open_named(path: impl AsRef<Path>, queue: impl Into<String>) -> Result<Self, MailboxError> {
        SqliteOptions::new().queue(queue).open(path)
    }

    /// Opens `sqlite:PATH` or `sqlite:PATH#QUEUE`.
    pub fn open_url(url: &str) -> Result<Self, MailboxError> {
        SqliteOptions::new().open_url(url)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.office.path()
    }

    fn inbox(&self) -> &Inbox {
        self.office.inbox()
    }

    fn shared(&self) -> Arc<dyn Mailbox> {
        Arc::new(self.clone())
    }

    fn check_open(&self) -> Result<(), MailboxError> {
        if self.is_closed() { Err(MailboxError::Closed(self.queue.to_string())) } else { Ok(()) }
    }

    async fn ask(&self, ask: Ask) -> Result<Answer, MailboxError> {
        let (answer, answered) = oneshot::channel();
        let order = Order { queue: Arc::clone(&self.queue), ask, answer: Some(answer) };
        self.inbox().place(order).await?;
        answered.await.unwrap_or_else(|_| Err(deserted()))
    }

    async fn done(&self, ask: Ask) -> Result<(), MailboxError> {
        self.ask(ask).await.map(drop)
    }

    async fn number(&self, ask: Ask) -> Result<u64, MailboxError> {
        match self.ask(ask).await? {
            Answer::Number(number) => Ok(number),
            other => Err(unexpected(&other)),
        }
    }

    async fn id(&self, ask: Ask) -> Result<MessageId, MailboxError> {
        match self.ask(ask).await? {
            Answer::Id(id) => Ok(id),
            other => Err(unexpected(&other)),
        }
    }

    async fn ask_settings(&self, ask: Ask) -> Result<QueueSettings, MailboxError> {
        match self.ask(ask).await? {
            Answer::Settings(settings) => Ok(settings),
            other => Err(unexpected(&other)),
        }
    }

    async fn receive_in_time(&self, options: Receive) -> Result<Vec<Message>, MailboxError> {
        options.check()?;
        let mut is_closed = self.gate.subscribe();
        let closed = async move { is_closed.wait_for(|is_closed| *is_closed).await.is_ok() };
        tokio::select! {
            biased;
            // What was leased meanwhile goes back.
            _ = closed => Err(MailboxError::Closed(self.queue.to_string())),
            answer = self.ask(Ask::Receive(options)) => match answer? {
                Answer::Received(received) => {
                    telling::received(&self.queue, received.messages.len());
                    Ok(received.take(&self.shared()))
                }
                other => Err(unexpected(&other)),
            },
        }
    }
}

/// The writer answers what was asked for; this is for the compiler.
fn unexpected(answer: &Answer) -> MailboxError {
    MailboxError::Backend { reason: format!("the mailbox's writer answered {answer:?}"), source: None }
}

fn lease(receipt: &Receipt) -> Result<Lease, MailboxError> {
    Lease::of(receipt).map_or_else(expired, Ok)
}

impl Mailbox for SqliteMailbox {
    fn name(&self) -> &str {
        &self.queue
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            outlives_process: Ok(()),
            outlives_power_cut: Ok(()),
            shared: Ok(()),
            ordered: Ok(()),
            priorities: Ok(()),
            atomic_reply: Ok(()),
            groups: Ok(()),
            rate_limits: Ok(()),
            pauses: Ok(()),
        }
    }

    fn send(&self, body: Vec<u8>, options: Send) -> Pending<'_, MessageId> {
        Box::pin(async move {
            options.check()?;
            self.check_open()?;
            self.id(Ask::Send(body, options)).await
        })
    }

    fn send_all(&self, messages: Vec<(Vec<u8>, Send)>) -> Pending<'_, Vec<MessageId>> {
        Box::pin(async move {
            messages.iter().try_for_each(|(_, options)| options.check())?;
            self.check_open()?;
            match self.ask(Ask::SendAll(messages)).await? {
                Answer::Ids(ids) => Ok(ids),
                other => Err(unexpected(&other)),
            }
        })
    }

    fn receive(&self, options: Receive) -> Pending<'_, Vec<Message>> {
        Box::pin(self.receive_in_time(options))
    }

    fn ack<'a>(&'a self, receipt: &'a Receipt) -> Pending<'a, ()> {
        Box::pin(async move {
            self.done(Ask::Ack(lease(receipt)?)).await?;
            telling::acked(&self.queue, 1);
            Ok(())
        })
    }

    fn ack_all<'a>(&'a self, receipts: &'a [Receipt]) -> Pending<'a, usize> {
        Box::pin(async move {
            let acked = self.number(Ask::AckAll(Lease::all(receipts))).await? as usize;
            telling::acked(&self.queue, acked);
            Ok(acked)
        })
    }

    fn nack<'a>(&'a self, receipt: &'a Receipt, options: Nack) -> Pending<'a, ()> {
        Box::pin(async move {
            options.check()?;
            self.done(Ask::Nack(lease(receipt)?, options)).await?;
            telling::nacked(&self.queue, 1);
            Ok(())
        })
    }

    fn nack_all<'a>(&'a self, receipts: &'a [Receipt], options: Nack) -> Pending<'a, usize> {
        Box::pin(async move {
            options.check()?;
            let nacked = self.number(Ask::NackAll(Lease::all(receipts), options)).await? as usize;
            telling::nacked(&self.queue, nacked);
            Ok(nacked)
        })
    }

    fn release<'a>(&'a self, receipts: &'a [Receipt]) -> Pending<'a, usize> {
        Box::pin(async move {
            let released = self.number(Ask::Release(Lease::all(receipts))).await? as usize;
            telling::nacked(&self.queue, released);
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
            check_visibility(visibility)?;
            self.done(Ask::Extend(lease(receipt)?, visibility, extension)).await
        })
    }

    fn bury<'a>(&'a self, receipt: &'a Receipt, reason: DeadReason) -> Pending<'a, ()> {
        Box::pin(async move { self.done(Ask::Bury(lease(receipt)?, reason)).await })
    }

    fn reply<'a>(&'a self, receipt: &'a Receipt, body: Vec<u8>, options: Send) -> Pending<'a, MessageId> {
        Box::pin(async move {
            options.check()?;
            let id = self.id(Ask::Reply(lease(receipt)?, body, options)).await?;
            telling::acked(&self.queue, 1);
            Ok(id)
        })
    }

    fn result(&self, id: MessageId, wait: Duration) -> Pending<'_, Option<Reply>> {
        Box::pin(async move {
            check_wait(wait)?;
            match self.ask(Ask::Result(id, wait)).await? {
                Answer::Reply(reply) => Ok(reply),
                other => Err(unexpected(&other)),
            }
        })
    }

    fn settings(&self) -> Pending<'_, QueueSettings> {
        Box::pin(self.ask_settings(Ask::Settings))
    }

    fn configure(&self, change: SettingsChange) -> Pending<'_, QueueSettings> {
        Box::pin(async move {
            change.check()?;
            self.ask_settings(Ask::Configure(change)).await
        })
    }

    fn find(&self, id: MessageId) -> Pending<'_, Option<Found>> {
        Box::pin(async move {
            match self.ask(Ask::Find(id)).await? {
                Answer::Found(it) => Ok(it.map(|it| order::found(it, &self.shared()))),
                other => Err(unexpected(&other)),
            }
        })
    }

    fn peek(&self, max_messages: usize) -> Pending<'_, Vec<Message>> {
        Box::pin(async move {
            match self.ask(Ask::Peek(max_messages)).await? {
                Answer::Messages(messages) => {
                    let mailbox = self.shared();
                    Ok(messages.into_iter().map(|stored| stored.seen(&mailbox)).collect())
                }
                other => Err(unexpected(&other)),
            }
        })
    }

    fn count(&self) -> Pending<'_, Count> {
        Box::pin(async move {
            match self.ask(Ask::Count).await? {
                Answer::Count(count) => Ok(count),
                other => Err(unexpected(&other)),
            }
        })
    }

    fn purge(&self) -> Pending<'_, u64> {
        Box::pin(self.number(Ask::Purge))
    }

    fn dead_letters(&self, max_messages: usize) -> Pending<'_, Vec<DeadLetter>> {
        Box::pin(async move {
            match self.ask(Ask::DeadLetters(max_messages)).await? {
                Answer::Letters(graves) => {
                    let mailbox = self.shared();
                    Ok(graves.into_iter().map(|grave| grave.letter(&mailbox)).collect())
                }
                other => Err(unexpected(&other)),
            }
        })
    }

    fn redrive<'a>(&'a self, ids: Option<&'a [MessageId]>) -> Pending<'a, u64> {
        Box::pin(self.number(Ask::Redrive(ids.map(<[MessageId]>::to_vec))))
    }

    fn purge_dead_letters(&self) -> Pending<'_, u64> {
        Box::pin(self.number(Ask::PurgeDeadLetters))
    }

    fn close(&self) {
        self.gate.send_replace(true);
    }

    fn is_closed(&self) -> bool {
        *self.gate.borrow()
    }

    fn health(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            self.check_open()?;
            self.done(Ask::Health).await
        })
    }
}
