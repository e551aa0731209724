//! Benchmarks of an engine's start until the first answer, and of its stop until the last process has ended.
//!
//! `bench-lifecycle` prints a table in Markdown, `--write` also writes it to `docs/bench/lifecycle.md`, `--quick` takes
//! few rounds. Each round measures our number and the floor by turns.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

use snakepit::{Snakepit, args};
use snakepit_bench::pool::{interpreter, python_pool, worker_script};
use snakepit_bench::program::{fail, write_document};
use snakepit_bench::{BenchResult, SampleSet, SummaryRow, summary};

/// The time limit for the stop of an idle engine, in multiples of plain TERMs.
const STOP_TARGET: f64 = 2.0;
/// The time limit for the first answer, in multiples of a plain interpreter with the SDK.
const START_TARGET: f64 = 1.5;
const WORKERS: usize = 100;

/// Imports what a worker imports, reports that it is ready, and answers every byte.
const BY_HAND: &str = "\
import os, sys
sys.path[:0] = [sys.argv[1]]
import runpy, snakepit
runpy.run_path(sys.argv[2])
os.write(1, b'r')
while os.read(0, 1):
    os.write(1, b'a')
";

fn main() -> ExitCode {
    match tokio::runtime::Builder::new_multi_thread().enable_all().build().map(|it| it.block_on(run())) {
        Ok(Ok(met)) => ExitCode::from(u8::from(!met)),
        Ok(Err(error)) => fail("bench-lifecycle", &*error),
        Err(error) => fail("bench-lifecycle", &error),
    }
}

async fn run() -> BenchResult<bool> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = words.iter().find(|word| !["--quick", "--write"].contains(&word.as_str())) {
        return Err(format!("unknown option {unknown}; usage: bench-lifecycle [--quick] [--write]").into());
    }
    let rounds = if words.iter().any(|word| word == "--quick") { 2 } else { 15 };
    let rows = [stops(rounds).await?, starts(rounds * 3).await?];
    let table = summary::table(&rows);
    println!("{table}");
    if words.iter().any(|word| word == "--write") {
        write_document("lifecycle.md", &format!("{HEAD}\n{table}"))?;
    }
    Ok(rows.iter().all(|row| row.met))
}

const HEAD: &str = "\
# Lifecycle, measured

Written by `cargo run --release -p snakepit-bench --bin bench-lifecycle -- --write`; medians and 90th percentiles, ours and the
floor by turns. The floor of a stop is TERM, by hand, to as many interpreters with the same imports that wait for input, until
the last of them is reaped. The floor of a start is one such interpreter, until it has answered once.
";

/// Measures the stop of 100 idle workers until the last one has ended.
async fn stops(rounds: usize) -> BenchResult<SummaryRow> {
    let (mut ours, mut floor) = (SampleSet::default(), SampleSet::default());
    for _ in 0..rounds {
        let pit = Snakepit::builder().pool(python_pool().workers(WORKERS)).start().await?;
        let began = Instant::now();
        pit.stop().await;
        ours.push_time(began.elapsed());

        let mut children = (0..WORKERS).map(|_| by_hand()).collect::<BenchResult<Vec<_>>>()?;
        for child in &mut children {
            heard(child, b'r')?;
        }
        let began = Instant::now();
        for child in &children {
            terminate(child)?;
        }
        for child in &mut children {
            child.wait()?;
        }
        floor.push_time(began.elapsed());
    }
    let what = format!("stop of an idle engine with {WORKERS} workers");
    Ok(SummaryRow::times(&what, &ours, &floor, STOP_TARGET))
}

/// Measures the time until the first answer of one worker.
async fn starts(rounds: usize) -> BenchResult<SummaryRow> {
    let (mut ours, mut floor) = (SampleSet::default(), SampleSet::default());
    for _ in 0..rounds {
        let began = Instant::now();
        let pit = Snakepit::builder().pool(python_pool().workers(1)).start().await?;
        let _: u32 = pit.call("number", args! { value: 1 }).await?;
        ours.push_time(began.elapsed());
        pit.stop().await;

        let began = Instant::now();
        let mut child = by_hand()?;
        heard(&mut child, b'r')?;
        child.stdin.as_mut().ok_or("no input")?.write_all(b"?")?;
        heard(&mut child, b'a')?;
        floor.push_time(began.elapsed());
        drop(child.stdin.take());
        child.wait()?;
    }
    Ok(SummaryRow::times("start of an engine to the first answer of its worker", &ours, &floor, START_TARGET))
}

/// Starts an interpreter with the imports of a worker.
fn by_hand() -> BenchResult<Child> {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let child = Command::new(interpreter())
        .args(["-c", BY_HAND])
        .arg(sdk)
        .arg(worker_script())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    Ok(child)
}

fn heard(child: &mut Child, expected: u8) -> BenchResult<()> {
    let mut byte = [0];
    child.stdout.as_mut().ok_or("no output")?.read_exact(&mut byte)?;
    if byte[0] == expected { Ok(()) } else { Err("an interpreter says something else".into()) }
}

fn terminate(child: &Child) -> BenchResult<()> {
    let pid = rustix::process::Pid::from_child(child);
    Ok(rustix::process::kill_process(pid, rustix::process::Signal::TERM)?)
}
