//! Where adaptive concurrency helps: a limit that the pool finds itself beside fixed ones.

use std::time::{Duration, Instant};

use snakepit::{PoolOptions, Snakepit, Value, args};
use snakepit_bench::pool::python_pool;
use snakepit_bench::{BenchResult, SampleSet};

const MOST: usize = 16;
const CALLERS: usize = 32;

pub(crate) async fn run(rounds: usize) -> BenchResult<()> {
    println!(
        "\n| calls at a time, 1 worker, {CALLERS} callers | fixed 1 | fixed {MOST} | found out (1 to {MOST}) |"
    );
    println!("|---|---|---|---|");
    for (name, command) in [("calls that wait 10 ms", "waits"), ("calls that compute", "computes")] {
        let mut rates = Vec::new();
        let mut urgent = Vec::new();
        for pool in [
            python_pool().concurrency(1),
            python_pool().concurrency(MOST),
            python_pool().adaptive_concurrency(1..=MOST),
        ] {
            let (rate, wait, at_a_time) = measure(pool, command, rounds).await?;
            rates.push(format!("{rate:.0}/s with {at_a_time}"));
            urgent.push(format!("{:.1} ms", wait * 1e3));
        }
        println!("| {name}: calls per second | {} |", rates.join(" | "));
        println!("| {name}: an urgent call among them, p50 | {} |", urgent.join(" | "));
    }
    Ok(())
}

/// Returns the calls per second, the median time of a call of high priority, and the final concurrency of the worker.
async fn measure(pool: PoolOptions, command: &'static str, rounds: usize) -> BenchResult<(f64, f64, usize)> {
    let pit = Snakepit::builder().pool(pool.workers(1)).start().await?;
    let mut load = tokio::task::JoinSet::new();
    let served = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    for _ in 0..CALLERS {
        let (pit, served) = (pit.clone(), std::sync::Arc::clone(&served));
        load.spawn(async move {
            while pit.call::<Value>(command, args! {}).await.is_ok() {
                served.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        });
    }
    // The pool needs time to find its limit.
    tokio::time::sleep(Duration::from_secs(1) * rounds.min(10) as u32).await;
    let before = served.load(std::sync::atomic::Ordering::Relaxed);
    let (began, mut waits) = (Instant::now(), SampleSet::default());
    for _ in 0..20 * rounds {
        let call = Instant::now();
        let _: Value = pit.call(command, args! {}).priority(100).await?;
        waits.push_time(call.elapsed());
    }
    let rate =
        f64::from(served.load(std::sync::atomic::Ordering::Relaxed) - before) / began.elapsed().as_secs_f64();
    let at_a_time = pit.pools()[0].workers().first().map_or(0, |worker| worker.concurrency);
    load.abort_all();
    pit.stop_within(Duration::from_secs(5)).await;
    Ok((rate, waits.median(), at_a_time))
}
