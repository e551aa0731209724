//! How the rate of calls grows with the workers.
//!
//! `bench-scale` prints one row for 1, 2, 4, … workers, up to the number of cores: single calls, their cost for the
//! host, the same workers as pools of one, 1 ms of work, 1 MiB arguments, and `map` beside `multiprocessing.Pool.map`.
//! The rows take turns, so that all of them meet the same noise. The binary needs nothing beside it but a python3
//! (`SNAKEPIT_TEST_PYTHON` names another one).

#![expect(clippy::cast_precision_loss, reason = "rates of calls")]

mod arguments;
mod measure;

use std::process::{Command, ExitCode};

use snakepit_bench::pool::interpreter;
use snakepit_bench::program::fail;
use snakepit_bench::{BenchResult, SampleSet, machine};

use arguments::Arguments;
use measure::{Bench, Division, Workload};

/// The calls of one `map`.
const MAPPED: u64 = 100_000;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail("bench-scale", &*error),
    }
}

fn run() -> BenchResult<()> {
    let arguments = Arguments::read(std::env::args().skip(1))?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(arguments.threads).enable_all().build()?;
    let mut rows: Vec<Row> = arguments.workers.iter().map(|workers| Row::new(*workers)).collect();
    for round in 1..=arguments.rounds {
        for row in &mut rows {
            eprintln!("round {round}: {} workers", row.workers);
            runtime.block_on(row.measure(&arguments))?;
        }
    }
    println!("Machine: {}, {} threads\n", machine::describe(), arguments.threads);
    print(&arguments, &rows);
    Ok(())
}

/// What was measured with one number of workers.
struct Row {
    workers: usize,
    echo: SampleSet,
    cpu: SampleSet,
    ones: SampleSet,
    work: SampleSet,
    large: SampleSet,
    map: SampleSet,
    peer: SampleSet,
}

impl Row {
    fn new(workers: usize) -> Self {
        let none = SampleSet::default;
        Self {
            workers,
            echo: none(),
            cpu: none(),
            ones: none(),
            work: none(),
            large: none(),
            map: none(),
            peer: none(),
        }
    }

    async fn measure(&mut self, arguments: &Arguments) -> BenchResult<()> {
        let home = tempfile::tempdir()?;
        let (in_flight, lasts) = (arguments.in_flight, arguments.lasts);
        let bench = Bench::start(home.path(), self.workers, Division::OnePool).await?;
        // The codec is imported and the estimates are learned before anything counts.
        bench.run(Workload::Echo, in_flight, lasts / 4).await?;
        if arguments.measures("echo") {
            let echo = bench.run(Workload::Echo, in_flight, lasts).await?;
            self.echo.push(echo.rate);
            self.cpu.push(echo.cpu * 1e6);
        }
        if arguments.measures("work") {
            self.work.push(bench.run(Workload::Work, 4, lasts).await?.rate);
        }
        if arguments.measures("large") {
            let gigabytes = (1 << 20) as f64 / 1e9;
            self.large.push(bench.run(Workload::Large, 2, lasts).await?.rate * gigabytes);
        }
        if arguments.measures("map") {
            self.map.push(bench.map(MAPPED).await?);
            self.peer.push(pool_map(home.path(), self.workers)?);
        }
        bench.stop().await;
        if arguments.measures("ones") {
            let bench = Bench::start(home.path(), self.workers, Division::PoolsOfOne).await?;
            bench.run(Workload::Echo, in_flight, lasts / 4).await?;
            self.ones.push(bench.run(Workload::Echo, in_flight, lasts).await?.rate);
            bench.stop().await;
        }
        Ok(())
    }
}

/// Returns the calls per second of `multiprocessing.Pool.map` in chunks of 100.
fn pool_map(home: &std::path::Path, workers: usize) -> BenchResult<f64> {
    let script = home.join("peer.py");
    std::fs::write(&script, include_str!("peer.py"))?;
    let done =
        Command::new(interpreter()).arg(script).args([workers.to_string(), MAPPED.to_string()]).output()?;
    if !done.status.success() {
        return Err(format!("peer.py failed: {}", String::from_utf8_lossy(&done.stderr)).into());
    }
    Ok(String::from_utf8(done.stdout)?.trim().parse()?)
}

fn print(arguments: &Arguments, rows: &[Row]) {
    println!(
        "| workers | echo of 64 B | × one worker | host CPU per call | as pools of one | 1 ms of work (of ideal) | \
         1 MiB in | map | mp.Pool.map | ours / theirs |\n|{}",
        "---|".repeat(10)
    );
    let cell = |samples: &SampleSet, show: &dyn Fn(f64) -> String| {
        if samples.is_empty() { "–".to_owned() } else { show(samples.median()) }
    };
    let thousands = |rate: f64| format!("{:.0} k/s", rate / 1e3);
    for row in rows {
        let base = rows[0].echo.clone();
        let ideal = row.workers as f64 * 1000.0;
        let ratio = if row.map.is_empty() { None } else { Some(row.map.median() / row.peer.median()) };
        println!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            row.workers,
            cell(&row.echo, &thousands),
            cell(&row.echo, &|rate| format!("{:.2}", rate / base.median())),
            cell(&row.cpu, &|micros| format!("{micros:.1} µs")),
            cell(&row.ones, &thousands),
            cell(&row.work, &|rate| format!("{rate:.0}/s ({:.2})", rate / ideal)),
            cell(&row.large, &|rate| format!("{rate:.1} GB/s")),
            cell(&row.map, &thousands),
            cell(&row.peer, &thousands),
            ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}")),
        );
    }
    println!(
        "\nMedians of {} rounds; {} calls in flight for each worker (4 with work, 2 of 1 MiB).",
        arguments.rounds, arguments.in_flight
    );
}
