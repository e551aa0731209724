//! Send, receive ten, acknowledge ten, in one thread.

use std::time::{Duration, Instant};

use snakepit::mailbox::{Mailbox, MemoryMailbox, Receive, Send};
use snakepit_proving::bench::{Line, Outcome, Samples};

use crate::Effort;
use crate::floor::Queue;

const BATCH: usize = 10;
/// The least share of the floor, and the least rate.
const SHARE: f64 = 0.2;
const RATE: f64 = 1_000_000.0;
const LEASE: Duration = Duration::from_mins(1);

pub(crate) fn measure(effort: Effort) -> Outcome<Line> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut ours, mut floor) = (Samples::default(), Samples::default());
    for _ in 0..effort.rounds {
        ours.push(runtime.block_on(by_mailbox(effort.messages))?);
        floor.push(by_hand(effort.messages));
    }
    let beside = "a mutexed queue, a heap of leases and a map of receipts";
    let mut row = Line::rates("memory: send, receive and ack, ten at a time", &ours, beside, &floor, SHARE);
    if ours.median() < RATE {
        row.met = false;
        row.text.push_str(" less than 1,000,000/s: MISS |");
    }
    Ok(row)
}

async fn by_mailbox(messages: usize) -> Outcome<f64> {
    let mailbox = MemoryMailbox::new("bench");
    let options = Receive::new().max_messages(BATCH).visibility_timeout(LEASE);
    let began = Instant::now();
    for _ in 0..messages / BATCH {
        for _ in 0..BATCH {
            mailbox.send(vec![b'x'; 100], Send::new()).await?;
        }
        let received = mailbox.receive(options).await?;
        for message in &received {
            message.ack().await?;
        }
    }
    Ok(rate(messages, began))
}

fn by_hand(messages: usize) -> f64 {
    let queue = Queue::default();
    let began = Instant::now();
    for _ in 0..messages / BATCH {
        for _ in 0..BATCH {
            queue.send(vec![b'x'; 100]);
        }
        for receipt in queue.receive(BATCH, LEASE) {
            assert!(queue.ack(receipt), "it was just given out");
        }
    }
    rate(messages, began)
}

fn rate(messages: usize, began: Instant) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a count of messages")]
    let messages = messages as f64;
    messages / began.elapsed().as_secs_f64()
}
