//! Many clients that use a mailbox well and badly: they nack, hold messages too long, and acknowledge late and twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use snakepit_mailbox::{
    DeadReason, LeaseExtension, Mailbox, MailboxError, Message, ReceiveOptions, SendOptions,
};
use tokio::time::Instant;

use super::history::{History, RecordingClient};
use fastrand::Rng;

/// The number and the behaviour of the clients.
#[derive(Clone, Copy, Debug)]
pub struct ClientLoad {
    /// Clients that send.
    pub producers: usize,
    /// Clients that receive.
    pub consumers: usize,
    /// The number of messages that each producer sends.
    pub messages: usize,
    /// The length of short leases. Long leases last four times as long. Choose it so that some leases lapse, but most
    /// do not.
    pub lease: Duration,
    /// The seed of all random choices.
    pub seed: u64,
    /// The time after which consumers give up on a mailbox that does not become empty.
    pub patience: Duration,
}

impl ClientLoad {
    /// Returns the maximum number of receives of a consumer, which is far more than a correct backend needs.
    fn most_receives(&self) -> usize {
        500 + self.producers * self.messages * 2
    }
}

/// The prefix of bodies that consumers never acknowledge.
const POISON: &str = "poison";

/// Runs the clients until all messages are acknowledged or dead, or until their patience ends.
pub async fn run(
    history: &Arc<History>,
    mailbox: &Arc<dyn Mailbox>,
    load: ClientLoad,
) -> Result<(), MailboxError> {
    let producing = Arc::new(AtomicUsize::new(load.producers));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..load.producers {
        let (client, producing) = (history.client(number, mailbox), Arc::clone(&producing));
        tasks.spawn(async move {
            let outcome = produce(&client, load, number).await;
            producing.fetch_sub(1, Ordering::SeqCst);
            outcome
        });
    }
    for number in load.producers..load.producers + load.consumers {
        let (client, producing) = (history.client(number, mailbox), Arc::clone(&producing));
        tasks.spawn(async move { LoadConsumer::new(client, load, number).consume(&producing).await });
    }
    while let Some(outcome) = tasks.join_next().await {
        outcome.expect("clients do not panic")?;
    }
    Ok(())
}

async fn produce(client: &RecordingClient, load: ClientLoad, number: usize) -> Result<(), MailboxError> {
    let mut random = Rng::with_seed(load.seed ^ ((number as u64) << 32));
    for message in 0..load.messages {
        let mut options = SendOptions::new().priority(random.u64(..3) as i8 - 1);
        let mut kind = "message";
        match random.u64(..100) {
            0 => kind = POISON,
            1 => options = options.time_to_live(load.lease / 4),
            2..5 => options = options.delay(load.lease / 10),
            _ => {}
        }
        client.send(format!("{kind} {message} of {number} by {}", load.seed).into(), options).await?;
    }
    Ok(())
}

struct LoadConsumer {
    client: RecordingClient,
    load: ClientLoad,
    random: Rng,
    /// Messages to acknowledge too late, and when.
    late: Vec<(Instant, Message)>,
    /// Messages that were returned. Their old receipts are used once more.
    old: Vec<Message>,
}

impl LoadConsumer {
    fn new(client: RecordingClient, load: ClientLoad, number: usize) -> Self {
        let random = Rng::with_seed(load.seed ^ ((number as u64) << 32));
        Self { client, load, random, late: Vec::new(), old: Vec::new() }
    }

    async fn consume(&mut self, producing: &AtomicUsize) -> Result<(), MailboxError> {
        let began = Instant::now();
        for _ in 0..self.load.most_receives() {
            if began.elapsed() > self.load.patience {
                break;
            }
            let lease = if self.random.u64(..4) == 0 { self.load.lease } else { self.load.lease * 4 };
            let options = ReceiveOptions::new()
                .max_messages(1 + self.random.u64(..10) as usize)
                .visibility_timeout(lease)
                .wait(self.load.lease.min(Duration::from_secs(20)));
            let messages = self.client.receive(options).await?;
            let was_empty = messages.is_empty();
            for message in messages {
                self.handle(message, lease).await?;
            }
            self.try_late().await?;
            if was_empty && producing.load(Ordering::SeqCst) == 0 && self.late.is_empty() {
                let count = self.client.mailbox().count().await?;
                if count.visible + count.in_flight + count.delayed == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn handle(&mut self, message: Message, lease: Duration) -> Result<(), MailboxError> {
        let client = self.client.clone();
        if message.body.starts_with(POISON.as_bytes()) {
            // Some consumers crash on the message without an answer.
            if self.random.u64(..3) == 0 {
                return Ok(());
            }
            let outcome = client.nack(&message, Duration::ZERO).await;
            self.old.push(message);
            return expected(outcome);
        }
        match self.random.u64(..100) {
            0..6 => {
                let outcome = client.nack(&message, Duration::ZERO).await;
                self.old.push(message);
                expected(outcome)
            }
            6..9 => expected(client.nack(&message, self.load.lease / 10).await),
            25..31 => {
                let outcome = client.release(&message).await;
                self.old.push(message);
                expected(outcome)
            }
            9..15 => {
                expected(client.extend(&message, lease * 2, LeaseExtension::AtLeast).await)?;
                expected(client.ack(&message).await)
            }
            15..17 => {
                expected(client.extend(&message, lease / 2, LeaseExtension::Exactly).await)?;
                expected(client.ack(&message).await)
            }
            17..20 => {
                self.late.push((Instant::now() + lease, message));
                Ok(())
            }
            20..23 => {
                expected(client.ack(&message).await)?;
                expected(client.ack(&message).await)
            }
            23 => expected(client.bury(&message, DeadReason::Failed { error: "by chance".into() }).await),
            24 => Ok(()),
            _ => expected(client.ack(&message).await),
        }
    }

    /// Uses the receipts of messages that were held too long or returned. The mailbox should accept none of them.
    async fn try_late(&mut self) -> Result<(), MailboxError> {
        let now = Instant::now();
        let (due, late) = std::mem::take(&mut self.late).into_iter().partition(|(at, _)| *at <= now);
        self.late = late;
        let due: Vec<(Instant, Message)> = due;
        for message in due.into_iter().map(|(_, message)| message).chain(std::mem::take(&mut self.old)) {
            match self.random.u64(..4) {
                3 => expected(self.client.release(&message).await)?,
                0 => expected(self.client.nack(&message, Duration::ZERO).await)?,
                1 => expected(self.client.extend(&message, self.load.lease, LeaseExtension::AtLeast).await)?,
                _ => expected(self.client.ack(&message).await)?,
            }
        }
        Ok(())
    }
}

/// Ignores an expired receipt. The checker judges whether it should have expired.
fn expected(outcome: Result<(), MailboxError>) -> Result<(), MailboxError> {
    if let Err(MailboxError::ReceiptExpired) = outcome { Ok(()) } else { outcome }
}
