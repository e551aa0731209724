//! How long loops take to shut down: a hundred idle loops, and one with a thousand messages in flight.

use std::sync::Arc;
use std::time::{Duration, Instant};

use snakepit::Snakepit;
use snakepit::loops::{HandlerFailure, LoopGroup, MainLoop, PoolLoop, PoolLoopOptions, RunOptions, Runnable};
use snakepit::mailbox::{ReceiveOptions, SendOptions, TypedMessage};
use snakepit_bench::time::shared_seconds;
use snakepit_bench::{BenchResult, SampleSet, SummaryRow};
use tokio::time::timeout;

use crate::LoopWork;
use crate::mailboxes::{Backend, LoopPool, MailboxPair, WORKERS};

const LOOPS: usize = 100;
/// Targets, in seconds.
const IDLE: f64 = 0.020;
const DRAIN: f64 = 0.050;
const PATIENCE: Duration = Duration::from_secs(20);
/// The time that each message of the drain takes. All of them end together, which is the hardest case.
const NAP: f64 = 1.0;

pub(crate) fn measure(work: LoopWork) -> BenchResult<Vec<SummaryRow>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut idle = [Backend::Memory, Backend::Sqlite].map(|backend| (backend, SampleSet::default()));
    let mut drains = idle.clone();
    for _ in 0..work.rounds {
        for (backend, samples) in &mut idle {
            samples.push_time(runtime.block_on(end_of_idle(*backend))?);
        }
    }
    let pool_under_loop = runtime.block_on(LoopPool::start("sleeper.py", work.drained.div_ceil(WORKERS)))?;
    for _ in 0..work.rounds {
        for (backend, samples) in &mut drains {
            samples.push(runtime.block_on(drain(&pool_under_loop.pit, *backend, work.drained))?);
        }
    }
    runtime.block_on(pool_under_loop.pit.stop());
    let idle = idle.iter().map(|(backend, samples)| {
        SummaryRow::time(&format!("{}: shutdown of {LOOPS} idle loops", backend.name()), samples, IDLE)
    });
    let drains = drains.iter().map(|(backend, samples)| {
        let what = format!(
            "{}: drain of {} messages in flight, replies and all, after the slowest is done",
            backend.name(),
            work.drained
        );
        SummaryRow::time(&what, samples, DRAIN)
    });
    Ok(idle.chain(drains).collect())
}

async fn end_of_idle(backend: Backend) -> BenchResult<Duration> {
    let mailboxes = MailboxPair::new(backend)?;
    let mut group = LoopGroup::new("idle");
    for number in 0..LOOPS {
        let handler = |_: TypedMessage<i64>| async { Ok::<(), HandlerFailure>(()) };
        let idle = MainLoop::new(format!("idle-{number}"), Arc::clone(&mailboxes.requests), handler);
        group = group.with(Arc::new(idle));
    }
    let group = Arc::new(group);
    let run = {
        let group = Arc::clone(&group);
        tokio::spawn(async move { group.run_without_signals(RunOptions::new()).await })
    };
    for one in group.loops() {
        timeout(PATIENCE, one.control().until_running()).await?;
    }
    // The loops are about to wait in `receive`, but no event reports that from outside.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let began = Instant::now();
    if !group.end().await {
        return Err("the loops did not end in time".into());
    }
    run.await??;
    Ok(began.elapsed())
}

/// Returns the seconds from the end of the slowest message until the loop has ended, with all replies sent.
async fn drain(pit: &Snakepit, backend: Backend, messages: usize) -> BenchResult<f64> {
    let mailboxes = MailboxPair::new(backend)?;
    let body = format!(r#"{{"seconds": {NAP}}}"#).into_bytes();
    mailboxes.requests.send_all(vec![(body, SendOptions::new().reply_to("replies")); messages]).await?;
    let options = PoolLoopOptions::new("nap").concurrency(messages);
    let naps = Arc::new(PoolLoop::new(pit, Arc::clone(&mailboxes.requests), &options)?);
    let run = {
        let naps = Arc::clone(&naps);
        tokio::spawn(async move { naps.run(RunOptions::new()).await })
    };
    let deadline = Instant::now() + PATIENCE;
    while naps.control().in_flight() < messages {
        if Instant::now() > deadline {
            return Err("not all messages are in flight".into());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    if !naps.shutdown(PATIENCE).await {
        return Err("the loop did not end in time".into());
    }
    let ended = shared_seconds();
    run.await??;
    let mut slowest: f64 = 0.0;
    let mut replies = 0;
    while replies < messages {
        let receive = ReceiveOptions::new().max_messages(snakepit::mailbox::MAX_MESSAGES);
        let some = mailboxes.replies.receive(receive).await?;
        if some.is_empty() {
            return Err(format!("{replies} of {messages} were answered").into());
        }
        replies += some.len();
        for message in some {
            slowest = slowest.max(message.read::<f64>()?);
        }
    }
    Ok(ended - slowest)
}
