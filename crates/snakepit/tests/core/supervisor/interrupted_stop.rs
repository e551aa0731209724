//! A stop that runs out of time reports a call as not started only if the call never ran.
//!
//! About `crates/core/src/worker/end.rs`, `crates/core/src/worker/stop_window.rs` and
//! `crates/core/src/adapter/call_stage.rs`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use snakepit::pool::CancelGrace;
use snakepit::{CallError, Value, args};

use crate::support::{Pit, jitter, learn_that_they_are_short, lines, raw_with, rounds, soon, until, worker};

/// How long a worker that ignores TERM lives on.
const TERM_GRACE: Duration = Duration::from_millis(60);

/// The outcomes of a series of calls, by their keys.
type Outcomes = Vec<(String, Result<String, CallError>)>;

/// Starts a worker that only KILL ends, and to which short calls are sent ahead.
async fn deaf_worker() -> Pit {
    let grace = CancelGrace::default().terminate(TERM_GRACE);
    let pit = Pit::start(worker("hostile.py").workers(1).cancel_grace(grace)).await;
    let _: Value = soon("deafness", pit.call("ignore_term", args! {})).await.expect("deaf");
    learn_that_they_are_short(&pit, &pit.file("warm")).await;
    pit
}

/// Makes a call that takes a while, though this is not known, and twenty calls behind it. As many as possible are at
/// the worker.
async fn calls_behind_a_slow_one(
    pit: &Pit,
    path: &str,
    slow: Duration,
) -> Vec<(String, tokio::task::JoinHandle<Result<String, CallError>>)> {
    let pool = pit.pools()[0].clone();
    let args = args! { path: path, key: "slow", seconds: slow.as_secs_f64() };
    let mut calls =
        vec![("slow".to_owned(), tokio::spawn(pit.call::<String>("mark_and_sleep", args).into_future()))];
    until("it is under way", || pool.in_flight() == 1 || !lines(path).is_empty()).await;
    calls.extend((0..20).map(|n| {
        let key = n.to_string();
        let args = args! { path: path, key: key.as_str() };
        (key, tokio::spawn(pit.call::<String>("mark", args).into_future()))
    }));
    calls
}

async fn outcomes(calls: Vec<(String, tokio::task::JoinHandle<Result<String, CallError>>)>) -> Outcomes {
    let mut outcomes = Outcomes::new();
    for (key, call) in calls {
        outcomes.push((key, soon("a call", call).await.expect("no panic")));
    }
    outcomes
}

/// Counts the outcomes of calls. Fails if an outcome contradicts what happened.
#[derive(Default, Debug)]
struct Tally {
    answered: usize,
    stopped: usize,
    died: usize,
}

impl Tally {
    /// Adds the outcomes. Call it when all workers are gone, so that nothing begins any more.
    fn add(&mut self, what: &str, path: &str, outcomes: Outcomes) {
        let mut begun: HashMap<String, usize> = HashMap::new();
        for line in lines(path) {
            *begun.entry(line).or_default() += 1;
        }
        assert!(begun.values().all(|times| *times == 1), "{what}: begun twice: {begun:?}");
        for (key, outcome) in outcomes {
            match outcome {
                Ok(value) => {
                    assert_eq!(value, key, "{what}");
                    assert!(begun.contains_key(&key), "{what}: {key} was answered and never begun");
                    self.answered += 1;
                }
                // Or it came when the pool should have no workers.
                Err(CallError::Stopped | CallError::NoWorkers { .. }) => {
                    assert!(!begun.contains_key(&key), "{what}: {key} was begun, and said not to be");
                    self.stopped += 1;
                }
                Err(CallError::WorkerDied { .. }) => self.died += 1,
                Err(error) => panic!("{what}: {key}: {error}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_cut_short_reports_no_started_call_as_not_started() {
    let mut tally = Tally::default();
    let mut sent_ahead = 0;
    for round in 0.. {
        // How many calls are sent ahead depends on the speed of the machine at the time. Repeats until some were.
        if round >= rounds(40) && sent_ahead > 0 {
            break;
        }
        assert!(round < 200, "nothing is sent ahead: the test tests nothing");
        let pit = deaf_worker().await;
        let path = pit.file("marks");
        let calls = calls_behind_a_slow_one(&pit, &path, jitter(round, 160_000)).await;
        tokio::time::sleep(jitter(round * 31, 3000)).await;
        sent_ahead += pit.pools()[0].in_flight().saturating_sub(1);
        let began = Instant::now();
        soon("the stop", pit.stop_within(jitter(round * 17, 50_000))).await;
        assert!(began.elapsed() < Duration::from_secs(5), "the stop took {:?}", began.elapsed());
        tally.add(&format!("round {round}"), &path, outcomes(calls).await);
        pit.prove_nothing_is_left();
    }
    println!("{tally:?}, {sent_ahead} were at the worker");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_cut_short_reports_no_started_map_input_as_not_started() {
    let mut tally = Tally::default();
    for round in 0..rounds(20) {
        let pit = deaf_worker().await;
        let path = pit.file("marks");
        // The third call takes a while, so the frame is under way when the stop comes, and goes on during the grace
        // period.
        let nap = jitter(round, 50_000).as_secs_f64();
        let inputs: Vec<_> = (0..60)
            .map(|n| {
                let seconds = if n == 2 { nap } else { 0.0 };
                args! { path: path.as_str(), key: n.to_string(), seconds: seconds }
            })
            .collect();
        let map = pit.map::<String, _>("mark_and_sleep", inputs).in_order().expect("a map");
        let reading = tokio::spawn(map.collect::<Vec<_>>());
        until("it is under way", || !lines(&path).is_empty()).await;
        soon("the stop", pit.stop_within(jitter(round * 17, 30_000))).await;
        let read = soon("the map", reading).await.expect("no panic");
        let outcomes = read.into_iter().enumerate().map(|(n, outcome)| (n.to_string(), outcome)).collect();
        tally.add(&format!("round {round}"), &path, outcomes);
        pit.prove_nothing_is_left();
    }
    println!("{tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_stopped_while_shrinking_reports_no_started_call_as_not_started() {
    let mut tally = Tally::default();
    for round in 0..rounds(20) {
        let pit = deaf_worker().await;
        let path = pit.file("marks");
        let calls = calls_behind_a_slow_one(&pit, &path, jitter(round, 160_000)).await;
        let pool = pit.pools()[0].clone();
        pool.scale(0);
        until("it leaves", || pool.workers().is_empty()).await;
        tokio::time::sleep(jitter(round * 31, 3000)).await;
        soon("the stop", pit.stop_within(jitter(round * 17, 50_000))).await;
        tally.add(&format!("round {round}"), &path, outcomes(calls).await);
        pit.prove_nothing_is_left();
    }
    println!("{tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_changes_its_size_runs_every_call_once() {
    let pit = deaf_worker().await;
    let path = pit.file("marks");
    let pool = pit.pools()[0].clone();
    let mut tally = Tally::default();
    let mut all = Vec::new();
    for round in 0..rounds(20) {
        let calls: Vec<_> = (0..50)
            .map(|n| {
                let key = format!("{round}-{n}");
                let args = args! { path: path.as_str(), key: key.as_str() };
                (key, tokio::spawn(pit.call::<String>("mark", args).into_future()))
            })
            .collect();
        tokio::time::sleep(jitter(round, 3000)).await;
        pool.scale(0);
        pool.scale(1 + round % 2);
        all.extend(outcomes(calls).await);
    }
    pit.stop().await;
    // Between the two sizes there may be no worker. A call that comes then is refused.
    let is_well = |outcome: &Result<_, _>| matches!(outcome, Ok(_) | Err(CallError::NoWorkers { .. }));
    assert!(all.iter().all(|(_, outcome)| is_well(outcome)), "{all:?}");
    tally.add("in the end", &path, all);
    println!("{tally:?}");
    pit.prove_nothing_is_left();
}

/// On one thread, the caller that gets the last answer of a worker calls again before the pool learns that it is
/// broken.
#[tokio::test]
async fn calls_for_a_broken_worker_run_once_in_another_worker() {
    let home = tempfile::tempdir().expect("a directory");
    let (mut answered, mut begun) = (0, 0);
    for round in 0..rounds(10) {
        let path = home.path().join(round.to_string());
        let pit = Pit::start(raw_with("breaks_and_goes_on", &path).workers(2)).await;
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let pit = (*pit).clone();
                tokio::spawn(async move {
                    let mut answered = 0;
                    for _ in 0..20 {
                        match pit.call::<String>("any", args! {}).await {
                            Ok(_) => answered += 1,
                            Err(CallError::WorkerDied { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                    answered
                })
            })
            .collect();
        for caller in callers {
            answered += soon("a caller", caller).await.expect("no panic");
        }
        pit.end_now().await;
        let mut marks = lines(&path.to_string_lossy());
        let all = marks.len();
        marks.sort_unstable();
        marks.dedup();
        assert_eq!(marks.len(), all, "round {round}: a call was begun twice");
        begun += all;
    }
    println!("{begun} begun, {answered} answered");
    assert!(begun >= answered);
}
