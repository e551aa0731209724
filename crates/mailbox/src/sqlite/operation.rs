//! The operations that callers ask of the writer, and their outputs.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::storage::maintenance::FileSize;
use super::stored_message::{ReceivedBatch, StoredDeadLetter, StoredMessage};
use super::transaction::LARGE;
use crate::LeaseChange;
use crate::message::ReceiptKey;
use crate::{
    MailboxError, MessageCounts, MessageId, MessageState, QueueSettings, Receipt, ReceiveOptions, Reply,
    SendOptions, SettingsChange,
};

/// The numbers of a message and of its lease in the file, which a receipt contains.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseKey {
    pub(crate) message: i64,
    pub(crate) lease: i64,
}

impl LeaseKey {
    /// Returns `None` if no mailbox in a file can have issued the receipt.
    pub(crate) fn of(receipt: &Receipt) -> Option<Self> {
        let ReceiptKey::Numbers { message, lease } = receipt.0 else { return None };
        Some(Self { message: message.try_into().ok()?, lease: lease.try_into().ok()? })
    }
}

#[derive(Debug)]
pub(crate) enum Operation {
    Send(Vec<u8>, SendOptions),
    SendAll(Vec<(Vec<u8>, SendOptions)>),
    Receive(ReceiveOptions),
    ChangeLeases(Vec<LeaseKey>, LeaseChange),
    Reply(LeaseKey, Vec<u8>, SendOptions),
    /// Returns the reply to a message. Waits for it up to the given time.
    Result(MessageId, Duration),
    Settings,
    Configure(SettingsChange),
    Find(MessageId),
    Peek(usize),
    Count,
    Purge,
    DeadLetters(usize),
    Redrive(Option<Vec<MessageId>>),
    PurgeDeadLetters,
    /// Returns the size of the file.
    Size,
    /// Runs an empty transaction.
    Health,
}

impl Operation {
    /// Reports whether the operation only reads. Then it needs no write lock and creates no queue.
    pub(crate) fn is_read(&self) -> bool {
        matches!(
            self,
            Self::Result(..)
                | Self::Size
                | Self::Settings
                | Self::Find(_)
                | Self::Peek(_)
                | Self::Count
                | Self::DeadLetters(_)
        )
    }

    /// Reports whether the operation makes more than one change, so that a failure could leave it half done.
    pub(crate) fn has_steps(&self) -> bool {
        match self {
            Self::Send(body, options) => {
                options.dedup_key.is_some() || options.group.is_some() || body.len() > LARGE
            }
            Self::ChangeLeases(_, LeaseChange::Extend(..)) | Self::Health => false,
            operation => !operation.is_read(),
        }
    }
}

#[derive(Debug)]
pub(crate) enum OperationOutput {
    Done,
    Id(MessageId),
    Ids(Vec<MessageId>),
    Received(ReceivedBatch),
    Messages(Vec<StoredMessage>),
    Number(u64),
    Reply(Option<Reply>),
    Settings(QueueSettings),
    Found(Option<(StoredMessage, MessageState)>),
    Count(MessageCounts),
    DeadLetters(Vec<StoredDeadLetter>),
    Size(FileSize),
}

/// An operation on its way to the writer.
pub(crate) struct QueuedOperation {
    pub(crate) queue: Arc<str>,
    pub(crate) operation: Operation,
    /// `None` if nobody waits for the output.
    pub(crate) reply: Option<oneshot::Sender<Result<OperationOutput, MailboxError>>>,
}

impl QueuedOperation {
    pub(crate) fn is_receive(&self) -> bool {
        matches!(self.operation, Operation::Receive(_))
    }

    /// Reports whether the answer promises a change: it must be on disk before the caller is answered.
    /// Receives promise nothing.
    pub(crate) fn is_promise(&self) -> bool {
        !self.operation.is_read() && !self.is_receive()
    }

    /// Reports whether the caller has stopped waiting.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.reply.as_ref().is_some_and(oneshot::Sender::is_closed)
    }

    /// Returns how long the operation may wait for a message or a reply.
    pub(crate) fn wait(&self) -> Duration {
        match &self.operation {
            Operation::Receive(options) => options.wait,
            Operation::Result(_, wait) => *wait,
            _ => Duration::ZERO,
        }
    }

    pub(crate) fn finish(self, result: Result<OperationOutput, MailboxError>) {
        if let Some(reply) = self.reply {
            // A caller that has gone away needs no output. Dropping the output releases its leased messages.
            let _ = reply.send(result);
        }
    }
}
