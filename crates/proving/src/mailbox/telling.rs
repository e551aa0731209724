//! What a process does to a mailbox, told line by line before it is asked and after it is answered: whoever kills the process
//! knows what was under way. [`Notes`](super::Notes) reads it.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use snakepit::mailbox::sqlite::{BootClock, Clock};
use snakepit::mailbox::{
    Capabilities, Count, DeadLetter, DeadReason, Extension, Found, Mailbox, MailboxError, Message, MessageId,
    Nack, Pending, QueueSettings, Receipt, Receive, Reply, Send, SettingsChange,
};

/// A whole line at once, so that a kill leaves no half of it.
pub fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush()).expect("somebody who reads");
}

/// Nanoseconds since the boot: a time that all processes share.
pub fn now() -> u64 {
    BootClock.since_boot().as_nanos() as u64
}

/// Before it is done.
pub fn ask(number: u64, mut what: Value) {
    what["number"] = json!(number);
    what["asked"] = json!(now());
    tell(&what.to_string());
}

/// After it was done, or was not.
pub fn answer(number: u64, mut what: Value) {
    what["number"] = json!(number);
    what["told"] = json!(now());
    tell(&what.to_string());
}

/// Whether it was done, if anybody knows.
pub fn done<T>(outcome: &Result<T, MailboxError>) -> Value {
    match outcome {
        Ok(_) => json!("yes"),
        Err(MailboxError::Backend { .. }) => json!("unknown"),
        Err(_) => json!("no"),
    }
}

/// What came, as notes want to have it.
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

/// A mailbox that tells what is done to it. Bodies are texts, and short: a line must fit into a pipe's single write.
#[derive(Clone, Debug)]
pub struct Telling {
    inner: Arc<dyn Mailbox>,
}

impl Telling {
    /// Over this one.
    pub fn over(inner: Arc<dyn Mailbox>) -> Self {
        Self { inner }
    }

    /// Asks, and tells before and after.
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

    /// Each of several leases is told by itself; of a part of them nobody knows which.
    async fn all_told(
        op: &str,
        receipts: &[Receipt],
        act: impl Future<Output = Result<usize, MailboxError>>,
    ) -> Result<usize, MailboxError> {
        let numbers: Vec<u64> = receipts.iter().map(|_| next()).collect();
        for (number, receipt) in numbers.iter().zip(receipts) {
            ask(*number, json!({ "op": op, "receipt": receipt.to_string() }));
        }
        let outcome = act.await;
        let done = match &outcome {
            Ok(all) if *all == receipts.len() => "yes",
            Ok(0) => "no",
            Ok(_) | Err(_) => "unknown",
        };
        for number in numbers {
            answer(number, json!({ "done": done }));
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

impl Mailbox for Telling {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    fn send(&self, body: Vec<u8>, options: Send) -> Pending<'_, MessageId> {
        let what = json!({ "op": "send", "body": String::from_utf8_lossy(&body) });
        Box::pin(Self::told(what, self.inner.send(body, options), |id| json!({ "id": id.to_string() })))
    }
    fn send_all(&self, messages: Vec<(Vec<u8>, Send)>) -> Pending<'_, Vec<MessageId>> {
        self.inner.send_all(messages)
    }
    fn receive(&self, options: Receive) -> Pending<'_, Vec<Message>> {
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
    fn ack<'a>(&'a self, receipt: &'a Receipt) -> Pending<'a, ()> {
        let what = json!({ "op": "ack", "receipt": receipt.to_string() });
        Box::pin(Self::told(what, self.inner.ack(receipt), nothing))
    }
    fn ack_all<'a>(&'a self, receipts: &'a [Receipt]) -> Pending<'a, usize> {
        Box::pin(Self::all_told("ack", receipts, self.inner.ack_all(receipts)))
    }
    fn nack<'a>(&'a self, receipt: &'a Receipt, options: Nack) -> Pending<'a, ()> {
        let what = json!({ "op": "nack", "receipt": receipt.to_string() });
        Box::pin(Self::told(what, self.inner.nack(receipt, options), nothing))
    }
    fn nack_all<'a>(&'a self, receipts: &'a [Receipt], options: Nack) -> Pending<'a, usize> {
        Box::pin(Self::all_told("nack", receipts, self.inner.nack_all(receipts, options)))
    }
    fn release<'a>(&'a self, receipts: &'a [Receipt]) -> Pending<'a, usize> {
        Box::pin(Self::all_told("release", receipts, self.inner.release(receipts)))
    }
    fn extend<'a>(&'a self, receipt: &'a Receipt, time: Duration, extension: Extension) -> Pending<'a, ()> {
        let what = json!({ "op": "extend", "receipt": receipt.to_string(), "lease": nanos(time) });
        Box::pin(Self::told(what, self.inner.extend(receipt, time, extension), nothing))
    }
    fn bury<'a>(&'a self, receipt: &'a Receipt, reason: DeadReason) -> Pending<'a, ()> {
        let what = json!({ "op": "bury", "receipt": receipt.to_string() });
        Box::pin(Self::told(what, self.inner.bury(receipt, reason), nothing))
    }
    fn reply<'a>(&'a self, receipt: &'a Receipt, body: Vec<u8>, options: Send) -> Pending<'a, MessageId> {
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
    fn find(&self, id: MessageId) -> Pending<'_, Option<Found>> {
        self.inner.find(id)
    }
    fn peek(&self, max_messages: usize) -> Pending<'_, Vec<Message>> {
        self.inner.peek(max_messages)
    }
    fn count(&self) -> Pending<'_, Count> {
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
