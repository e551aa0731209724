//! A process that uses a mailbox in a file until it has finished or a fault ends it.
//!
//! - `mailer send FILE BODY` sends a message.
//! - `mailer send-many FILE COUNT` sends messages.
//! - `mailer receive FILE COUNT` prints how long each message took.
//! - `mailer work FILE SEED COUNT` performs random operations, and prints a line before and after each.

mod work;

use std::time::Duration;

use snakepit::mailbox::sqlite::{BootClock, Clock};
use snakepit::mailbox::{Mailbox, ReceiveOptions, SendOptions, SqliteMailbox};
use snakepit_proving::mailbox_faults::traced_mailbox::tell;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        match words[..] {
            ["send", file, body] => send(file, body).await,
            ["send-many", file, count] => send_many(file, count.parse().expect("a number")).await,
            ["receive", file, count] => receive(file, count.parse().expect("a number")).await,
            ["work", file, seed, count] => {
                work::run(file, seed.parse().expect("a number"), count.parse().expect("a number")).await;
            }
            _ => panic!("mailer: what is {words:?}?"),
        }
    });
}

fn mailbox(file: &str) -> SqliteMailbox {
    SqliteMailbox::open(file).unwrap_or_else(|error| panic!("{error}"))
}

async fn send(file: &str, body: &str) {
    match mailbox(file).send(body.into(), SendOptions::new()).await {
        Ok(id) => tell(&format!("sent {id}")),
        Err(error) => tell(&format!("failed: {error}")),
    }
}

/// Sends messages one after another.
async fn send_many(file: &str, count: usize) {
    let mailbox = mailbox(file);
    for _ in 0..count {
        mailbox.send(vec![b'x'; 100], SendOptions::new()).await.expect("a send");
    }
    tell("sent");
}

/// Receives messages whose bodies are the times at which they were sent, in nanoseconds since the boot.
async fn receive(file: &str, count: usize) {
    let mailbox = mailbox(file);
    tell("ready");
    for _ in 0..count {
        let messages =
            mailbox.receive(ReceiveOptions::new().wait(Duration::from_secs(20))).await.expect("a receive");
        let now = BootClock.since_boot();
        let message = messages.first().expect("a message in time");
        let sent: u64 = String::from_utf8_lossy(&message.body).parse().expect("a time");
        tell(&format!("took {}", now.as_nanos() as u64 - sent));
        message.ack().await.expect("an ack");
    }
}
