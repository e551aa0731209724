//! Calls of a batch command are sent together. Each call has its own answer, error, deadline and cancellation.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use snakepit::call::RemoteErrorKind;
use snakepit::{CallError, PoolOptions, Value, args};
use tokio::task::JoinHandle;

use crate::support::{Pit, lines, rounds, soon, until, worker};

type Calls = Vec<JoinHandle<Result<i64, CallError>>>;

/// A pool whose batches last until the test opens their gate.
struct Held {
    pit: Pit,
    path: String,
    gate: String,
    command: &'static str,
}

impl Held {
    async fn start(pool: PoolOptions) -> Self {
        let pit = Pit::start(pool).await;
        let (path, gate) = (pit.file("path"), pit.file("gate"));
        Self { pit, path, gate, command: "hold" }
    }

    fn call(&self, x: i64) -> snakepit::call::CallBuilder<i64> {
        self.pit.call(self.command, args! { x: x, path: self.path.as_str(), gate: self.gate.as_str() })
    }

    fn spawn(&self, numbers: impl IntoIterator<Item = i64>) -> Calls {
        numbers.into_iter().map(|x| tokio::spawn(self.call(x).into_future())).collect()
    }

    /// Starts one batch, and gathers these calls behind it.
    async fn with_gathered(&self, numbers: std::ops::Range<i64>) -> (Calls, Calls) {
        let first = self.spawn([0]);
        until("the first is under way", || lines(&self.path) == ["0"]).await;
        let count = numbers.clone().count();
        let rest = self.spawn(numbers);
        until("they wait", || self.pit.pools()[0].queued() == count).await;
        (first, rest)
    }

    fn open(&self) {
        std::fs::write(&self.gate, "").expect("the gate opens");
    }

    /// Returns the number of calls in each run of the function.
    fn sizes(&self) -> Vec<usize> {
        lines(&self.path).iter().map(|line| line.split(',').count()).collect()
    }
}

async fn answers(calls: Calls) -> Vec<i64> {
    let mut values = Vec::new();
    for call in calls {
        values.push(soon("a call", call).await.expect("no panic").expect("an answer"));
    }
    values
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_come_while_a_batch_is_under_way_travel_together() {
    let held = Held::start(worker("batches.py").workers(1)).await;
    let (first, rest) = held.with_gathered(1..21).await;
    let pool = held.pit.pools()[0].clone();
    assert_eq!((pool.in_flight(), pool.queued()), (1, 20));
    held.open();
    assert_eq!(answers(first).await, [0]);
    assert_eq!(answers(rest).await, (1..21).collect::<Vec<_>>());
    assert_eq!(held.sizes(), [1, 8, 8, 4]);
    assert_eq!((pool.in_flight(), pool.queued(), pool.workers()[0].calls), (0, 0, 21));
    held.pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_call_does_not_wait_for_the_batch_window() {
    let held = Held::start(worker("batches.py").workers(1)).await;
    held.open();
    let began = Instant::now();
    for x in 0..50 {
        assert_eq!(soon("a call", held.call(x)).await.expect("an answer"), x);
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(held.sizes(), vec![1; 50]);
    held.pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_window_bounds_how_long_calls_gather() {
    let mut held = Held::start(worker("batches.py").workers(2)).await;
    held.command = "hold_briefly";
    let began = Instant::now();
    let (first, rest) = held.with_gathered(1..4).await;
    // The first batch is still under way, and another worker has a place.
    until("the window is over", || lines(&held.path).len() == 2).await;
    assert!(began.elapsed() >= Duration::from_millis(100), "{:?}", began.elapsed());
    assert_eq!(held.sizes(), [1, 3]);
    assert_eq!(held.pit.pools()[0].in_flight(), 4);
    held.open();
    answers(first).await;
    assert_eq!(answers(rest).await, [1, 2, 3]);
    held.pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_come_again_and_again_fill_batches_without_waiting() {
    let pit = Pit::start(worker("batches.py").workers(1)).await;
    let caller = || async {
        let mut sizes = Vec::new();
        for x in 0..rounds(400) {
            sizes.push(pit.call::<u32>("size", args! { x: x }).await.expect("an answer"));
        }
        sizes
    };
    let sizes: Vec<u32> = soon("the calls", join_all((0..8).map(|_| caller()))).await.concat();
    assert!(sizes.iter().all(|size| (1..=8).contains(size)));
    let alone = sizes.iter().filter(|size| **size == 1).count();
    assert!(sizes.iter().sum::<u32>() as usize > 3 * sizes.len(), "{alone} of {} came alone", sizes.len());
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_call_has_its_own_arguments_result_and_error() {
    let pit = Pit::start(worker("batches.py").workers(1)).await;
    let sums = join_all((0..40).map(|n| {
        let args = match n % 4 {
            0 => args! { a: n },
            1 => args! { a: n, b: 10 },
            2 => args! { a: n, c: 100 },
            _ => args! { a: n, nonsense: 1 },
        };
        pit.call::<i64>("add", args).into_future()
    }));
    for (n, sum) in soon("sums", sums).await.into_iter().enumerate() {
        match n % 4 {
            0 => assert_eq!(sum.expect("a sum"), n as i64 + 1),
            1 => assert_eq!(sum.expect("a sum"), n as i64 + 10),
            2 => assert_eq!(sum.expect("a sum"), n as i64 + 101),
            _ => {
                let error = sum.expect_err("nonsense");
                let remote = error.remote().expect("a remote error");
                assert_eq!(remote.kind, RemoteErrorKind::BadArgument, "{error}");
            }
        }
    }
    let outcomes = join_all((-20..20).map(|x| pit.call::<i64>("no_negatives", args! { x: x }).into_future()));
    for (x, outcome) in (-20..20).zip(soon("numbers", outcomes).await) {
        match outcome {
            Ok(value) => assert!(value == x && x >= 0),
            Err(error) => {
                assert!(x < 0 && error.to_string().contains(&format!("{x} is negative")), "{error}");
            }
        }
    }
    let outcomes = join_all((0..8).map(|x| pit.call::<i64>("unsendable", args! { x: x }).into_future()));
    for (x, outcome) in (0..8).zip(soon("values", outcomes).await) {
        assert_eq!(outcome.is_err(), x == 3, "{outcome:?}");
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_that_returns_no_list_of_its_length_fails_its_calls_with_the_reason() {
    let pit = Pit::start(worker("batches.py").workers(1)).await;
    for (what, words) in [
        ("text", "must return a list"),
        ("none", "not NoneType"),
        ("short", "was given 1 call and returned 0"),
    ] {
        let wrong = soon("a call", pit.call::<Value>("wrong", args! { x: 1, what: what })).await;
        let error = wrong.expect_err("no answer");
        assert!(error.to_string().contains(words), "{error}");
    }
    pit.end().await;
}

/// Sends eight calls in one batch, one of which is bad.
async fn batch_with(bad: i64) -> (Held, Vec<Result<i64, CallError>>) {
    let mut held = Held::start(worker("batches.py").workers(1)).await;
    held.command = "poison";
    let first = held.spawn([0]);
    until("the first is under way", || lines(&held.path) == ["0"]).await;
    let rest = held.spawn([1, 2, 3, bad, 5, 6, 7, 8]);
    until("they wait", || held.pit.pools()[0].queued() == 8).await;
    held.open();
    answers(first).await;
    let mut outcomes = Vec::new();
    for call in rest {
        outcomes.push(soon("a call", call).await.expect("no panic"));
    }
    (held, outcomes)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_raises_fails_only_the_call_to_blame() {
    let (held, outcomes) = batch_with(-1).await;
    for (n, outcome) in (1..).zip(outcomes) {
        match outcome {
            Ok(value) => assert!(value == n && n != 4),
            Err(error) => assert!(n == 4 && error.to_string().contains("poison"), "{n}: {error}"),
        }
    }
    // Once together, then each alone, in the worker.
    assert_eq!(held.sizes(), [1, 8, 1, 1, 1, 1, 1, 1, 1, 1]);
    held.pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_whose_worker_dies_fails_only_the_call_to_blame() {
    let (held, outcomes) = batch_with(-2).await;
    for (n, outcome) in (1..).zip(outcomes) {
        match outcome {
            Ok(value) => assert!(value == n && n != 4),
            Err(CallError::WorkerDied { .. }) => assert_eq!(n, 4),
            Err(error) => panic!("{n}: {error}"),
        }
    }
    let mut alone: Vec<String> = lines(&held.path).split_off(2);
    alone.sort();
    assert_eq!(alone, ["-2", "1", "2", "3", "5", "6", "7", "8"], "each was made again once");
    held.pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_member_that_is_dropped_or_late_ends_alone() {
    let mut held = Held::start(worker("batches.py").workers(2)).await;
    held.command = "hold_briefly";
    let pids = held.pit.pools()[0].workers().iter().map(|worker| worker.pid).collect::<Vec<_>>();
    let first = held.spawn([0]);
    until("the first is under way", || lines(&held.path) == ["0"]).await;
    let dropped = held.spawn([1]);
    let late = tokio::spawn(held.call(2).timeout(Duration::from_millis(400)).into_future());
    let rest = held.spawn([3, 4]);
    until("they are under way", || held.sizes() == [1, 4]).await;
    dropped[0].abort();
    let error = soon("the timeout", late).await.expect("no panic").expect_err("too late");
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    held.open();
    answers(first).await;
    assert_eq!(answers(rest).await, [3, 4]);
    assert!(!lines(&held.path).iter().any(|line| line == "Cancelled"));
    let same = held.pit.pools()[0].workers().iter().map(|worker| worker.pid).collect::<Vec<_>>();
    assert_eq!(pids, same, "no worker was replaced");
    held.pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_whose_members_are_all_gone_is_cancelled_at_its_worker() {
    let mut held = Held::start(worker("batches.py").workers(2)).await;
    held.command = "hold_briefly";
    let first = held.spawn([0]);
    until("the first is under way", || lines(&held.path) == ["0"]).await;
    let rest = held.spawn([1, 2, 3]);
    until("they are under way", || held.sizes() == [1, 3]).await;
    rest.iter().for_each(JoinHandle::abort);
    until("it is cancelled", || lines(&held.path).iter().any(|line| line == "Cancelled")).await;
    until("its place is free", || held.pit.pools()[0].in_flight() == 1).await;
    assert_eq!(held.sizes().len(), 3, "it was not run again call by call");
    held.open();
    answers(first).await;
    held.pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_gather_wait_within_the_limits_of_the_queue() {
    let held = Held::start(worker("batches.py").workers(1).queue_limit(3)).await;
    let (first, rest) = held.with_gathered(1..4).await;
    let error = soon("a call", held.call(4)).await.expect_err("no room");
    assert!(matches!(error, CallError::Saturated { depth: 3, .. }), "{error}");
    rest[1].abort();
    until("one has gone", || held.pit.pools()[0].queued() == 2).await;
    let late = soon("a call", held.call(5).queue_timeout(Duration::from_millis(20))).await;
    let error = late.expect_err("too late");
    assert!(matches!(error, CallError::QueueTimeout { .. }), "{error}");
    held.open();
    answers(first).await;
    let mut values = Vec::new();
    for call in rest {
        values.extend(soon("a call", call).await.ok().map(|answer| answer.expect("an answer")));
    }
    assert_eq!(values, [1, 3]);
    assert_eq!(held.sizes(), [1, 2]);
    held.pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_most_urgent_calls_of_a_group_travel_first() {
    let held = Held::start(worker("batches.py").workers(1)).await;
    let (first, mut rest) = held.with_gathered(1..9).await;
    rest.push(tokio::spawn(held.call(100).priority(5).into_future()));
    until("it waits, too", || held.pit.pools()[0].queued() == 9).await;
    held.open();
    answers(first).await;
    answers(rest).await;
    let second: Vec<String> = lines(&held.path)[1].split(',').map(str::to_owned).collect();
    assert_eq!((second.len(), second[0].as_str()), (8, "100"));
    held.pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_with_a_session_or_metadata_travels_alone() {
    let pit = Pit::start(worker("batches.py").workers(2)).await;
    let calls = (0..20).map(|n| {
        let call = pit.call::<(u32, Option<String>, HashMap<String, String>)>("about", args! { x: n });
        match n % 2 {
            0 => call.session(format!("s{n}")).into_future(),
            _ => call.metadata("key", n.to_string()).into_future(),
        }
    });
    for (n, about) in soon("calls", join_all(calls)).await.into_iter().enumerate() {
        let (size, session, metadata) = about.expect("an answer");
        assert_eq!(size, 1);
        assert_eq!(session, (n % 2 == 0).then(|| format!("s{n}")));
        assert_eq!(metadata.is_empty(), n % 2 == 0, "{metadata:?}");
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_a_stop_what_is_under_way_completes_and_what_gathers_is_given_back() {
    let held = Held::start(worker("batches.py").workers(1)).await;
    let (first, rest) = held.with_gathered(1..13).await;
    let stopping = tokio::spawn({
        let pit = (*held.pit).clone();
        async move { pit.stop().await }
    });
    for call in rest {
        let error = soon("a call", call).await.expect("no panic").expect_err("not started");
        assert!(matches!(error, CallError::Stopped), "{error}");
    }
    held.open();
    assert_eq!(answers(first).await, [0]);
    soon("the stop", stopping).await.expect("no panic");
    assert_eq!(held.sizes(), [1]);
    held.pit.prove_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_cut_short_fails_a_batch_with_its_worker_and_starts_nothing_again() {
    let mut held = Held::start(worker("batches.py").workers(2)).await;
    held.command = "hold_briefly";
    let mut calls = held.spawn([0]);
    until("the first is under way", || lines(&held.path) == ["0"]).await;
    calls.extend(held.spawn([1, 2, 3]));
    until("they are under way", || held.sizes() == [1, 3]).await;
    soon("the stop", held.pit.stop_within(Duration::ZERO)).await;
    for call in calls {
        let error = soon("a call", call).await.expect("no panic").expect_err("killed");
        assert!(matches!(error, CallError::WorkerDied { .. }), "{error}");
    }
    assert_eq!(held.sizes().iter().take(2).collect::<Vec<_>>(), [&1, &3]);
    held.pit.prove_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_is_scaled_down_to_none_and_up_again_loses_no_gathered_call() {
    let held = Held::start(worker("batches.py").workers(1)).await;
    let (first, rest) = held.with_gathered(1..11).await;
    let pool = held.pit.pools()[0].clone();
    pool.scale(0);
    held.open();
    answers(first).await;
    until("it has no worker", || pool.workers().is_empty()).await;
    pool.scale(2);
    assert_eq!(answers(rest).await, (1..11).collect::<Vec<_>>());
    held.pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_too_long_for_one_frame_reach_each_caller() {
    let pit = Pit::start(worker("batches.py").workers(1).max_frame(64 * 1024)).await;
    let calls = (0..64).map(|n| pit.call::<String>("text", args! { length: 1000 * n }).into_future());
    for (n, text) in soon("texts", join_all(calls)).await.into_iter().enumerate() {
        assert_eq!(text.expect("a text").len(), 1000 * n);
    }
    pit.end().await;
}
