//! Mailboxes in a SQLite file: one file, many queues, many processes. Sent messages survive a power cut.
//!
//! Owns the file and everything beside it. Must not know loops or workers; callers see only
//! [`SqliteMailbox`].
//!
//! A call passes these files: `options` (opens a file), `operation` (what the caller asks for), `writer` (one
//! thread per file and process, which runs all queued operations in one transaction and answers when the log
//! is on disk), `transaction` (each operation as SQL), `storage` (the file, its format, its log and its
//! locks) and `stored_message` (the way back to the caller). `stored_time` converts times to the form that
//! the file stores, and `error` explains SQLite's errors.

pub(crate) mod error;
mod operation;
mod options;
mod storage;
mod stored_message;
mod stored_time;
mod transaction;
mod writer;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

pub use crate::clock::{BootClock, Clock};
use operation::{LeaseKey, Operation, OperationOutput, QueuedOperation};
pub use options::SqliteOptions;
pub use storage::maintenance::FileSize;
pub use storage::wal::{DiskSync, LogSync};
use writer::handle::{CloseSignal, WriterHandle};
use writer::operation_queue::writer_gone;

use super::{
    Capabilities, DeadLetter, FoundMessage, LeaseChange, Mailbox, MailboxError, Message, MessageCounts,
    MessageId, Pending, QueueSettings, Receipt, ReceiveOptions, Reply, SendOptions, SettingsChange,
    check_wait, telemetry,
};

/// The queue that is opened if the caller names none.
pub const DEFAULT_QUEUE: &str = "main";

/// A mailbox in a SQLite file. [`close`](Mailbox::close) closes it for all handles of this process, but for
/// no other process; opening it again gives an open mailbox.
///
/// ```no_run
/// use snakepit::mailbox::{Mailbox, MailboxError, SendOptions, SqliteMailbox};
///
/// # async fn example() -> Result<(), MailboxError> {
/// let orders = SqliteMailbox::open_named("mail.db", "orders")?;
/// orders.send(b"one coffee".to_vec(), SendOptions::new()).await?;
/// // The message is on disk now. Any process that opens the file can receive it.
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct SqliteMailbox {
    queue: Arc<str>,
    writer: Arc<WriterHandle>,
    closed: CloseSignal,
}

impl fmt::Debug for SqliteMailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteMailbox")
            .field("path", &self.path())
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

/// Performs an operation and returns its output. Each operation has one variant of output; the error for any
/// other only satisfies the compiler.
macro_rules! output {
    ($mailbox:expr, $operation:expr, $variant:ident) => {
        match $mailbox.perform($operation).await? {
            OperationOutput::$variant(output) => Ok(output),
            other => Err(MailboxError::backend(
                crate::BackendErrorKind::Other,
                format!("the mailbox's writer answered {other:?}"),
            )),
        }
    };
}
use output;

impl SqliteMailbox {
    /// Opens the queue `main` of a file. Creates the file if it is missing.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, MailboxError> {
        SqliteOptions::new().open(path)
    }

    /// Opens a queue of a file. Queues of one file can reply to each other by name.
    pub fn open_named(path: impl AsRef<Path>, queue: impl Into<String>) -> Result<Self, MailboxError> {
        SqliteOptions::new().queue(queue).open(path)
    }

    /// Opens `sqlite:PATH` or `sqlite:PATH#QUEUE`.
    pub fn open_url(url: &str) -> Result<Self, MailboxError> {
        SqliteOptions::new().open_url(url)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.writer.file().path
    }

    fn shared(&self) -> Arc<dyn Mailbox> {
        Arc::new(self.clone())
    }

    fn closed(&self) -> MailboxError {
        MailboxError::Closed(self.queue.to_string())
    }

    fn check_open(&self) -> Result<(), MailboxError> {
        if self.is_closed() { Err(self.closed()) } else { Ok(()) }
    }

    async fn perform(&self, operation: Operation) -> Result<OperationOutput, MailboxError> {
        let (reply, output) = oneshot::channel();
        let operation = QueuedOperation { queue: Arc::clone(&self.queue), operation, reply: Some(reply) };
        self.writer.operations().put(operation).await?;
        output.await.unwrap_or_else(|_| Err(writer_gone()))
    }

    async fn number(&self, operation: Operation) -> Result<u64, MailboxError> {
        output!(self, operation, Number)
    }

    async fn receive_or_wait(&self, options: ReceiveOptions) -> Result<Vec<Message>, MailboxError> {
        options.check()?;
        let mut closed = self.closed.subscribe();
        let closed = async move { closed.wait_for(|is_closed| *is_closed).await.is_ok() };
        let receive = async { output!(self, Operation::Receive(options), Received) };
        tokio::select! {
            biased;
            // Messages that the writer leases for this receive after all are released when its answer is
            // dropped.
            _ = closed => Err(self.closed()),
            received = receive => {
                let received = received?;
                telemetry::received(&self.queue, received.messages.len());
                Ok(received.take(&self.shared()))
            }
        }
    }
}

impl Mailbox for SqliteMailbox {
    fn name(&self) -> &str {
        &self.queue
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn send(&self, body: Vec<u8>, options: SendOptions) -> Pending<'_, MessageId> {
        Box::pin(async move {
            options.check()?;
            self.check_open()?;
            output!(self, Operation::Send(body, options), Id)
        })
    }

    fn send_all(&self, messages: Vec<(Vec<u8>, SendOptions)>) -> Pending<'_, Vec<MessageId>> {
        Box::pin(async move {
            messages.iter().try_for_each(|(_, options)| options.check())?;
            self.check_open()?;
            output!(self, Operation::SendAll(messages), Ids)
        })
    }

    fn receive(&self, options: ReceiveOptions) -> Pending<'_, Vec<Message>> {
        Box::pin(self.receive_or_wait(options))
    }

    fn change_leases<'a>(&'a self, receipts: &'a [Receipt], change: LeaseChange) -> Pending<'a, usize> {
        Box::pin(async move {
            change.check()?;
            let leases: Vec<LeaseKey> = receipts.iter().filter_map(LeaseKey::of).collect();
            if leases.is_empty() {
                return Ok(0);
            }
            let changed = self.number(Operation::ChangeLeases(leases, change.clone())).await? as usize;
            change.report(&self.queue, changed);
            Ok(changed)
        })
    }

    fn reply<'a>(
        &'a self,
        receipt: &'a Receipt,
        body: Vec<u8>,
        options: SendOptions,
    ) -> Pending<'a, MessageId> {
        Box::pin(async move {
            options.check()?;
            let lease = LeaseKey::of(receipt).ok_or(MailboxError::ReceiptExpired)?;
            let id = output!(self, Operation::Reply(lease, body, options), Id)?;
            telemetry::acked(&self.queue, 1);
            Ok(id)
        })
    }

    fn result(&self, id: MessageId, wait: Duration) -> Pending<'_, Option<Reply>> {
        Box::pin(async move {
            check_wait(wait)?;
            output!(self, Operation::Result(id, wait), Reply)
        })
    }

    fn settings(&self) -> Pending<'_, QueueSettings> {
        Box::pin(async move { output!(self, Operation::Settings, Settings) })
    }

    fn configure(&self, change: SettingsChange) -> Pending<'_, QueueSettings> {
        Box::pin(async move {
            change.check()?;
            output!(self, Operation::Configure(change), Settings)
        })
    }

    fn find(&self, id: MessageId) -> Pending<'_, Option<FoundMessage>> {
        Box::pin(async move {
            let found = output!(self, Operation::Find(id), Found)?;
            Ok(found.map(|(stored, state)| FoundMessage {
                message: stored.without_receipt(&self.shared()),
                state,
            }))
        })
    }

    fn peek(&self, max_messages: usize) -> Pending<'_, Vec<Message>> {
        Box::pin(async move {
            let messages = output!(self, Operation::Peek(max_messages), Messages)?;
            let mailbox = self.shared();
            Ok(messages.into_iter().map(|stored| stored.without_receipt(&mailbox)).collect())
        })
    }

    fn count(&self) -> Pending<'_, MessageCounts> {
        Box::pin(async move { output!(self, Operation::Count, Count) })
    }

    fn purge(&self) -> Pending<'_, u64> {
        Box::pin(self.number(Operation::Purge))
    }

    fn dead_letters(&self, max_messages: usize) -> Pending<'_, Vec<DeadLetter>> {
        Box::pin(async move {
            let letters = output!(self, Operation::DeadLetters(max_messages), DeadLetters)?;
            let mailbox = self.shared();
            Ok(letters.into_iter().map(|letter| letter.dead_letter(&mailbox)).collect())
        })
    }

    fn redrive<'a>(&'a self, ids: Option<&'a [MessageId]>) -> Pending<'a, u64> {
        Box::pin(self.number(Operation::Redrive(ids.map(<[MessageId]>::to_vec))))
    }

    fn purge_dead_letters(&self) -> Pending<'_, u64> {
        Box::pin(self.number(Operation::PurgeDeadLetters))
    }

    fn close(&self) {
        self.closed.send_replace(true);
    }

    fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    fn health(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            self.check_open()?;
            self.perform(Operation::Health).await.map(drop)
        })
    }
}
