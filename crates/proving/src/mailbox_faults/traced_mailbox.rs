//! A mailbox that prints a line before each operation and after each answer. A test that kills the process then knows
//! what was under way. [`OperationTrace`](super::OperationTrace) reads the lines.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use snakepit::mailbox::sqlite::{BootClock, Clock};
use snakepit::mailbox::{
    Capabilities, DeadLetter, FoundMessage, LeaseChange, Mailbox, MailboxError, Message, MessageCounts,
    MessageId, Pending, QueueSettings, Receipt, ReceiveOptions, Reply, SendOptions, SettingsChange,
};

/// Prints a line in a single write, so that a kill never leaves half of it.
pub fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush()).expect("a reader");
}

/// Returns the nanoseconds since the boot, which are the same in all processes.
pub fn now() -> u64 {
    BootClock.since_boot().as_nanos() as u64
}

/// Prints an operation before it is executed.
pub fn ask(number: u64, mut what: Value) {
    what["number"] = json!(number);
    what["asked"] = json!(now());
    tell(&what.to_string());
}

/// Prints the answer to an operation.
pub fn answer(number: u64, mut what: Value) {
    what["number"] = json!(number);
    what["told"] = json!(now());
    tell(&what.to_string());
}

/// Returns whether the operation was executed, if that is known.
pub fn done<T>(outcome: &Result<T, MailboxError>) -> Value {
    match outcome {
        Ok(_) => json!("yes"),
        Err(MailboxError::Backend { .. }) => json!("unknown"),
        Err(_) => json!("no"),
    }
}

/// Returns received messages in the format that [`OperationTrace`](super::OperationTrace) reads.
pub fn deliveries(messages: &[Message]) -> Value {
    let delivery = |message: &Message| {
        json!({
            "id": message.id.to_string(),
            "body": String::from_utf8_lossy(&message.body),
            "receipt": message.receipt.as_ref().map(ToString::to_string),
            "delivery": message.delivery_count,
        })
    };
    json!({ "deliveries": messages.iter().map(delivery).collect::<Vec<_>>() })
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

/// A mailbox that prints its operations. Bodies are short texts, because a line must fit into a single write to a pipe.
#[derive(Clone, Debug)]
pub struct TracedMailbox {
    inner: Arc<dyn Mailbox>,
}

impl TracedMailbox {
    /// Traces this mailbox.
    pub fn over(inner: Arc<dyn Mailbox>) -> Self {
        Self { inner }
    }

    /// Executes an operation and prints a line before and after it.
    async fn told<T>(
        what: Value,
        act: impl Future<Output = Result<T, MailboxError>>,
        more: impl FnOnce(&T) -> Value,
    ) -> Result<T, MailboxError> {
        let number = next();
        ask(number, what);
        let outcome = act.await;
        let mut answered = outcome.as_ref().map_or_else(|_| json!({}), more);
        answered["done"] = done(&outcome);
        answer(number, answered);
        outcome
    }

    /// Prints a line for each of several leases. If only some are accepted, it is unknown which.
    async fn all_told(
        what: Value,
        receipts: &[Receipt],
        act: impl Future<Output = Result<usize, MailboxError>>,
    ) -> Result<usize, MailboxError> {
        let numbers: Vec<u64> = receipts.iter().map(|_| next()).collect();
        for (number, receipt) in numbers.iter().zip(receipts) {
            let mut what = what.clone();
            what["receipt"] = json!(receipt.to_string());
            ask(*number, what);
        }
        let outcome = act.await;
        let answered = match &outcome {
            Ok(all) if *all == receipts.len() => json!("yes"),
            Ok(0) => json!("no"),
            Ok(_) => json!("unknown"),
            Err(_) => done(&outcome),
        };
        for number in numbers {
            answer(number, json!({ "done": answered }));
        }
        outcome
    }
}

fn next() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn nothing<T>(_: &T) -> Value {
    json!({})
}

impl Mailbox for TracedMailbox {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    fn send(&self, body: Vec<u8>, options: SendOptions) -> Pending<'_, MessageId> {
        let what = json!({ "op": "send", "body": String::from_utf8_lossy(&body) });
        Box::pin(Self::told(what, self.inner.send(body, options), |id| json!({ "id": id.to_string() })))
    }
    fn send_all(&self, messages: Vec<(Vec<u8>, SendOptions)>) -> Pending<'_, Vec<MessageId>> {
        self.inner.send_all(messages)
    }
    fn receive(&self, options: ReceiveOptions) -> Pending<'_, Vec<Message>> {
        let what = json!({ "op": "receive", "lease": nanos(options.visibility_timeout) });
        Box::pin(async move {
            let received = Self::told(what, self.inner.receive(options), |messages| deliveries(messages));
            let mut messages = received.await?;
            for message in &mut messages {
                message.mailbox = Arc::new(self.clone());
            }
            Ok(messages)
        })
    }
    fn change_leases<'a>(&'a self, receipts: &'a [Receipt], change: LeaseChange) -> Pending<'a, usize> {
        let what = match &change {
            LeaseChange::Ack => json!({ "op": "ack" }),
            LeaseChange::Nack(_) => json!({ "op": "nack" }),
            LeaseChange::Release => json!({ "op": "release" }),
            LeaseChange::Extend(time, _) => json!({ "op": "extend", "lease": nanos(*time) }),
            LeaseChange::Bury(_) => json!({ "op": "bury" }),
        };
        Box::pin(Self::all_told(what, receipts, self.inner.change_leases(receipts, change)))
    }
    fn reply<'a>(
        &'a self,
        receipt: &'a Receipt,
        body: Vec<u8>,
        options: SendOptions,
    ) -> Pending<'a, MessageId> {
        let what = json!({ "op": "reply", "receipt": receipt.to_string() });
        Box::pin(Self::told(what, self.inner.reply(receipt, body, options), nothing))
    }
    fn result(&self, id: MessageId, wait: Duration) -> Pending<'_, Option<Reply>> {
        self.inner.result(id, wait)
    }
    fn settings(&self) -> Pending<'_, QueueSettings> {
        self.inner.settings()
    }
    fn configure(&self, change: SettingsChange) -> Pending<'_, QueueSettings> {
        self.inner.configure(change)
    }
    fn find(&self, id: MessageId) -> Pending<'_, Option<FoundMessage>> {
        self.inner.find(id)
    }
    fn peek(&self, max_messages: usize) -> Pending<'_, Vec<Message>> {
        self.inner.peek(max_messages)
    }
    fn count(&self) -> Pending<'_, MessageCounts> {
        self.inner.count()
    }
    fn purge(&self) -> Pending<'_, u64> {
        self.inner.purge()
    }
    fn dead_letters(&self, max_messages: usize) -> Pending<'_, Vec<DeadLetter>> {
        self.inner.dead_letters(max_messages)
    }
    fn redrive<'a>(&'a self, ids: Option<&'a [MessageId]>) -> Pending<'a, u64> {
        self.inner.redrive(ids)
    }
    fn purge_dead_letters(&self) -> Pending<'_, u64> {
        self.inner.purge_dead_letters()
    }
    fn close(&self) {
        self.inner.close();
    }
    fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }
    fn health(&self) -> Pending<'_, ()> {
        self.inner.health()
    }
}
