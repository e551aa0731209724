//! Several calls at a time in one worker. When the worker dies, calls that had not started move on and no call runs twice.
//!
//! About `crates/core/src/worker/places.rs`, `crates/core/src/adapter/held_calls/end.rs` and
//! `crates/adapters/src/transport/connection/end.rs`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use snakepit::{CallError, Value, args};

use crate::support::{self, Pit, learn_that_they_are_short, lines, rounds, soon, until, worker};

#[tokio::test(flavor = "multi_thread")]
async fn four_seconds_of_sleep_in_four_threads_or_tasks_take_about_one() {
    for (file, command) in [("threads.py", "sleep"), ("asynchronous.py", "nap"), ("asynchronous.py", "sleep")]
    {
        let pit = Pit::start(worker(file).workers(1).concurrency(4)).await;
        let began = Instant::now();
        let calls = (0..4).map(|_| pit.call::<Value>(command, args! { seconds: 1.0 }).into_future());
        for answer in soon("the calls", futures_util::future::join_all(calls)).await {
            answer.expect("slept");
        }
        println!("{file} {command}: {:?}", began.elapsed());
        assert!(began.elapsed() >= Duration::from_secs(1));
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_never_runs_more_calls_than_it_may() {
    let pit = Pit::start(worker("threads.py").workers(1).concurrency(3)).await;
    let began = Instant::now();
    let calls = (0..6).map(|_| pit.call::<Value>("sleep", args! { seconds: 0.5 }).into_future());
    for answer in soon("the calls", futures_util::future::join_all(calls)).await {
        answer.expect("slept");
    }
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    pit.end().await;
}

/// Returns how often each key was run.
fn runs(path: &str) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for line in lines(path) {
        *counts.entry(line).or_default() += 1;
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_a_dead_worker_had_not_started_run_once_in_another_worker() {
    let mut sent_ahead = 0;
    for round in 0.. {
        // How many calls are sent ahead depends on the speed of the machine at the time. Repeats until some were.
        if round >= rounds(40) && sent_ahead > 0 {
            break;
        }
        assert!(round < 200, "nothing is sent ahead: the test tests nothing");
        let pit = Pit::start(worker("hostile.py").workers(1)).await;
        let path = pit.file("marks");
        learn_that_they_are_short(&pit, &path).await;
        // A call that is believed to be short, but is not: the others wait behind it, at the worker.
        let slow = tokio::spawn(
            pit.call::<Value>("mark_and_sleep", args! { path: path.as_str(), key: "slow", seconds: 60.0 })
                .into_future(),
        );
        let pool = pit.pools()[0].clone();
        until("it is under way", || runs(&path).contains_key("slow")).await;
        let pid = pool.workers()[0].pid.expect("a pid").as_raw() as u32;
        let calls: Vec<_> = (0..20)
            .map(|n| {
                let args = args! { path: path.as_str(), key: format!("{round}-{n}") };
                tokio::spawn(pit.call::<String>("mark", args).into_future())
            })
            .collect();
        until("all are sent or wait", || pool.queued() + pool.in_flight() == 21).await;
        sent_ahead += pool.in_flight() - 1;
        support::kill(pid);
        let error = soon("the slow one", slow).await.expect("no panic").expect_err("a death");
        assert!(error.autopsy().is_some(), "{error}");
        for (n, call) in calls.into_iter().enumerate() {
            let key = soon("a call", call).await.expect("no panic").expect("run by another");
            assert_eq!(key, format!("{round}-{n}"));
        }
        assert!(runs(&path).values().all(|count| *count == 1), "{:?}", runs(&path));
        pit.end().await;
    }
    println!("{sent_ahead} calls were at the worker when it died");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_closes_its_socket_and_lives_on_runs_nothing_that_another_one_runs() {
    for round in 0..rounds(20) {
        let pit = Pit::start(worker("hostile.py").workers(1)).await;
        let path = pit.file("marks");
        learn_that_they_are_short(&pit, &path).await;
        let nap = tokio::spawn(pit.call::<Value>("sleep", args! { seconds: 0.2 }).into_future());
        let pool = pit.pools()[0].clone();
        until("it is under way", || pool.in_flight() == 1).await;
        // It goes on for a while after it has closed the socket. The calls behind it are in its buffer.
        let slam = args! { path: path.as_str(), key: "slam", seconds: f64::from(round as u32 % 5) * 0.01 };
        let slam = tokio::spawn(pit.call::<Value>("slam", slam).priority(1).into_future());
        let calls: Vec<_> = (0..10)
            .map(|n| {
                let args = args! { path: path.as_str(), key: n.to_string() };
                tokio::spawn(pit.call::<String>("mark", args).into_future())
            })
            .collect();
        let _ = soon("the nap", nap).await.expect("no panic");
        assert!(soon("the slam", slam).await.expect("no panic").is_err());
        for call in calls {
            match soon("a call", call).await.expect("no panic") {
                Ok(_) | Err(CallError::WorkerDied { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert!(runs(&path).values().all(|count| *count == 1), "{:?}", runs(&path));
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_caller_left_is_not_given_to_another_worker() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let path = pit.file("marks");
    learn_that_they_are_short(&pit, &path).await;
    let slow = tokio::spawn(
        pit.call::<Value>("mark_and_sleep", args! { path: path.as_str(), key: "slow", seconds: 60.0 })
            .into_future(),
    );
    let pool = pit.pools()[0].clone();
    until("it is under way", || runs(&path).contains_key("slow")).await;
    let pid = pool.workers()[0].pid.expect("a pid").as_raw() as u32;
    let mut call =
        Box::pin(pit.call::<Value>("mark", args! { path: path.as_str(), key: "left" }).into_future());
    assert!(futures_util::FutureExt::now_or_never(&mut call).is_none());
    println!("{} at the worker", pool.in_flight());
    drop(call);
    support::kill(pid);
    assert!(soon("the slow one", slow).await.expect("no panic").is_err());
    let _: Value = soon("the next", pit.call("pid", args! {})).await.expect("a pid");
    assert_eq!(runs(&path).get("left"), None);
    pit.end().await;
}
