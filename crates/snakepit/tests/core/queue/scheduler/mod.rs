//! The queue is bounded, serves calls of one priority in order of arrival, and keeps nothing of callers that left.

mod paused_workers;

use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use snakepit::{CallError, Pool, Value, args};

use crate::support::{self, Pit, lines, rounds, soon, until, worker};

/// Occupies the only worker for so many seconds. Returns when it is busy.
async fn occupy(pit: &Pit, seconds: f64) -> tokio::task::JoinHandle<Result<Value, CallError>> {
    let path = pit.file("occupied");
    let before = lines(&path).len();
    let args = args! { path: path.as_str(), key: "occupied", seconds: seconds };
    let call = tokio::spawn(pit.call::<Value>("mark_and_sleep", args).into_future());
    until("the worker is occupied", || lines(&path).len() > before).await;
    call
}

fn pool(pit: &Pit) -> Pool {
    pit.pools()[0].clone()
}

/// Spawns a call that writes its key to a file. Returns when the call is in the queue.
async fn enqueue(pit: &Pit, key: &str, priority: i8) -> tokio::task::JoinHandle<Result<Value, CallError>> {
    let depth = pool(pit).queued();
    let args = args! { path: pit.file("order"), key: key };
    let call = tokio::spawn(pit.call::<Value>("mark", args).priority(priority).into_future());
    until("it waits", || pool(pit).queued() > depth).await;
    call
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_served_by_priority_and_then_by_age() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let first = occupy(&pit, 1.0).await;
    let mut calls = Vec::new();
    for (key, priority) in
        [("c1", 0), ("e1", -5), ("a1", 100), ("c2", 0), ("b1", 7), ("a2", 100), ("e2", -5), ("c3", 0)]
    {
        calls.push(enqueue(&pit, key, priority).await);
    }
    assert!(soon("the first", first).await.expect("no panic").is_ok());
    for call in calls {
        assert!(soon("a call", call).await.expect("no panic").is_ok());
    }
    assert_eq!(lines(&pit.file("order")), ["a1", "a2", "b1", "c1", "c2", "c3", "e1", "e2"]);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn saturation_is_an_immediate_error_that_says_the_depth() {
    let pit = Pit::start(worker("hostile.py").workers(1).queue_limit(3)).await;
    let first = occupy(&pit, 1.0).await;
    let mut calls = Vec::new();
    for key in ["a", "b", "c"] {
        calls.push(enqueue(&pit, key, 0).await);
    }
    let began = Instant::now();
    let error = pit.call::<Value>("pid", args! {}).await.expect_err("saturated");
    println!("saturated after {:?}", began.elapsed());
    assert!(matches!(error, CallError::Saturated { depth: 3, .. }), "{error}");
    assert!(
        error.to_string().contains("3 calls wait") && error.to_string().contains("queue_limit"),
        "{error}"
    );
    assert!(soon("the first", first).await.expect("no panic").is_ok());
    for call in calls {
        assert!(soon("a call", call).await.expect("no panic").is_ok());
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waits_too_long_says_so_and_is_never_run() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let first = occupy(&pit, 1.0).await;
    let args = args! { path: pit.file("order"), key: "late" };
    let call = pit.call::<Value>("mark", args).queue_timeout(Duration::from_millis(50));
    let error = soon("the call", call).await.expect_err("no worker");
    assert!(matches!(error, CallError::QueueTimeout { .. }), "{error}");
    assert!(error.to_string().contains("queue_timeout"), "{error}");
    assert_eq!(pool(&pit).queued(), 0);
    assert!(soon("the first", first).await.expect("no panic").is_ok());
    let _: Value = soon("another", pit.call("pid", args! {})).await.expect("a pid");
    assert!(lines(&pit.file("order")).is_empty());
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_away_leaves_nothing_in_the_queue() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let first = occupy(&pit, 1.0).await;
    for number in 0..100 {
        let call = enqueue(&pit, &number.to_string(), 0).await;
        call.abort();
        assert!(call.await.is_err_and(|error| error.is_cancelled()));
        assert_eq!(pool(&pit).queued(), 0);
    }
    assert!(soon("the first", first).await.expect("no panic").is_ok());
    let _: Value = soon("another", pit.call("pid", args! {})).await.expect("a pid");
    assert!(lines(&pit.file("order")).is_empty());
    assert_eq!((pool(&pit).queued(), pool(&pit).in_flight()), (0, 0));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_calls_wait_and_are_all_served() {
    let all = rounds(100_000);
    let pit = Pit::start(worker("hostile.py").workers(2).queue_limit(all).queue_timeout(support::SOON)).await;
    let began = Instant::now();
    let mut calls: FuturesUnordered<_> =
        (0..all).map(|number| pit.call::<usize>("echo", args! { value: number }).into_future()).collect();
    let mut sum = 0;
    while let Some(value) = calls.next().await {
        sum += value.expect("a value");
    }
    println!("{all} calls in {:?}", began.elapsed());
    assert_eq!(sum, all * (all - 1) / 2);
    assert_eq!(pool(&pit).queued(), 0);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_calls_that_wait_can_all_go_away() {
    let all = rounds(100_000);
    let pit = Pit::start(worker("hostile.py").workers(1).queue_limit(all)).await;
    let first = occupy(&pit, 600.0).await;
    let mut calls: Vec<_> =
        (0..all).map(|number| pit.call::<usize>("echo", args! { value: number }).into_future()).collect();
    // Each is begun, and none is over.
    for call in &mut calls {
        assert!(futures_util::FutureExt::now_or_never(call).is_none());
    }
    assert_eq!(pool(&pit).queued(), all);
    drop(calls);
    assert_eq!(pool(&pit).queued(), 0);
    first.abort();
    pit.end_now().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_short_calls_starves_no_call_of_unknown_length() {
    let pit = Pit::start(worker("hostile.py").workers(1).queue_timeout(Duration::from_secs(5))).await;
    // So many callers that the worker always holds a call of theirs.
    let callers = (0..64).map(|_| {
        let pit = pit.clone();
        tokio::spawn(async move {
            loop {
                pit.call::<u32>("echo", args! { value: 1 }).await.expect("a value");
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    let pool = pool(&pit);
    until("the short calls flow", || pool.workers()[0].calls > 2000).await;
    let before = pool.workers()[0].calls;
    for _ in 0..10 {
        let call =
            pit.call::<Value>("mark_and_sleep", args! { path: pit.file("x"), key: "x", seconds: 0.01 });
        let _ = soon("the call", call).await.expect("its turn");
    }
    // The calls that were there before it go first, and so do those that the worker already held.
    let others = (pool.workers()[0].calls - before) / 10;
    println!("{others} short calls went before each");
    assert!(others < 64 + 128 + 64, "{others} went first");
    callers.iter().for_each(tokio::task::JoinHandle::abort);
    futures_util::future::join_all(callers).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_call_is_not_sent_ahead_past_an_earlier_long_one() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    // Both appear to be short now.
    for _ in 0..100 {
        let _: Value = soon("a nap", pit.call("sleep", args! { seconds: 0.0 })).await.expect("slept");
        let _: Value = soon("an echo", pit.call("echo", args! { value: 1 })).await.expect("a value");
    }
    let first = tokio::spawn(pit.call::<Value>("sleep", args! { seconds: 1.0 }).into_future());
    until("it is under way", || pool(&pit).in_flight() == 1).await;
    let long = enqueue(&pit, "long", 0).await;
    let mut short = Box::pin(pit.call::<Value>("echo", args! { value: 1 }).into_future());
    assert!(futures_util::FutureExt::now_or_never(&mut short).is_none());
    assert_eq!(pool(&pit).queued(), 2, "the short one went ahead");
    assert!(soon("the first", first).await.expect("no panic").is_ok());
    assert!(soon("the long one", long).await.expect("no panic").is_ok());
    assert!(soon("the short one", short).await.is_ok());
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_possible_timeouts_do_not_overflow() {
    let pool = worker("hostile.py").workers(1).queue_timeout(Duration::MAX).call_timeout(Duration::MAX);
    let pit = Pit::start(pool.session_ttl(Duration::MAX).stream_timeout(Duration::MAX)).await;
    let echoed: u32 = soon("the call", pit.call("echo", args! { value: 1 })).await.expect("a value");
    assert_eq!(echoed, 1);
    let call = pit.call::<f64>("sleep", args! { seconds: 0.3 });
    let call = call.timeout(Duration::MAX).queue_timeout(Duration::from_millis(10));
    assert!(soon("the call", call).await.is_ok());
    let stream = pit.stream::<u32>("count", args! { n: 3 }).open().expect("a stream");
    assert_eq!(soon("the stream", stream.count()).await, 3);
    soon("the stop", pit.stop_within(Duration::MAX)).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_pool_is_named_with_the_existing_ones() {
    let builder = snakepit::Snakepit::builder()
        .pool(worker("hostile.py").name("first").workers(1))
        .pool(worker("basic.py").name("second").workers(1));
    let pit = Pit::build(builder).await;
    let error = pit.call::<Value>("pid", args! {}).pool("third").await.expect_err("no such pool");
    assert!(matches!(error, CallError::NoSuchPool { .. }));
    assert!(error.to_string().contains("third") && error.to_string().contains("first, second"), "{error}");
    let sum: u32 = pit.call("add", args! { a: 1, b: 2 }).pool("second").await.expect("a sum");
    assert_eq!(sum, 3);
    let error = pit.call::<Value>("add", args! { a: 1, b: 2 }).await.expect_err("another pool's command");
    assert_eq!(error.remote().map(|error| error.kind.as_str()), Some("unknown_command"));
    assert!(pit.pool("second").is_some() && pit.pool("third").is_none());
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_low_priority_has_its_turn_under_steady_load() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let path = pit.file("order");
    let caller = |_| {
        let (pit, path) = ((*pit).clone(), path.clone());
        tokio::spawn(async move {
            loop {
                let args = args! { path: path.as_str(), key: "high", seconds: 0.05 };
                let _: Value = pit.call("mark_and_sleep", args).priority(2).await.expect("served");
            }
        })
    };
    // At least one call always waits.
    let callers: Vec<_> = (0..4).map(caller).collect();
    until("others wait", || pool(&pit).queued() >= 2).await;
    let args = args! { path: path.as_str(), key: "low" };
    let low = pit.call::<Value>("mark", args).priority(0).queue_timeout(support::SOON);
    soon("the low one", low).await.expect("it has its turn");
    let before = lines(&path).iter().position(|key| key == "low").expect("it was run");
    assert!(before > 4, "a higher priority goes first: {before}");
    callers.iter().for_each(tokio::task::JoinHandle::abort);
    pit.end_now().await;
}
