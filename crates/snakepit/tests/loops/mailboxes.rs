//! Mailboxes of both kinds for the tests, handlers that wait for permission, and common steps.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use snakepit::loops::{HandlerFailure, LoopScope, MainLoop, RunOptions, Runnable};
use snakepit::mailbox::{
    Mailbox, MemoryMailboxes, Message, MessageCounts, ReceiveOptions, SendOptions, SqliteMailbox,
    TypedMessage,
};
use tempfile::TempDir;
use tokio::sync::{Semaphore, mpsc};

use crate::support::soon;

/// Two mailboxes of one kind: requests, and replies to them.
pub(crate) struct Mailboxes {
    pub(crate) kind: &'static str,
    pub(crate) requests: Arc<dyn Mailbox>,
    pub(crate) replies: Arc<dyn Mailbox>,
    _dir: Option<TempDir>,
}

impl Mailboxes {
    pub(crate) fn memory() -> Self {
        let office = MemoryMailboxes::new();
        let requests: Arc<dyn Mailbox> = Arc::new(office.mailbox("requests"));
        Self { kind: "memory", requests, replies: Arc::new(office.mailbox("replies")), _dir: None }
    }

    pub(crate) fn sqlite() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let open = |queue: &str| -> Arc<dyn Mailbox> {
            Arc::new(SqliteMailbox::open_named(dir.path().join("mail.db"), queue).expect("opened"))
        };
        Self { kind: "SQLite", requests: open("requests"), replies: open("replies"), _dir: Some(dir) }
    }

    /// Returns one pair of each kind.
    pub(crate) fn both() -> [Self; 2] {
        [Self::memory(), Self::sqlite()]
    }

    pub(crate) async fn send(&self, value: Value) {
        self.requests.send(value.to_string().into_bytes(), SendOptions::new()).await.expect("sent");
    }

    /// Sends the numbers from 0 up.
    pub(crate) async fn send_numbers(&self, numbers: usize) {
        for number in 0..numbers {
            self.send(json!(number)).await;
        }
    }

    pub(crate) async fn ask(&self, value: Value) {
        let options = SendOptions::new().reply_to("replies");
        self.requests.send(value.to_string().into_bytes(), options).await.expect("sent");
    }

    pub(crate) async fn reply(&self) -> Message {
        let receive = ReceiveOptions::new().wait(Duration::from_secs(20));
        let mut replies = soon("a reply", self.replies.receive(receive)).await.expect("received");
        replies.pop().expect("a reply")
    }

    pub(crate) async fn count(&self) -> MessageCounts {
        self.requests.count().await.expect("counted")
    }

    /// Waits until the counts are these: visible, in flight, dead.
    pub(crate) async fn until_count(&self, visible: u64, in_flight: u64, dead: u64) {
        let counted = async {
            loop {
                let count = self.count().await;
                if (count.visible + count.delayed, count.in_flight, count.dead) == (visible, in_flight, dead)
                {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let kind = self.kind;
        soon(&format!("{kind}: {visible} visible, {in_flight} in flight, {dead} dead"), counted).await;
    }

    /// Receives and returns everything that can be received now.
    pub(crate) async fn take_all(&self) -> Vec<Message> {
        let mut all = Vec::new();
        loop {
            let more = self.requests.receive(ReceiveOptions::new().max_messages(10)).await.expect("received");
            if more.is_empty() {
                return all;
            }
            all.extend(more);
        }
    }
}

/// A gate for handlers: they report what they have begun, and wait until they are let through.
pub(crate) struct Gate {
    began: mpsc::UnboundedReceiver<Value>,
    begins: mpsc::UnboundedSender<Value>,
    lets: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        let (begins, began) = mpsc::unbounded_channel();
        Self { began, begins, lets: Arc::new(Semaphore::new(0)) }
    }

    /// Returns a loop whose handler waits at this gate, and replies with its input.
    pub(crate) fn main_loop(&self, name: &str, mailbox: &Arc<dyn Mailbox>) -> MainLoop {
        let (begins, lets) = (self.begins.clone(), Arc::clone(&self.lets));
        MainLoop::new(name, Arc::clone(mailbox), move |request: TypedMessage<Value>| {
            let (begins, lets) = (begins.clone(), Arc::clone(&lets));
            async move {
                let _ = begins.send(request.value.clone());
                lets.acquire().await.expect("open").forget();
                Ok::<_, HandlerFailure>(request.value)
            }
        })
    }

    /// Waits until a handler has begun. Returns its input.
    pub(crate) async fn begun(&mut self) -> Value {
        soon("a handler", self.began.recv()).await.expect("the gate holds a sender")
    }

    pub(crate) fn let_through(&self, handlers: usize) {
        self.lets.add_permits(handlers);
    }
}

/// Starts a loop, and waits until it runs.
pub(crate) async fn run<L: Runnable + 'static>(runnable: L, options: RunOptions) -> LoopScope<L> {
    let scope = LoopScope::start(Arc::new(runnable), options);
    soon("it runs", scope.runnable().control().until_running()).await;
    scope
}

/// Ends a loop, within the time limit.
pub(crate) async fn end<L: Runnable + 'static>(scope: LoopScope<L>) {
    assert!(scope.end(Duration::from_secs(20)).await, "it has not ended in time");
}
