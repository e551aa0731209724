//! Random operations, one after another, with a line of output before each and after its answer.

use std::time::Duration;

use serde_json::json;
use snakepit::mailbox::sqlite::SqliteOptions;
use snakepit::mailbox::{
    DeadReason, LeaseExtension, Mailbox, Message, NackOptions, ReceiveOptions, SendOptions, SqliteMailbox,
};
use snakepit::mailbox_conformance::history::nack_error;
use snakepit_proving::mailbox_faults::traced_mailbox::{answer, ask, deliveries, done};
use snakepit_proving::random::SeededRandom;

const LEASE: Duration = Duration::from_millis(40);

struct MailboxClient {
    mailbox: SqliteMailbox,
    random: SeededRandom,
    held: Vec<Message>,
    seed: u64,
}

pub(super) async fn run(file: &str, seed: u64, count: u64) {
    let open =
        |queue: &str| SqliteOptions::new().queue(queue).open(file).unwrap_or_else(|error| panic!("{error}"));
    let _replies = open("replies");
    let mut worker =
        MailboxClient { mailbox: open("main"), random: SeededRandom::new(seed), held: Vec::new(), seed };
    for number in 0..count {
        worker.step(number).await;
    }
}

impl MailboxClient {
    async fn step(&mut self, number: u64) {
        match self.random.below(10) {
            0..3 => self.send(number).await,
            3..5 => self.receive(number).await,
            _ => {
                if self.held.is_empty() {
                    return self.receive(number).await;
                }
                let index = self.random.below(self.held.len() as u64) as usize;
                let message = self.held.swap_remove(index);
                self.end(number, message).await;
            }
        }
    }

    async fn send(&mut self, number: u64) {
        // Some bodies are too large for their row.
        let padding = if self.random.below(4) == 0 { "x".repeat(3000) } else { String::new() };
        let body = format!("{} {number} {padding}", self.seed);
        ask(number, json!({"op": "send", "body": body}));
        let mut options = SendOptions::new().reply_to("replies").priority(self.random.below(2) as i8);
        if self.random.below(5) == 0 {
            options = options.delay(LEASE / 2);
        }
        let outcome = self.mailbox.send(body.into(), options).await;
        answer(number, json!({"done": done(&outcome), "id": outcome.ok().map(|id| id.to_string())}));
    }

    async fn receive(&mut self, number: u64) {
        let lease = if self.random.below(2) == 0 { LEASE } else { LEASE * 10 };
        ask(number, json!({"op": "receive", "lease": lease.as_nanos() as u64}));
        let options = ReceiveOptions::new()
            .max_messages(1 + self.random.below(3) as usize)
            .visibility_timeout(lease)
            .wait(Duration::from_millis(self.random.below(2) * 20));
        let Ok(messages) = self.mailbox.receive(options).await else { return };
        answer(number, deliveries(&messages));
        self.held.extend(messages);
    }

    async fn end(&mut self, number: u64, message: Message) {
        let receipt = message.receipt.as_ref().map(ToString::to_string);
        let way = match self.random.below(10) {
            0..4 => "ack",
            4..6 => "reply",
            6..8 => "nack",
            8 => "bury",
            _ => "extend",
        };
        ask(number, json!({"op": way, "receipt": receipt, "lease": (LEASE * 2).as_nanos() as u64}));
        let outcome = match way {
            "ack" => message.ack().await,
            "reply" => message.reply(&message.id).await.map(drop),
            "nack" => {
                let pause = Duration::from_millis(self.random.below(2) * 10);
                message
                    .nack(NackOptions::new().visibility(pause).error(nack_error(message.delivery_count)))
                    .await
            }
            "bury" => message.bury(DeadReason::Failed { error: "by chance".into() }).await,
            _ => {
                let receipt = message.receipt.clone().expect("a receipt");
                self.mailbox.extend(&receipt, LEASE * 2, LeaseExtension::AtLeast).await
            }
        };
        answer(number, json!({"done": done(&outcome)}));
        if way == "extend" {
            self.held.push(message);
        }
    }
}
