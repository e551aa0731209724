//! Batches beside single calls, on one worker, by turns.

use std::time::{Duration, Instant};

use snakepit::value::Blob;
use snakepit::{Snakepit, args};
use snakepit_proving::bench::{Outcome, Samples};

use crate::pool;

/// How many bytes a call carries there and back.
const BYTES: usize = 64;
const CALLERS: [usize; 4] = [1, 16, 64, 256];
/// What a batch should bring at the least, with enough callers.
const TARGET: f64 = 3.0;

pub(crate) async fn run(rounds: usize) -> Outcome<()> {
    let pit = Snakepit::builder().pool(pool().workers(1)).start().await?;
    println!(
        "| {BYTES} B, 1 worker, batch of 32, window of 2 ms | single | batched | ratio | p50 single | p50 batched |"
    );
    println!("|---|---|---|---|---|---|");
    for (name, single, batched) in [
        ("a trivial echo", "echo", "echo_batch"),
        ("100 µs for each run of the function", "model", "model_batch"),
    ] {
        for callers in CALLERS {
            let mut rates = [Samples::default(), Samples::default()];
            let mut waits = [Samples::default(), Samples::default()];
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

/// Calls per second, and the median time of a call.
#[expect(clippy::cast_precision_loss, reason = "statistics over small counts")]
async fn measure(pit: &Snakepit, command: &'static str, callers: usize) -> Outcome<(f64, f64)> {
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
    let mut sample = Samples::default();
    for caller in callers {
        let times = caller.await?.map_err(|error| error.to_string())?;
        for time in times {
            sample.push_time(time);
        }
    }
    Ok((sample.len() as f64 / began.elapsed().as_secs_f64(), sample.median()))
}
