//! Messages through a loop from a mailbox to a pool, beside the mailbox alone, the pool alone, and the peer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use snakepit::loops::{PoolLoop, PoolLoopOptions, RunOptions, Runnable};
use snakepit::mailbox::{MAX_MESSAGES, Mailbox, Receipt, Receive};
use snakepit::{Snakepit, Value, args};
use snakepit_proving::bench::{Line, Outcome, Samples};
use tokio::task::JoinSet;

use crate::Effort;
use crate::peer::Peer;
use crate::post::{Crew, Kind, Post, WINDOW, WORKERS};

/// The least share of the slower of mailbox and pool.
const SHARE: f64 = 0.6;
/// The least share of the tuned rate that a loop has without a word.
const OF_TUNED: f64 = 0.5;
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often it is waited so long.
const TIMES: usize = 15;

/// What can go wrong in a task.
type Sent<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The rates of one kind of mailbox.
struct Rates {
    kind: Kind,
    through: Samples,
    /// With nothing set but the command.
    by_default: Samples,
    mailbox: Samples,
}

pub(crate) fn measure(effort: Effort) -> Outcome<Vec<Line>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let crew = runtime.block_on(Crew::start("worker.py", 1))?;
    let mut pool = Samples::default();
    let mut kinds = [Kind::Memory, Kind::Sqlite].map(|kind| Rates {
        kind,
        through: Samples::default(),
        by_default: Samples::default(),
        mailbox: Samples::default(),
    });
    let mut peers = Peer::all();
    for _ in 0..effort.rounds {
        pool.push(runtime.block_on(pool_alone(&crew.pit, effort.messages))?);
        for rates in &mut kinds {
            rates.mailbox.push(runtime.block_on(mailbox_alone(rates.kind, effort.messages))?);
            rates.through.push(runtime.block_on(through(
                &crew.pit,
                rates.kind,
                effort.messages,
                &tuned(),
            ))?);
            let usual = PoolLoopOptions::new("add");
            rates.by_default.push(runtime.block_on(through(
                &crew.pit,
                rates.kind,
                effort.messages,
                &usual,
            ))?);
        }
        for peer in &mut peers {
            peer.turn(effort.messages / 100)?;
        }
    }
    runtime.block_on(crew.pit.stop());
    let mut lines = Vec::new();
    for rates in &kinds {
        let what = format!("{}: messages through a loop", rates.kind.name());
        let (name, floor) = if rates.mailbox.median() < pool.median() {
            ("the mailbox alone, which is slower than the pool", &rates.mailbox)
        } else {
            ("the pool alone, which is slower than the mailbox", &pool)
        };
        lines.push(Line::rates(&what, &rates.through, name, floor, SHARE));
        let usual = format!("{}: messages through a loop with its defaults", rates.kind.name());
        lines.push(Line::rates(&usual, &rates.by_default, "the tuned loop above", &rates.through, OF_TUNED));
        for peer in peers.iter().filter(|peer| peer.kind == rates.kind) {
            lines.push(match (&peer.absent, peer.times) {
                (Some(why), _) => Line::alone(&what, &rates.through, &format!("{}: {why}", peer.name)),
                (None, Some(times)) => Line::rates(&what, &rates.through, peer.name, &peer.rates, times),
                (None, None) => Line::reported(&what, &rates.through, peer.name, &peer.rates),
            });
        }
    }
    Ok(lines)
}

fn rate(messages: usize, began: Instant) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a count of messages")]
    let messages = messages as f64;
    messages / began.elapsed().as_secs_f64()
}

/// While some are called, others are received, and others acknowledged.
fn tuned() -> PoolLoopOptions {
    let calls = WINDOW * WORKERS;
    PoolLoopOptions::new("add").concurrency(3 * calls).prefetch(calls)
}

async fn through(pit: &Snakepit, kind: Kind, messages: usize, options: &PoolLoopOptions) -> Outcome<f64> {
    let post = Post::new(kind)?;
    post.fill(messages).await?;
    let adding = Arc::new(PoolLoop::new(pit, Arc::clone(&post.requests), options)?);
    let began = Instant::now();
    let run = {
        let adding = Arc::clone(&adding);
        tokio::spawn(async move { adding.run(RunOptions::new()).await })
    };
    // The answer to the last one; then all others have been begun, and a shutdown finishes them.
    let mut times = 0;
    while post.replies.receive(Receive::new().wait(PATIENCE)).await?.is_empty() {
        times += 1;
        if times == TIMES {
            return Err("the last message was not answered".into());
        }
    }
    adding.shutdown(PATIENCE).await;
    run.await??;
    let rate = rate(messages, began);
    let handled = adding.control().handled();
    let left = post.requests.count().await?;
    if handled != messages as u64 || left != snakepit::mailbox::Count::default() {
        return Err(format!("{handled} of {messages} were handled, and {left:?} is left").into());
    }
    Ok(rate)
}

async fn pool_alone(pit: &Snakepit, messages: usize) -> Outcome<f64> {
    let callers = WINDOW * WORKERS;
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let pit = pit.clone();
        tasks.spawn(async move {
            for _ in 0..messages / callers {
                let _: Value = pit.call("add", args! { a: 1, b: 2 }).await?;
            }
            Sent::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done?.map_err(|error| error.to_string())?;
    }
    Ok(rate(messages / callers * callers, began))
}

async fn mailbox_alone(kind: Kind, messages: usize) -> Outcome<f64> {
    let post = Post::new(kind)?;
    post.fill(messages).await?;
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..kind.receivers() {
        let mailbox = Arc::clone(&post.requests);
        tasks.spawn(async move { receive_all(&*mailbox).await.map_err(|error| error.to_string()) });
    }
    let mut received = 0;
    while let Some(done) = tasks.join_next().await {
        received += done??;
    }
    if received != messages {
        return Err(format!("{received} of {messages} came out of the mailbox").into());
    }
    Ok(rate(messages, began))
}

async fn receive_all(mailbox: &dyn Mailbox) -> Result<usize, snakepit::mailbox::MailboxError> {
    let options = Receive::new().max_messages(MAX_MESSAGES).visibility_timeout(Duration::from_mins(5));
    let mut acked = 0;
    loop {
        let received = mailbox.receive(options).await?;
        if received.is_empty() {
            return Ok(acked);
        }
        let receipts: Vec<Receipt> = received.into_iter().filter_map(|message| message.receipt).collect();
        acked += mailbox.ack_all(&receipts).await?;
    }
}
