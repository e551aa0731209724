//! Benchmarks of loops, each beside its floor and measured in the same run.
//!
//! `bench-loops` prints a table in Markdown, `--write` also writes it to `docs/bench/loops.md`, `--quick` takes few
//! rounds. The peer is measured if `SNAKEPIT_BENCH_WEAKINCENTIVES` names a Python that has it, over Redis if
//! redis-server is in `PATH`.

mod mailboxes;
mod peer;
mod shutdown;
mod throughput;

use std::process::ExitCode;

use snakepit_bench::program::{fail, write_document};
use snakepit_bench::{BenchResult, summary};

/// How much to measure.
#[derive(Clone, Copy)]
pub(crate) struct LoopWork {
    pub(crate) rounds: usize,
    pub(crate) messages: usize,
    /// The number of messages in flight when a drain begins.
    pub(crate) drained: usize,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => fail("bench-loops", &*error),
    }
}

fn run(words: &[String]) -> BenchResult<bool> {
    if let Some(unknown) = words.iter().find(|word| !["--quick", "--write"].contains(&word.as_str())) {
        return Err(format!("unknown option {unknown}; usage: bench-loops [--quick] [--write]").into());
    }
    let is_quick = words.iter().any(|word| word == "--quick");
    let work = if is_quick {
        LoopWork { rounds: 2, messages: 2_000, drained: 100 }
    } else {
        LoopWork { rounds: 9, messages: 20_000, drained: 1_000 }
    };
    let mut rows = throughput::measure(work)?;
    rows.extend(shutdown::measure(work)?);
    let table = summary::table(&rows);
    println!("{table}");
    if words.iter().any(|word| word == "--write") {
        write_document("loops.md", &format!("{HEAD}\n{table}"))?;
    }
    // A quick run may be a debug build on a busy machine, so it proves no target.
    Ok(is_quick || rows.iter().all(|row| row.met))
}

const HEAD: &str = "\
# Loops, measured

Written by `cargo run --release -p snakepit-bench --bin bench-loops -- --write`: medians, ours and what stands beside it by turns in
one run. Messages are `{\"a\": 1, \"b\": 2}` for the command `add` of a pool of two workers. A mailbox alone is received from and
acknowledged ten at a time, by one receiver in memory and by eight of a file; the pool alone gets the same calls from 64 tasks for each
worker, each of which makes one after another. The tuned loop has three times as many in hand, and receives as many again ahead, so that some are
received and others acknowledged while others are called; the one with its defaults is told nothing but the command, and finds out by itself. The workers' Python is `SNAKEPIT_BENCH_PYTHON`, or the environment that
`crates/bench/bench-venv` makes.

The peer needs `SNAKEPIT_BENCH_WEAKINCENTIVES=/path/to/python` (3.12 or later, with weakincentives and redis), and redis-server for Redis. Its AgentLoop
has an adapter that adds in its own process instead of asking a model; its MailboxWorker is the bare loop beneath that, without sessions and prompts.
A drain begins when all messages are in flight, and is counted from the moment at which the slowest of them is done in its worker.
";
