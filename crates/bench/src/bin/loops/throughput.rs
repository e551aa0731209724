//! Messages through a loop from a mailbox to a pool, beside the mailbox alone, the pool alone, and the peer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use snakepit::loops::{PoolLoop, PoolLoopOptions, RunOptions, Runnable};
use snakepit::mailbox::{MAX_MESSAGES, Mailbox, Receipt, ReceiveOptions};
use snakepit::{Snakepit, Value, args};
use snakepit_bench::time::rate;
use snakepit_bench::{BenchResult, SampleSet, SummaryRow, TaskResult};
use tokio::task::JoinSet;

use crate::LoopWork;
use crate::mailboxes::{Backend, LoopPool, MailboxPair, WINDOW, WORKERS};
use crate::peer::PeerLoop;

/// The minimum share of the slower rate of mailbox and pool.
const SHARE: f64 = 0.6;
/// The minimum share of the tuned rate that a loop reaches with its defaults.
const OF_TUNED: f64 = 0.5;
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);
/// The number of such waits before the benchmark gives up.
const TIMES: usize = 15;

/// The rates of one kind of mailbox.
struct BackendRates {
    backend: Backend,
    throughput: SampleSet,
    /// The rate with only the command set.
    by_default: SampleSet,
    mailbox: SampleSet,
}

pub(crate) fn measure(work: LoopWork) -> BenchResult<Vec<SummaryRow>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let pool_under_loop = runtime.block_on(LoopPool::start("worker.py", 1))?;
    let mut pool = SampleSet::default();
    let mut kinds = [Backend::Memory, Backend::Sqlite].map(|backend| BackendRates {
        backend,
        throughput: SampleSet::default(),
        by_default: SampleSet::default(),
        mailbox: SampleSet::default(),
    });
    let mut peers = PeerLoop::all();
    for _ in 0..work.rounds {
        pool.push(runtime.block_on(pool_alone(&pool_under_loop.pit, work.messages))?);
        for rates in &mut kinds {
            rates.mailbox.push(runtime.block_on(mailbox_alone(rates.backend, work.messages))?);
            rates.throughput.push(runtime.block_on(messages_per_second(
                &pool_under_loop.pit,
                rates.backend,
                work.messages,
                &tuned(),
            ))?);
            let usual = PoolLoopOptions::new("add");
            rates.by_default.push(runtime.block_on(messages_per_second(
                &pool_under_loop.pit,
                rates.backend,
                work.messages,
                &usual,
            ))?);
        }
        for peer in &mut peers {
            peer.turn(work.messages / 100)?;
        }
    }
    runtime.block_on(pool_under_loop.pit.stop());
    let mut lines = Vec::new();
    for rates in &kinds {
        let what = format!("{}: messages through a loop", rates.backend.name());
        let (name, floor) = if rates.mailbox.median() < pool.median() {
            ("the mailbox alone, which is slower than the pool", &rates.mailbox)
        } else {
            ("the pool alone, which is slower than the mailbox", &pool)
        };
        lines.push(SummaryRow::rates(&what, &rates.throughput, name, floor, SHARE));
        let usual = format!("{}: messages through a loop with its defaults", rates.backend.name());
        lines.push(SummaryRow::rates(
            &usual,
            &rates.by_default,
            "the tuned loop above",
            &rates.throughput,
            OF_TUNED,
        ));
        for peer in peers.iter().filter(|peer| peer.backend == rates.backend) {
            lines.push(match (&peer.absent, peer.times) {
                (Some(why), _) => {
                    SummaryRow::alone(&what, &rates.throughput, &format!("{}: {why}", peer.name))
                }
                (None, Some(times)) => {
                    SummaryRow::rates(&what, &rates.throughput, peer.name, &peer.rates, times)
                }
                (None, None) => SummaryRow::reported(&what, &rates.throughput, peer.name, &peer.rates),
            });
        }
    }
    Ok(lines)
}

/// Returns options with enough concurrency to receive some messages and acknowledge others while the pool works.
fn tuned() -> PoolLoopOptions {
    let calls = WINDOW * WORKERS;
    PoolLoopOptions::new("add").concurrency(3 * calls).prefetch(calls)
}

async fn messages_per_second(
    pit: &Snakepit,
    backend: Backend,
    messages: usize,
    options: &PoolLoopOptions,
) -> BenchResult<f64> {
    let mailboxes = MailboxPair::new(backend)?;
    mailboxes.fill(messages).await?;
    let adding = Arc::new(PoolLoop::new(pit, Arc::clone(&mailboxes.requests), options)?);
    let began = Instant::now();
    let run = {
        let adding = Arc::clone(&adding);
        tokio::spawn(async move { adding.run(RunOptions::new()).await })
    };
    // When the last message is answered, all others have been given to the pool, and are about to be answered.
    let mut times = 0;
    while mailboxes.replies.receive(ReceiveOptions::new().wait(PATIENCE)).await?.is_empty() {
        times += 1;
        if times == TIMES {
            return Err("the last message was not answered".into());
        }
    }
    // A shutdown would give back the messages that wait for a worker.
    let all = async {
        while adding.control().handled() < messages as u64 {
            tokio::task::yield_now().await;
        }
    };
    let _ = tokio::time::timeout(PATIENCE, all).await;
    let per_second = rate(messages, began);
    adding.shutdown(PATIENCE).await;
    run.await??;
    let handled = adding.control().handled();
    let left = mailboxes.requests.count().await?;
    if handled != messages as u64 || left != snakepit::mailbox::MessageCounts::default() {
        return Err(format!("{handled} of {messages} were handled, and {left:?} is left").into());
    }
    Ok(per_second)
}

async fn pool_alone(pit: &Snakepit, messages: usize) -> BenchResult<f64> {
    let callers = WINDOW * WORKERS;
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let pit = pit.clone();
        tasks.spawn(async move {
            for _ in 0..messages / callers {
                let _: Value = pit.call("add", args! { a: 1, b: 2 }).await?;
            }
            TaskResult::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done?.map_err(|error| error.to_string())?;
    }
    Ok(rate(messages / callers * callers, began))
}

async fn mailbox_alone(backend: Backend, messages: usize) -> BenchResult<f64> {
    let mailboxes = MailboxPair::new(backend)?;
    mailboxes.fill(messages).await?;
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..backend.receivers() {
        let mailbox = Arc::clone(&mailboxes.requests);
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
    let options = ReceiveOptions::new().max_messages(MAX_MESSAGES).visibility_timeout(Duration::from_mins(5));
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
