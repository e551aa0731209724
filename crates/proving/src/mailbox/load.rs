//! Many clients who do what clients do, and what they should not: give back, hold too long, acknowledge late and twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use snakepit::mailbox::{DeadReason, Extension, Mailbox, MailboxError, Message, Receive, Send};
use tokio::time::Instant;

use super::history::{Client, History};

/// How many of whom.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Clients that send.
    pub producers: usize,
    /// Clients that receive.
    pub consumers: usize,
    /// What each producer sends.
    pub messages: usize,
    /// How long leases last: long ones four times as long. Short enough that some lapse, long enough that most do not.
    pub lease: Duration,
    /// What chance does.
    pub seed: u64,
    /// When consumers give up on a mailbox that does not get empty.
    pub patience: Duration,
}

impl Load {
    /// How often a consumer receives at most: far more often than an honest backend needs.
    fn most_receives(&self) -> usize {
        500 + self.producers * self.messages * 2
    }
}

/// Numbers by chance, the same for the same seed.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// By this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit.max(1)
    }
}

/// A body that begins with this is never acknowledged.
const POISON: &str = "poison";

/// Lets the clients loose until all messages are acked or dead, or they lose patience.
pub async fn run(history: &Arc<History>, mailbox: &Arc<dyn Mailbox>, load: Load) -> Result<(), MailboxError> {
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
        tasks.spawn(async move { Consumer::new(client, load, number).consume(&producing).await });
    }
    while let Some(outcome) = tasks.join_next().await {
        outcome.expect("clients do not panic")?;
    }
    Ok(())
}

async fn produce(client: &Client, load: Load, number: usize) -> Result<(), MailboxError> {
    let mut dice = Dice::new(load.seed ^ ((number as u64) << 32));
    for message in 0..load.messages {
        let mut options = Send::new().priority(dice.below(3) as i8 - 1);
        let mut kind = "message";
        match dice.below(100) {
            0 => kind = POISON,
            1 => options = options.time_to_live(load.lease / 4),
            2..5 => options = options.delay(load.lease / 10),
            _ => {}
        }
        client.send(format!("{kind} {message} of {number} by {}", load.seed).into(), options).await?;
    }
    Ok(())
}

struct Consumer {
    client: Client,
    load: Load,
    dice: Dice,
    /// Messages that are acknowledged too late, and when that is.
    late: Vec<(Instant, Message)>,
    /// Messages that were given back, whose old receipts are tried once more.
    old: Vec<Message>,
}

impl Consumer {
    fn new(client: Client, load: Load, number: usize) -> Self {
        let dice = Dice::new(load.seed ^ ((number as u64) << 32));
        Self { client, load, dice, late: Vec::new(), old: Vec::new() }
    }

    async fn consume(&mut self, producing: &AtomicUsize) -> Result<(), MailboxError> {
        let began = Instant::now();
        for _ in 0..self.load.most_receives() {
            if began.elapsed() > self.load.patience {
                break;
            }
            let lease = if self.dice.below(4) == 0 { self.load.lease } else { self.load.lease * 4 };
            let options = Receive::new()
                .max_messages(1 + self.dice.below(10) as usize)
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
            // Some die of it, and say nothing.
            if self.dice.below(3) == 0 {
                return Ok(());
            }
            let outcome = client.nack(&message, Duration::ZERO).await;
            self.old.push(message);
            return expected(outcome);
        }
        match self.dice.below(100) {
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
                expected(client.extend(&message, lease * 2, Extension::AtLeast).await)?;
                expected(client.ack(&message).await)
            }
            15..17 => {
                expected(client.extend(&message, lease / 2, Extension::Exactly).await)?;
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

    /// What was held for too long, and what was given back: none of it should work.
    async fn try_late(&mut self) -> Result<(), MailboxError> {
        let now = Instant::now();
        let (due, late) = std::mem::take(&mut self.late).into_iter().partition(|(at, _)| *at <= now);
        self.late = late;
        let due: Vec<(Instant, Message)> = due;
        for message in due.into_iter().map(|(_, message)| message).chain(std::mem::take(&mut self.old)) {
            match self.dice.below(4) {
                3 => expected(self.client.release(&message).await)?,
                0 => expected(self.client.nack(&message, Duration::ZERO).await)?,
                1 => expected(self.client.extend(&message, self.load.lease, Extension::AtLeast).await)?,
                _ => expected(self.client.ack(&message).await)?,
            }
        }
        Ok(())
    }
}

/// A receipt that has expired is no trouble; whether it should have is for the checker to say.
fn expected(outcome: Result<(), MailboxError>) -> Result<(), MailboxError> {
    if let Err(MailboxError::ReceiptExpired) = outcome { Ok(()) } else { outcome }
}
