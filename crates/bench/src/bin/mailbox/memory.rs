//! Send, receive ten, acknowledge ten, in one thread.

use std::time::{Duration, Instant};

use snakepit::mailbox::{Mailbox, MemoryMailbox, ReceiveOptions, SendOptions};
use snakepit_bench::time::rate;
use snakepit_bench::{BenchResult, SampleSet, SummaryRow};

use crate::MailboxWork;
use crate::floor::PlainQueue;

const BATCH: usize = 10;
/// The minimum share of the floor, and the minimum rate.
const SHARE: f64 = 0.2;
const RATE: f64 = 1_000_000.0;
const LEASE: Duration = Duration::from_mins(1);

pub(crate) fn measure(work: MailboxWork) -> BenchResult<SummaryRow> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut ours, mut floor) = (SampleSet::default(), SampleSet::default());
    for _ in 0..work.rounds {
        ours.push(runtime.block_on(by_mailbox(work.messages))?);
        floor.push(by_hand(work.messages));
    }
    let beside = "a mutexed queue, a heap of leases and a map of receipts";
    let mut row =
        SummaryRow::rates("memory: send, receive and ack, ten at a time", &ours, beside, &floor, SHARE);
    if ours.median() < RATE {
        row.met = false;
        row.text.push_str(" less than 1,000,000/s: MISS |");
    }
    Ok(row)
}

async fn by_mailbox(messages: usize) -> BenchResult<f64> {
    let mailbox = MemoryMailbox::new("bench");
    let options = ReceiveOptions::new().max_messages(BATCH).visibility_timeout(LEASE);
    let began = Instant::now();
    for _ in 0..messages / BATCH {
        for _ in 0..BATCH {
            mailbox.send(vec![b'x'; 100], SendOptions::new()).await?;
        }
        let received = mailbox.receive(options).await?;
        for message in &received {
            message.ack().await?;
        }
    }
    Ok(rate(messages, began))
}

fn by_hand(messages: usize) -> f64 {
    let queue = PlainQueue::default();
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
