//! Benchmarks of the two ends of an engine's life: from its start to the first answer, and from the stop to the last
//! process gone.
//!
//! `bench-lifecycle` prints a table in Markdown, `--write` also writes it to `docs/bench/lifecycle.md`, `--quick` takes few
//! rounds. Each round measures ours and the floor by turns.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

use snakepit::{Pool, PythonWorker, Snakepit, args};
use snakepit_proving::bench::{Outcome, Samples, machine};

/// What the issue of an idle engine's end may cost, in plain TERMs.
const STOP_TARGET: f64 = 2.0;
/// What a first answer may cost, in plain interpreters with the SDK.
const START_TARGET: f64 = 1.5;
const CROWD: usize = 100;

/// Imports what a worker imports, says that it is there, and answers whatever it is told.
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
        Ok(Err(error)) => fail(&*error),
        Err(error) => fail(&error),
    }
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("bench-lifecycle: {error}");
    ExitCode::from(2)
}

async fn run() -> Outcome<bool> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = words.iter().find(|word| !["--quick", "--write"].contains(&word.as_str())) {
        return Err(format!("unknown option {unknown}; usage: bench-lifecycle [--quick] [--write]").into());
    }
    let rounds = if words.iter().any(|word| word == "--quick") { 2 } else { 15 };
    let (stop, stop_met) = stops(rounds).await?;
    let (start, start_met) = starts(rounds * 3).await?;
    let table = format!(
        "| what | ours | floor | ratio | wanted |\n|---|---|---|---|---|\n{stop}\n{start}\n\nMachine: {}\n",
        machine::describe()
    );
    println!("{table}");
    if words.iter().any(|word| word == "--write") {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/bench/lifecycle.md");
        std::fs::write(page, format!("{HEAD}\n{table}"))?;
    }
    Ok(stop_met && start_met)
}

const HEAD: &str = "\
# Lifecycle, measured

Written by `cargo run --release -p snakepit-proving --bin bench-lifecycle -- --write`; medians and 90th percentiles, ours and the
floor by turns. The floor of a stop is TERM, by hand, to as many interpreters with the same imports that wait for input, until
the last of them is reaped. The floor of a start is one such interpreter, until it has answered once.
";

/// 100 idle workers, until the last one is gone.
async fn stops(rounds: usize) -> Outcome<(String, bool)> {
    let (mut ours, mut floor) = (Samples::default(), Samples::default());
    for _ in 0..rounds {
        let pit = Snakepit::builder().pool(pool().workers(CROWD)).start().await?;
        let began = Instant::now();
        pit.stop().await;
        ours.push_time(began.elapsed());

        let mut children = (0..CROWD).map(|_| by_hand()).collect::<Outcome<Vec<_>>>()?;
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
    Ok(row(&format!("stop of an idle engine with {CROWD} workers"), &ours, &floor, STOP_TARGET))
}

/// From nothing to the first answer of one worker.
async fn starts(rounds: usize) -> Outcome<(String, bool)> {
    let (mut ours, mut floor) = (Samples::default(), Samples::default());
    for _ in 0..rounds {
        let began = Instant::now();
        let pit = Snakepit::builder().pool(pool().workers(1)).start().await?;
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
    Ok(row("start of an engine to the first answer of its worker", &ours, &floor, START_TARGET))
}

fn row(what: &str, ours: &Samples, floor: &Samples, target: f64) -> (String, bool) {
    let show = |samples: &Samples| {
        format!("{:.1} ms (p90 {:.1})", samples.median() * 1e3, samples.quantile(0.9) * 1e3)
    };
    let ratio = ours.median() / floor.median();
    let verdict = if ratio <= target { "met" } else { "MISS" };
    let line =
        format!("| {what} | {} | {} | {ratio:.2} × | ≤ {target} ×: {verdict} |", show(ours), show(floor));
    (line, ratio <= target)
}

fn python() -> PathBuf {
    std::env::var_os("SNAKEPIT_TEST_PYTHON").map_or_else(|| "python3".into(), PathBuf::from)
}

fn worker() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin/bench_supervision/worker.py")
}

fn pool() -> Pool {
    Pool::python(PythonWorker::new(worker()).interpreter(python())).name("bench")
}

/// An interpreter with the imports of a worker.
fn by_hand() -> Outcome<Child> {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let child = Command::new(python())
        .args(["-c", BY_HAND])
        .arg(sdk)
        .arg(worker())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    Ok(child)
}

fn heard(child: &mut Child, expected: u8) -> Outcome<()> {
    let mut byte = [0];
    child.stdout.as_mut().ok_or("no output")?.read_exact(&mut byte)?;
    if byte[0] == expected { Ok(()) } else { Err("an interpreter says something else".into()) }
}

fn terminate(child: &Child) -> Outcome<()> {
    let pid = rustix::process::Pid::from_child(child);
    Ok(rustix::process::kill_process(pid, rustix::process::Signal::TERM)?)
}
