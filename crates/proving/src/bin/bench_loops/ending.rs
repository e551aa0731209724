//! How long loops take to end: a hundred that have nothing to do, and one with a thousand messages in flight.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use snakepit::Snakepit;
use snakepit::loops::{Failure, LoopGroup, MainLoop, PoolLoop, PoolLoopOptions, RunOptions, Runnable};
use snakepit::mailbox::{Receive, Send, TypedMessage};
use snakepit_proving::bench::{Line, Outcome, Samples};
use tokio::time::timeout;

use crate::Effort;
use crate::post::{Crew, Kind, Post, WORKERS};

const LOOPS: usize = 100;
/// What is wanted, in seconds.
const IDLE: f64 = 0.020;
const DRAIN: f64 = 0.050;
const PATIENCE: Duration = Duration::from_secs(20);
/// How long each message of the drain takes: all of them end together, which is the hardest.
const NAP: f64 = 1.0;

pub(crate) fn measure(effort: Effort) -> Outcome<Vec<Line>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut idle = [Kind::Memory, Kind::Sqlite].map(|kind| (kind, Samples::default()));
    let mut drains = idle.clone();
    for _ in 0..effort.rounds {
        for (kind, samples) in &mut idle {
            samples.push_time(runtime.block_on(end_of_idle(*kind))?);
        }
    }
    let crew = runtime.block_on(Crew::start("sleeper.py", effort.drained.div_ceil(WORKERS)))?;
    for _ in 0..effort.rounds {
        for (kind, samples) in &mut drains {
            samples.push(runtime.block_on(drain(&crew.pit, *kind, effort.drained))?);
        }
    }
    runtime.block_on(crew.pit.stop());
    let idle = idle.iter().map(|(kind, samples)| {
        Line::time(&format!("{}: shutdown of {LOOPS} idle loops", kind.name()), samples, IDLE)
    });
    let drains = drains.iter().map(|(kind, samples)| {
        let what = format!(
            "{}: drain of {} messages in flight, replies and all, after the slowest is done",
            kind.name(),
            effort.drained
        );
        Line::time(&what, samples, DRAIN)
    });
    Ok(idle.chain(drains).collect())
}

async fn end_of_idle(kind: Kind) -> Outcome<Duration> {
    let post = Post::new(kind)?;
    let mut group = LoopGroup::new("idle");
    for number in 0..LOOPS {
        let handler = |_: TypedMessage<i64>| async { Ok::<(), Failure>(()) };
        let idle = MainLoop::new(format!("idle-{number}"), Arc::clone(&post.requests), handler);
        group = group.with(Arc::new(idle));
    }
    let group = Arc::new(group);
    let run = {
        let group = Arc::clone(&group);
        tokio::spawn(async move { group.run_without_signals(RunOptions::new()).await })
    };
    for one in group.loops() {
        timeout(PATIENCE, one.control().until_running(true)).await?;
    }
    // They are about to wait in their receives: nothing tells so from outside.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let began = Instant::now();
    if !group.end().await {
        return Err("the loops did not end in time".into());
    }
    run.await??;
    Ok(began.elapsed())
}

/// Seconds of a clock that all processes share.
fn now() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    #[expect(clippy::cast_precision_loss, reason = "microseconds are enough")]
    let seconds = time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9;
    seconds
}

/// How long after the slowest message is done the loop has ended, all replies sent.
async fn drain(pit: &Snakepit, kind: Kind, messages: usize) -> Outcome<f64> {
    let post = Post::new(kind)?;
    let body = format!(r#"{{"seconds": {NAP}}}"#).into_bytes();
    post.requests.send_all(vec![(body, Send::new().reply_to("replies")); messages]).await?;
    let options = PoolLoopOptions::new("nap").concurrency(messages);
    let naps = Arc::new(PoolLoop::new(pit, Arc::clone(&post.requests), &options)?);
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
    let ended = now();
    run.await??;
    let mut slowest: f64 = 0.0;
    let mut replies = 0;
    while replies < messages {
        let receive = Receive::new().max_messages(snakepit::mailbox::MAX_MESSAGES);
        let some = post.replies.receive(receive).await?;
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
