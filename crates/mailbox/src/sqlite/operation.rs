//! What callers ask of the writer, and what it answers.

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

/// A receipt as the file knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseKey {
    pub(crate) message: i64,
    pub(crate) lease: i64,
}

impl LeaseKey {
    /// None: this file has never issued the receipt.
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
    /// The reply to a message, after a wait if necessary.
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
    /// The size of the file.
    Size,
    /// An empty transaction.
    Health,
}

impl Operation {
    /// Whether it only reads, and so needs no write lock and creates no queue.
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

    /// Whether it makes more than one change, so that it could be half done.
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
    /// None: nobody waits for the output.
    pub(crate) reply: Option<oneshot::Sender<Result<OperationOutput, MailboxError>>>,
}

impl QueuedOperation {
    pub(crate) fn is_receive(&self) -> bool {
        matches!(self.operation, Operation::Receive(_))
    }

    /// Whether it changes something that its caller is told is done.
    pub(crate) fn is_promise(&self) -> bool {
        !self.operation.is_read() && !self.is_receive()
    }

    /// Whether its caller has stopped waiting.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.reply.as_ref().is_some_and(oneshot::Sender::is_closed)
    }

    /// How long it may wait for a message or a reply.
    pub(crate) fn wait(&self) -> Duration {
        match &self.operation {
            Operation::Receive(options) => options.wait,
            Operation::Result(_, wait) => *wait,
            _ => Duration::ZERO,
        }
    }

    pub(crate) fn finish(self, result: Result<OperationOutput, MailboxError>) {
        if let Some(reply) = self.reply {
            // A caller that is gone needs no output; leased messages go back when they are dropped.
            let _ = reply.send(result);
        }
    }
}
