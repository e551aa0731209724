//! Benchmarks of mailboxes, each beside its floor in the same run.
//!
//! `bench-mailbox` prints a table in Markdown, `--write` also writes it to `docs/bench/mailboxes.md`, `--quick` takes few
//! rounds, `--full` adds a file with ten million messages (3 GB, some minutes). The peer is measured if `SNAKEPIT_BENCH_WEAKINCENTIVES` names a Python that has it, and redis-server is in `PATH`.

mod depth;
mod floor;
mod memory;
mod peer;
mod receive;
mod shared;
mod sqlite;
mod wake;

use std::path::Path;
use std::process::ExitCode;

use snakepit_proving::bench::{Outcome, line};

/// How much is measured.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    pub(crate) messages: usize,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // The other side of a wake-up across processes.
    if let [word, file] = &words[..]
        && word == "--answer"
    {
        return wake::answer(file).map_or_else(|error| fail(&*error), |()| ExitCode::SUCCESS);
    }
    if words == ["--burn"] {
        wake::burn();
        return ExitCode::SUCCESS;
    }
    if let [verb, file, number] = &words[..]
        && let Ok(number) = number.parse()
    {
        return shared::part(verb, file, number).map_or_else(|error| fail(&*error), |()| ExitCode::SUCCESS);
    }
    match run(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => fail(&*error),
    }
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("bench-mailbox: {error}");
    ExitCode::from(2)
}

fn run(words: &[String]) -> Outcome<bool> {
    if let Some(unknown) =
        words.iter().find(|word| !["--quick", "--full", "--write"].contains(&word.as_str()))
    {
        return Err(
            format!("unknown option {unknown}; usage: bench-mailbox [--quick | --full] [--write]").into()
        );
    }
    let is_quick = words.iter().any(|word| word == "--quick");
    let effort = if is_quick {
        Effort { rounds: 2, messages: 20_000 }
    } else {
        Effort { rounds: 9, messages: 200_000 }
    };
    let mut rows = vec![memory::measure(effort)?];
    rows.extend(sqlite::measure(effort)?);
    rows.push(receive::measure(effort)?);
    rows.push(shared::measure(effort)?);
    rows.extend(wake::measure(effort)?);
    if words.iter().any(|word| word == "--full") {
        rows.extend(depth::measure(10_000_000)?);
    }
    let table = line::table(&rows);
    println!("{table}");
    if words.iter().any(|word| word == "--write") {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/bench/mailboxes.md");
        std::fs::write(page, format!("{HEAD}\n{table}"))?;
    }
    // Few rounds, perhaps of a build that is not optimized, say nothing of a target.
    Ok(is_quick || rows.iter().all(|row| row.met))
}

const HEAD: &str = "\
# Mailboxes, measured

Written by `cargo run --release -p snakepit-proving --bin bench-mailbox -- --write`: medians, ours and what stands beside it by turns in
one run, bodies of 100 bytes. The peer needs `SNAKEPIT_BENCH_WEAKINCENTIVES=/path/to/python` and redis-server.
";
