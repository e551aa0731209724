//! The time from a worker's death to the next call that its replacement answers, beside a fresh start.

use std::time::{Duration, Instant};

use snakepit::policy::Restarts;
use snakepit::{Snakepit, args};
use snakepit_bench::pool::python_pool;
use snakepit_bench::{BenchResult, SampleSet};

/// The time limit for a recovery, in multiples of a fresh start.
const TARGET: f64 = 1.5;

pub(crate) async fn run(rounds: usize) -> BenchResult<()> {
    let patient = Restarts::default().failures(1_000_000);
    let pit = Snakepit::builder().pool(python_pool().workers(1).restarts(patient)).start().await?;
    let served = pit.pools()[0].clone();
    let (mut fresh, mut recovered) = (SampleSet::default(), SampleSet::default());
    for _ in 0..rounds * 3 {
        served.scale(0);
        served.await_ready(Duration::from_secs(30)).await?;
        let began = Instant::now();
        served.scale(1);
        answered(&pit).await?;
        fresh.push_time(began.elapsed());
        // The worker serves for a while, so its death counts as an accident and not as a failed start.
        for _ in 0..50 {
            answered(&pit).await?;
        }
        let pid: i32 = pit.call("pid", ()).await?;
        let began = Instant::now();
        kill(pid)?;
        answered(&pit).await?;
        recovered.push_time(began.elapsed());
    }
    let ratio = recovered.median() / fresh.median();
    let verdict = if ratio <= TARGET { "as wanted" } else { "MISS" };
    println!("\n| recovery, 1 worker | median | p90 |\n|---|---|---|");
    for (name, samples) in
        [("a fresh start to its first answer", &fresh), ("a death to the next answer", &recovered)]
    {
        println!("| {name} | {:.1} ms | {:.1} ms |", samples.median() * 1e3, samples.quantile(0.9) * 1e3);
    }
    println!("\nA death costs {ratio:.2} fresh starts (at most {TARGET}: {verdict}).");
    pit.stop().await;
    Ok(())
}

/// Makes calls until the next worker answers. The pool may still give a call to the worker that was just killed.
async fn answered(pit: &Snakepit) -> BenchResult<()> {
    loop {
        match pit.call::<u32>("number", args! { value: 1 }).await {
            Ok(_) => return Ok(()),
            Err(snakepit::CallError::WorkerDied { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn kill(pid: i32) -> BenchResult<()> {
    let pid = rustix::process::Pid::from_raw(pid).ok_or("no pid")?;
    Ok(rustix::process::kill_process(pid, rustix::process::Signal::KILL)?)
}
