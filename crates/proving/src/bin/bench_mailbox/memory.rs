//! The memory backend.

use std::time::{Duration, Instant};

use snakepit::mailbox::{Mailbox, MemoryMailbox, Receipt, Receive, Send};
use snakepit_proving::bench::{Beside, Outcome, Report, Row, Samples, Target, Unit};
use tokio::runtime::{Builder, Runtime};

use crate::floor::Queue;

const BATCH: usize = 10;
const BODY: usize = 100;
const LEASE: Duration = Duration::from_mins(5);

pub(crate) fn measure(report: &mut Report, is_quick: bool) -> Outcome<()> {
    let (rounds, messages) = if is_quick { (3, 20_000) } else { (15, 1_000_000) };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (mut ours, mut floor) = (Samples::default(), Samples::default());
    // The first round of each warms up.
    for round in 0..=rounds {
        let (our_rate, floor_rate) = (cycle(&runtime, messages)?, floor_cycle(messages));
        if round > 0 {
            ours.push(our_rate);
            floor.push(floor_rate);
        }
    }
    let beside = |name: &str, side: Samples| Some(Beside { name: name.into(), side: side.into() });
    let least = "queue, lease heap and receipt map";
    let row = |target: Target, what: &str| Row {
        what: what.into(),
        unit: Unit::PerSecond,
        ours: ours.clone().into(),
        beside: beside(least, floor.clone()),
        target,
    };
    report.add(row(
        Target::AtLeast { full: 1_000_000.0, smoke: 10_000.0 },
        "memory: send + receive + ack by ten",
    ));
    report.add(row(Target::RatioAtLeast { full: 0.2, smoke: 0.02 }, "the same, beside the floor"));

    let wakes = if is_quick { 200 } else { 5000 };
    let (ours, floor) = (wake_ups(wakes)?, channel_wake_ups(wakes)?);
    report.add(Row {
        what: "memory: wake-up".into(),
        unit: Unit::Seconds,
        ours: ours.into(),
        beside: beside("tokio channel", floor),
        target: Target::None,
    });
    Ok(())
}

/// Messages per second.
fn rate(messages: usize, began: Instant) -> f64 {
    f64::from(u32::try_from(messages).unwrap_or(u32::MAX)) / began.elapsed().as_secs_f64()
}

fn cycle(runtime: &Runtime, messages: usize) -> Outcome<f64> {
    let mailbox = MemoryMailbox::new("bench");
    runtime.block_on(async {
        let began = Instant::now();
        let options = Receive::new().max_messages(BATCH).visibility_timeout(LEASE);
        for _ in 0..messages / BATCH {
            mailbox.send_all((0..BATCH).map(|_| (vec![7; BODY], Send::new())).collect()).await?;
            let received = mailbox.receive(options).await?;
            let receipts: Vec<Receipt> = received.into_iter().filter_map(|message| message.receipt).collect();
            if mailbox.ack_all(&receipts).await? != BATCH {
                return Err("not all were acknowledged".into());
            }
        }
        Ok(rate(messages, began))
    })
}

fn floor_cycle(messages: usize) -> f64 {
    let queue = Queue::default();
    let began = Instant::now();
    for _ in 0..messages / BATCH {
        queue.send((0..BATCH).map(|_| vec![7; BODY]).collect());
        let received = queue.receive(BATCH, LEASE);
        let receipts: Vec<u64> = received.iter().map(|(receipt, _)| *receipt).collect();
        assert_eq!(queue.ack(&receipts), BATCH);
        assert!(received.iter().all(|(_, body)| body.len() == BODY));
    }
    rate(messages, began)
}

/// Two threads that do nothing else.
fn pair() -> Outcome<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

fn nanos(since: Instant) -> [u8; 8] {
    (since.elapsed().as_nanos() as u64).to_le_bytes()
}

/// How long a message that says when it was sent has taken.
fn took(since: Instant, body: &[u8]) -> Outcome<Duration> {
    let sent = u64::from_le_bytes(body.try_into()?);
    Ok(since.elapsed().saturating_sub(Duration::from_nanos(sent)))
}

/// To another thread and back, one at a time; both ways are counted.
fn wake_ups(wakes: usize) -> Outcome<Samples> {
    let (there, back) = (MemoryMailbox::new("there"), MemoryMailbox::new("back"));
    let start = Instant::now();
    pair()?.block_on(async {
        let (inbox, outbox) = (there.clone(), back.clone());
        let echo = tokio::spawn(async move {
            while let Ok(messages) = inbox.receive(Receive::new().wait(Duration::from_secs(20))).await {
                for message in messages {
                    outbox.send(nanos(start).to_vec(), Send::new()).await.ok()?;
                    message.ack().await.ok()?;
                }
            }
            Some(())
        });
        let main = async {
            let mut times = Samples::default();
            for _ in 0..wakes {
                there.send(Vec::new(), Send::new()).await?;
                for message in back.receive(Receive::new().wait(Duration::from_secs(20))).await? {
                    times.push_time(took(start, &message.body)?);
                    message.ack().await?;
                }
            }
            Outcome::Ok(times)
        };
        let times = main.await?;
        there.close();
        echo.await?;
        Ok(times)
    })
}

fn channel_wake_ups(wakes: usize) -> Outcome<Samples> {
    let start = Instant::now();
    pair()?.block_on(async {
        let (there, mut inbox) = tokio::sync::mpsc::unbounded_channel::<[u8; 8]>();
        let (outbox, mut back) = tokio::sync::mpsc::unbounded_channel::<[u8; 8]>();
        let echo = tokio::spawn(async move {
            while inbox.recv().await.is_some() && outbox.send(nanos(start)).is_ok() {}
        });
        let mut times = Samples::default();
        for _ in 0..wakes {
            there.send([0; 8])?;
            times.push_time(took(start, &back.recv().await.ok_or("the channel is closed")?)?);
        }
        drop(there);
        echo.await?;
        Ok(times)
    })
}
