//! Batches beside single calls, on one worker and by turns.

use std::time::{Duration, Instant};

use snakepit::value::Blob;
use snakepit::{Snakepit, args};
use snakepit_bench::pool::python_pool;
use snakepit_bench::{BenchResult, SampleSet};

/// The bytes that a call carries in each direction.
const BYTES: usize = 64;
const CALLERS: [usize; 4] = [1, 16, 64, 256];
/// How many times faster batches should be with enough callers.
const TARGET: f64 = 3.0;

pub(crate) async fn run(rounds: usize) -> BenchResult<()> {
    let pit = Snakepit::builder().pool(python_pool().workers(1)).start().await?;
    println!(
        "| {BYTES} B, 1 worker, batch of 32, window of 2 ms | single | batched | ratio | p50 single | p50 batched |"
    );
    println!("|---|---|---|---|---|---|");
    for (name, single, batched) in [
        ("a trivial echo", "echo", "echo_batch"),
        ("100 µs for each run of the function", "model", "model_batch"),
    ] {
        for callers in CALLERS {
            let mut rates = [SampleSet::default(), SampleSet::default()];
            let mut waits = [SampleSet::default(), SampleSet::default()];
            for _ in 0..rounds {
                for (at, command) in [single, batched].into_iter().enumerate() {
                    let (rate, p50) = measure(&pit, command, callers).await?;
                    rates[at].push(rate);
                    waits[at].push(p50);
                }
            }
            let ratio = rates[1].median() / rates[0].median();
            let verdict = if ratio >= TARGET { ", as wanted" } else { "" };
            println!(
                "| {name}, {callers} at a time | {:.0}/s | {:.0}/s | {ratio:.2}×{verdict} | {:.0} µs | {:.0} µs |",
                rates[0].median(),
                rates[1].median(),
                waits[0].median() * 1e6,
                waits[1].median() * 1e6,
            );
        }
    }
    pit.stop().await;
    Ok(())
}

/// Returns the calls per second and the median time of a call.
#[expect(clippy::cast_precision_loss, reason = "statistics over small counts")]
async fn measure(pit: &Snakepit, command: &'static str, callers: usize) -> BenchResult<(f64, f64)> {
    const TIME: Duration = Duration::from_millis(150);
    let began = Instant::now();
    let callers: Vec<_> = (0..callers)
        .map(|_| {
            let pit = pit.clone();
            tokio::spawn(async move {
                let data = Blob::from(vec![7_u8; BYTES]);
                let mut times = Vec::new();
                while began.elapsed() < TIME {
                    let call = Instant::now();
                    let echoed: Blob = pit.call(command, args! { data: data }).await?;
                    if echoed.len() != BYTES {
                        return Err("an echo has another length".into());
                    }
                    times.push(call.elapsed());
                }
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(times)
            })
        })
        .collect();
    let mut sample = SampleSet::default();
    for caller in callers {
        let times = caller.await?.map_err(|error| error.to_string())?;
        for time in times {
            sample.push_time(time);
        }
    }
    Ok((sample.len() as f64 / began.elapsed().as_secs_f64(), sample.median()))
}
