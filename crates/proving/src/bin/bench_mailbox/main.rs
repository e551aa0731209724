//! Benchmarks of mailboxes, each beside its floor in the same run.
//!
//! `bench-mailbox` prints a table in Markdown, `--write` also writes it to `docs/bench/mailboxes.md`, `--quick` takes few
//! rounds. The peer is measured if `SNAKEPIT_BENCH_WEAKINCENTIVES` names a Python that has it, and redis-server is in `PATH`.

mod floor;
mod memory;
mod peer;
mod sqlite;
mod wake;

use std::path::Path;
use std::process::ExitCode;

use snakepit_proving::bench::{Outcome, Samples, machine};

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
    if let Some(unknown) = words.iter().find(|word| !["--quick", "--write"].contains(&word.as_str())) {
        return Err(format!("unknown option {unknown}; usage: bench-mailbox [--quick] [--write]").into());
    }
    let effort = if words.iter().any(|word| word == "--quick") {
        Effort { rounds: 2, messages: 20_000 }
    } else {
        Effort { rounds: 9, messages: 200_000 }
    };
    let mut rows = vec![memory::measure(effort)?];
    rows.extend(sqlite::measure(effort)?);
    rows.extend(wake::measure(effort)?);
    let mut table = String::from("| what | ours | beside | ratio | wanted |\n|---|---|---|---|---|\n");
    for row in &rows {
        table.push_str(&row.line);
        table.push('\n');
    }
    let table = format!("{table}\nMachine: {}\n", machine::describe());
    println!("{table}");
    if words.iter().any(|word| word == "--write") {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/bench/mailboxes.md");
        std::fs::write(page, format!("{HEAD}\n{table}"))?;
    }
    Ok(rows.iter().all(|row| row.met))
}

const HEAD: &str = "\
# Mailboxes, measured

Written by `cargo run --release -p snakepit-proving --bin bench-mailbox -- --write`: medians, ours and what stands beside it by turns in
one run, bodies of 100 bytes. The peer needs `SNAKEPIT_BENCH_WEAKINCENTIVES=/path/to/python` and redis-server.
";

/// A line of the table, and whether it is as wanted.
pub(crate) struct Row {
    pub(crate) line: String,
    pub(crate) met: bool,
}

/// Ours beside something else, both in messages per second; wanted is the least ratio.
pub(crate) fn rates(what: &str, ours: &Samples, beside: &str, theirs: &Samples, least: f64) -> Row {
    let ratio = ours.median() / theirs.median();
    let met = ratio >= least;
    let verdict = if met { "met" } else { "MISS" };
    let line = format!(
        "| {what} | {:.0}/s | {beside}: {:.0}/s | {ratio:.2} × | ≥ {least} ×: {verdict} |",
        ours.median(),
        theirs.median()
    );
    Row { line, met }
}
