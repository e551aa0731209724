//! A fresh mailbox for a check, with the operations that all checks use.

use std::sync::Arc;
use std::time::Duration;

use snakepit_mailbox::{
    DeadLetter, DeadLetterPolicy, Mailbox, MailboxError, Message, MessageCounts, MessageId, ReceiveOptions,
    SendOptions,
};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::mailboxes::fixture::{Fixture, fresh_name};

/// A fresh mailbox of a fixture.
pub(super) struct TestMailbox<'a> {
    pub(super) fixture: &'a dyn Fixture,
    pub(super) mailbox: Arc<dyn Mailbox>,
}

impl<'a> TestMailbox<'a> {
    pub(super) async fn new(fixture: &'a dyn Fixture) -> Self {
        Self::with(fixture, DeadLetterPolicy::new()).await
    }

    /// Opens another mailbox of the same fixture.
    pub(super) async fn another(&self) -> Self {
        Self::new(self.fixture).await
    }

    /// Opens another mailbox, which gives up a message after this many deliveries.
    pub(super) async fn limited(&self, deliveries: u32) -> Self {
        Self::with(self.fixture, DeadLetterPolicy::new().max_deliveries(deliveries)).await
    }

    async fn with(fixture: &'a dyn Fixture, policy: DeadLetterPolicy) -> Self {
        let mailbox = fixture.open(&fresh_name(), policy).await.expect("a fresh mailbox");
        Self { fixture, mailbox }
    }

    /// Opens the mailbox as another process would, which continues the check.
    pub(super) async fn reopen(&mut self) {
        self.mailbox = self.fixture.reopen(self.mailbox.as_ref()).await.expect("the mailbox again");
    }

    /// Returns a duration in the fixture's units.
    pub(super) fn units(&self, units: u32) -> Duration {
        self.fixture.unit() * units
    }

    /// Lets time pass, in units.
    pub(super) async fn pass(&self, units: u32) {
        self.fixture.pass(self.units(units)).await;
    }

    /// Returns a time that is longer than any wake-up takes.
    pub(super) fn long_wait(&self) -> Duration {
        self.units(20).min(Duration::from_secs(20))
    }

    pub(super) async fn send(&self, body: &str) -> MessageId {
        self.send_with(body, SendOptions::new()).await
    }

    /// Sends messages with these bodies, one after the other.
    pub(super) async fn send_each<const N: usize>(&self, bodies: [&str; N]) {
        for body in bodies {
            self.send(body).await;
        }
    }

    pub(super) async fn send_with(&self, body: &str, options: SendOptions) -> MessageId {
        self.mailbox.send(body.into(), options).await.expect("it is sent")
    }

    /// Receives visible messages and leases them for `lease` units.
    pub(super) async fn receive(&self, most: usize, lease: u32) -> Vec<Message> {
        let options = ReceiveOptions::new().max_messages(most).visibility_timeout(self.units(lease));
        self.mailbox.receive(options).await.expect("it can be received")
    }

    /// Receives the only visible message and leases it for `lease` units.
    pub(super) async fn receive_one(&self, lease: u32) -> Message {
        let mut messages = self.receive(10, lease).await;
        assert_eq!(messages.len(), 1, "{messages:?}");
        messages.remove(0)
    }

    /// Sends a message to an empty mailbox, and receives it with a lease of `lease` units.
    pub(super) async fn send_and_receive(&self, body: &str, lease: u32) -> Message {
        self.send(body).await;
        self.receive_one(lease).await
    }

    /// Starts a waiting receive in a new task. Returns once the receive waits.
    pub(super) async fn waiting(&self, most: usize) -> JoinHandle<WaitedReceive> {
        let (mailbox, wait) = (Arc::clone(&self.mailbox), self.long_wait());
        let lease = self.units(100);
        let task = tokio::spawn(async move {
            let began = Instant::now();
            let options = ReceiveOptions::new().max_messages(most).visibility_timeout(lease).wait(wait);
            let outcome = mailbox.receive(options).await;
            WaitedReceive { outcome, took: began.elapsed() }
        });
        self.pass(1).await;
        assert!(!task.is_finished(), "it does not wait");
        task
    }

    /// Returns the result of a waiting receive, which must return long before its wait is over.
    pub(super) async fn woken(&self, task: JoinHandle<WaitedReceive>) -> Result<Vec<Message>, MailboxError> {
        let waited = task.await.expect("the receiver does not panic");
        assert!(waited.took < self.long_wait() / 2, "it was not woken: {waited:?}");
        waited.outcome
    }

    pub(super) async fn count(&self) -> MessageCounts {
        self.mailbox.count().await.expect("messages can be counted")
    }

    /// Compares the count: visible, in flight, delayed, dead.
    pub(super) async fn assert_count(&self, expected: [u64; 4]) {
        let MessageCounts { visible, in_flight, delayed, dead, .. } = self.count().await;
        assert_eq!([visible, in_flight, delayed, dead], expected, "visible, in flight, delayed, dead");
    }

    pub(super) async fn dead_letters(&self) -> Vec<DeadLetter> {
        self.mailbox.dead_letters(100).await.expect("dead letters can be listed")
    }

    /// Returns the only dead letter.
    pub(super) async fn dead_letter(&self) -> DeadLetter {
        let mut letters = self.dead_letters().await;
        assert_eq!(letters.len(), 1, "{letters:?}");
        letters.remove(0)
    }
}

/// The result of a receive, and how long it took.
#[derive(Debug)]
pub(super) struct WaitedReceive {
    pub(super) outcome: Result<Vec<Message>, MailboxError>,
    pub(super) took: Duration,
}

/// Returns the bodies as text.
pub(super) fn bodies(messages: &[Message]) -> Vec<String> {
    messages.iter().map(|message| String::from_utf8_lossy(&message.body).into_owned()).collect()
}

/// Asserts that the receipt was refused.
pub(super) fn assert_expired<T: std::fmt::Debug>(outcome: &Result<T, MailboxError>) {
    assert!(matches!(outcome, Err(MailboxError::ReceiptExpired)), "{outcome:?}");
}

/// Asserts that the option of this name was refused.
pub(super) fn assert_out_of_range<T: std::fmt::Debug>(outcome: &Result<T, MailboxError>, name: &str) {
    assert!(
        matches!(outcome, Err(MailboxError::OutOfRange { option, .. }) if *option == name),
        "{name}: {outcome:?}"
    );
}
