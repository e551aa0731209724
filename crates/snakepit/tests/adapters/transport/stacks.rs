//! The stacks of a worker's threads, asked for by a signal.

use std::collections::HashSet;
use std::future::IntoFuture;

use snakepit::{Value, args};

use crate::support::{Pit, lines, soon, until, worker};

const THREADS: usize = 6;
const ROUNDS: usize = 300;

/// Reports whether a line is one that a single thread has written from its beginning to its end.
fn is_whole(line: &str) -> bool {
    let is_header = |rest: &str| {
        let digits = rest.trim_start_matches(|c: char| c.is_ascii_hexdigit());
        digits.starts_with(" [") && digits.ends_with("] (most recent call first):")
            || digits == " (most recent call first):"
    };
    let header = line.strip_prefix("Current thread 0x").or_else(|| line.strip_prefix("Thread 0x"));
    let is_frame = || {
        let rest = line.strip_prefix("  File \"").and_then(|rest| rest.split_once("\", line "));
        let rest = rest.and_then(|(file, rest)| (!file.contains('"')).then_some(rest));
        rest.and_then(|rest| rest.split_once(" in "))
            .is_some_and(|(number, function)| number.parse::<u32>().is_ok() && !function.contains(' '))
    };
    header.is_some_and(is_header)
        || is_frame()
        || line.starts_with("worker ")
        || line == "  <no Python frame>"
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_that_take_signals_at_the_same_time_do_not_mix_their_texts() {
    let pit = Pit::start(worker("threads.py").workers(1).concurrency(THREADS)).await;
    let path = pit.file("started");
    let calls: Vec<_> = (0..THREADS)
        .map(|_| tokio::spawn(pit.call::<Value>("busy", args! { path: &path }).into_future()))
        .collect();
    until("all threads compute", || lines(&path).len() == THREADS).await;
    let pool = pit.pools()[0].clone();
    let mut answered = 0;
    for round in 0..ROUNDS {
        let Some(stacks) = soon("the stacks", pool.stacks_at(Some("busy"))).await else { continue };
        answered += 1;
        let odd: Vec<&str> = stacks.lines().filter(|line| !is_whole(line)).collect();
        assert!(odd.is_empty(), "round {round}: {odd:?} in\n{stacks}");
        let threads: Vec<&str> =
            stacks.lines().filter_map(|line| line.split_once("hread 0x")?.1.split(' ').next()).collect();
        let distinct: HashSet<&str> = threads.iter().copied().collect();
        assert!(distinct.len() == threads.len() && threads.len() >= THREADS, "round {round}:\n{stacks}");
    }
    assert!(answered > ROUNDS / 2, "only {answered} of {ROUNDS} requests were answered");
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    pit.end_now().await;
}
