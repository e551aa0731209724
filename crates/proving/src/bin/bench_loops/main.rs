//! Benchmarks of loops, each beside its floor in the same run.
//!
//! `bench-loops` prints a table in Markdown, `--write` also writes it to `docs/bench/loops.md`, `--quick` takes few rounds. The
//! peer is measured if `SNAKEPIT_BENCH_WEAKINCENTIVES` names a Python that has it, over Redis if redis-server is in `PATH`.

mod ending;
mod peer;
mod post;
mod through;

use std::path::Path;
use std::process::ExitCode;

use snakepit_proving::bench::{Outcome, line};

/// How much is measured.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    pub(crate) messages: usize,
    /// How many messages are in flight when a drain begins.
    pub(crate) drained: usize,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench-loops: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(words: &[String]) -> Outcome<bool> {
    if let Some(unknown) = words.iter().find(|word| !["--quick", "--write"].contains(&word.as_str())) {
        return Err(format!("unknown option {unknown}; usage: bench-loops [--quick] [--write]").into());
    }
    let is_quick = words.iter().any(|word| word == "--quick");
    let effort = if is_quick {
        Effort { rounds: 2, messages: 2_000, drained: 100 }
    } else {
        Effort { rounds: 9, messages: 20_000, drained: 1_000 }
    };
    let mut lines = through::measure(effort)?;
    lines.extend(ending::measure(effort)?);
    let table = line::table(&lines);
    println!("{table}");
    if words.iter().any(|word| word == "--write") {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/bench/loops.md");
        std::fs::write(page, format!("{HEAD}\n{table}"))?;
    }
    // A build that is not optimized on a busy machine says nothing of what is wanted.
    Ok(is_quick || lines.iter().all(|line| line.met))
}

const HEAD: &str = "\
# Loops, measured

Written by `cargo run --release -p snakepit-proving --bin bench-loops -- --write`: medians, ours and what stands beside it by turns in
one run. Messages are `{\"a\": 1, \"b\": 2}` for the command `add` of a pool of two workers. A mailbox alone is received from and
acknowledged ten at a time, by one receiver in memory and by eight of a file; the pool alone gets the same calls from 64 tasks for each
worker, each of which makes one after another. The tuned loop has three times as many in hand, and receives as many again ahead, so that some are
received and others acknowledged while others are called; the one with its defaults is told nothing but the command, and finds out by itself. The workers' Python is `SNAKEPIT_BENCH_PYTHON`, or the environment that
`crates/proving/bench-venv` makes.

The peer needs `SNAKEPIT_BENCH_WEAKINCENTIVES=/path/to/python` (3.12 or later, with weakincentives and redis), and redis-server for Redis. Its AgentLoop
has an adapter that adds in its own process instead of asking a model; its MailboxWorker is the bare loop beneath that, without sessions and prompts.
A drain begins when all messages are in flight, and is counted from the moment at which the slowest of them is done in its worker.
";
