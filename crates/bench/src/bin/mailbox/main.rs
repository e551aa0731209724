//! Benchmarks of mailboxes, each beside its floor and measured in the same run.
//!
//! `bench-mailbox` prints a table in Markdown, `--write` also writes it to `docs/bench/mailboxes.md`, `--quick` takes
//! few rounds, `--full` adds a file with ten million messages (3 GB, some minutes), and a word measures only that part
//! (`memory`, `sqlite`, `receive`, `shared`, `wake`). The peer is measured if `SNAKEPIT_BENCH_WEAKINCENTIVES` names a
//! Python that has it, and redis-server is in `PATH`.

mod depth;
mod floor;
mod memory;
mod peer;
mod receive;
mod shared;
mod sqlite;
mod wake;

use std::process::ExitCode;

use snakepit_bench::program::{fail, write_document};
use snakepit_bench::{BenchResult, summary};

/// How much to measure.
#[derive(Clone, Copy)]
pub(crate) struct MailboxWork {
    pub(crate) rounds: usize,
    pub(crate) messages: usize,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // The other side of a wake-up across processes.
    if let [word, file] = &words[..]
        && word == "--answer"
    {
        return wake::answer(file)
            .map_or_else(|error| fail("bench-mailbox", &*error), |()| ExitCode::SUCCESS);
    }
    if words == ["--burn"] {
        wake::stay_busy();
        return ExitCode::SUCCESS;
    }
    if let [verb, file, number] = &words[..]
        && let Ok(number) = number.parse()
    {
        return shared::part(verb, file, number)
            .map_or_else(|error| fail("bench-mailbox", &*error), |()| ExitCode::SUCCESS);
    }
    match run(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => fail("bench-mailbox", &*error),
    }
}

/// The parts, in the order of the page.
const PARTS: [&str; 5] = ["memory", "sqlite", "receive", "shared", "wake"];

fn run(words: &[String]) -> BenchResult<bool> {
    let is_known = |word: &&String| {
        ["--quick", "--full", "--write"].contains(&word.as_str()) || PARTS.contains(&word.as_str())
    };
    if let Some(unknown) = words.iter().find(|word| !is_known(word)) {
        let usage = format!("bench-mailbox [--quick | --full] [--write] [{}]", PARTS.join(" | "));
        return Err(format!("unknown option {unknown}; usage: {usage}").into());
    }
    let asked = |word: &str| words.iter().any(|it| it == word);
    let is_whole = !PARTS.into_iter().any(asked);
    let wants = |part: &str| is_whole || asked(part);
    if asked("--write") && !is_whole {
        return Err("--write needs all parts: name none".into());
    }
    let is_quick = asked("--quick");
    let work = if is_quick {
        MailboxWork { rounds: 2, messages: 20_000 }
    } else {
        MailboxWork { rounds: 9, messages: 200_000 }
    };
    let mut rows = Vec::new();
    if wants("memory") {
        rows.push(memory::measure(work)?);
    }
    if wants("sqlite") {
        rows.extend(sqlite::measure(work)?);
    }
    if wants("receive") {
        rows.push(receive::measure(work)?);
    }
    if wants("shared") {
        rows.push(shared::measure(work)?);
    }
    if wants("wake") {
        rows.extend(wake::measure(work)?);
    }
    if asked("--full") {
        rows.extend(depth::measure(10_000_000)?);
    }
    let table = summary::table(&rows);
    println!("{table}");
    if asked("--write") {
        write_document("mailboxes.md", &format!("{HEAD}\n{table}"))?;
    }
    // A quick run may be a debug build on a busy machine, so it proves no target.
    Ok(is_quick || rows.iter().all(|row| row.met))
}

const HEAD: &str = "\
# Mailboxes, measured

Written by `cargo run --release -p snakepit-bench --bin bench-mailbox -- --write`: medians, ours and what stands beside it by turns in
one run, bodies of 100 bytes. The peer needs `SNAKEPIT_BENCH_WEAKINCENTIVES=/path/to/python` and redis-server.
";
