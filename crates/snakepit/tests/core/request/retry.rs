//! Idempotent calls are retried when their worker is lost, and only then.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use snakepit::call::RemoteErrorKind;
use snakepit::policy::{NoRetry, Retry};
use snakepit::pool::Affinity;
use snakepit::telemetry::Event;
use snakepit::{CallError, PoolOptions, Value, args};

use crate::support::{Pit, at_once, heard, runs_of, soon, until, worker};

fn pool() -> PoolOptions {
    worker("fatal.py").workers(1).restarts(at_once()).quarantine(None).retry(quick())
}

fn quick() -> Retry {
    Retry::default().first_pause(Duration::from_millis(5)).longest_pause(Duration::from_millis(5))
}

/// Returns how often the call was made, and why it was not made again.
fn given_up(error: &CallError) -> (u32, Option<NoRetry>) {
    match error {
        CallError::WorkerDied { attempts, no_retry, .. } => (*attempts, *no_retry),
        other => panic!("not a death: {other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotent_call_is_retried_until_it_is_answered() {
    let pit = Pit::start(pool()).await;
    let pool = pit.pools()[0].clone();
    let mut events = pool.events();
    let path = pit.file("runs");
    let call = pit.call::<u64>("dies", args! { path: path.as_str(), times: 2 }).idempotent();
    assert_eq!(soon("the call", call).await.expect("answered at last"), 3);
    for expected in [2, 3] {
        let (command, attempt) = heard(&mut events, |event| match event {
            Event::CallRetried { command, attempt, .. } => Some((command, attempt)),
            _ => None,
        })
        .await;
        assert_eq!((&*command, attempt), ("dies", expected));
    }
    let outcomes = pool.outcomes();
    assert_eq!((outcomes.ok, outcomes.retried, outcomes.calls()), (1, 2, 1), "{outcomes:?}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retried_call_keeps_its_progress_and_session() {
    let pit = Pit::start(pool().workers(2).affinity(Affinity::StrictQueue)).await;
    let path = pit.file("runs");
    let call = pit.call::<u64>("dies", args! { path: path.as_str(), times: 1 });
    let call = call.idempotent().session("s").on_progress(|_| {});
    assert_eq!(soon("the call", call).await.expect("answered by another one"), 2);
    assert_eq!(pit.call::<u32>("echo", args! { value: 1 }).session("s").await.expect("served"), 1);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_not_idempotent_is_not_retried() {
    let pit = Pit::start(pool()).await;
    let path = pit.file("runs");
    let call = pit.call::<u64>("dies", args! { path: path.as_str(), times: 1 });
    let error = soon("the call", call).await.expect_err("a death");
    assert_eq!(given_up(&error), (1, None), "{error}");
    assert!(!error.to_string().contains("again"), "{error}");
    assert_eq!((runs_of(&path), pit.pools()[0].outcomes().retried), (1, 0));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_that_the_worker_answered_is_not_retried() {
    let pit = Pit::start(pool()).await;
    let path = pit.file("runs");
    let call = pit.call::<Value>("raises", args! { path: path.as_str() }).idempotent();
    let error = soon("the call", call).await.expect_err("an exception");
    assert!(error.remote().is_some(), "{error}");
    assert_eq!(runs_of(&path), 1);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_after_the_last_attempt_says_how_often_the_call_was_made() {
    let pit = Pit::start(pool()).await;
    let path = pit.file("runs");
    let call = pit.call::<u64>("dies", args! { path: path.as_str(), times: 100 }).idempotent();
    let error = soon("the call", call).await.expect_err("deaths");
    assert_eq!(given_up(&error), (3, Some(NoRetry::Attempts)), "{error}");
    assert!(error.to_string().contains("made 3 times and not again"), "{error}");
    assert_eq!(runs_of(&path), 3);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_deadline_holds_for_all_attempts() {
    let pit = Pit::start(pool().retry(quick().attempts(u32::MAX).reserve(100_000))).await;
    let path = pit.file("runs");
    let timeout = Duration::from_secs(2);
    let began = Instant::now();
    let call = pit.call::<u64>("dies", args! { path: path.as_str(), times: 100_000 });
    let error = soon("the call", call.idempotent().timeout(timeout)).await.expect_err("deaths");
    assert!(began.elapsed() < timeout + Duration::from_secs(2), "{:?}", began.elapsed());
    match &error {
        CallError::WorkerDied { attempts, no_retry, .. } => {
            let in_time = matches!(no_retry, Some(NoRetry::Deadline | NoRetry::Queue));
            assert!(*attempts > 1 && in_time, "{error}");
        }
        // It reached its deadline at a worker.
        CallError::Timeout { after, .. } => assert_eq!(*after, timeout),
        CallError::Remote(remote) => assert_eq!(remote.kind, RemoteErrorKind::Deadline, "{error}"),
        other => panic!("{other}"),
    }
    assert!(runs_of(&path) > 1);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_never_exceed_the_budget() {
    const CALLS: usize = 12;
    let stingy = quick().attempts(100).ratio(0.0).reserve(2);
    let pit = Pit::start(pool().workers(2).retry(stingy)).await;
    let pool = pit.pools()[0].clone();
    let began = Instant::now();
    let paths: Vec<_> = (0..CALLS).map(|number| pit.file(&format!("runs-{number}"))).collect();
    let calls = paths.iter().map(|path| {
        pit.call::<u64>("dies", args! { path: path.as_str(), times: 1000 }).idempotent().into_future()
    });
    for outcome in soon("the storm", futures_util::future::join_all(calls)).await {
        let error = outcome.expect_err("deaths");
        assert_eq!(given_up(&error).1, Some(NoRetry::Budget), "{error}");
    }
    // The reserve, and one for each second.
    let most = 2 + began.elapsed().as_secs() + 1;
    let retried = pool.outcomes().retried;
    assert!((2..=most).contains(&retried), "{retried} of {most}");
    let made: u64 = paths.iter().map(|path| runs_of(path)).sum();
    assert_eq!(made, CALLS as u64 + retried);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_retried_before_its_first_item() {
    let pit = Pit::start(pool()).await;
    let path = pit.file("runs");
    let args = args! { path: path.as_str(), times: 2, items: 5000 };
    let stream = pit.stream::<u32>("stream", args).credit(16).idempotent().open().expect("a stream");
    let items: Vec<_> =
        soon("the stream", stream.map(|item| item.expect("an item")).collect::<Vec<_>>()).await;
    assert_eq!(items, (0..5000).collect::<Vec<_>>());
    assert_eq!((runs_of(&path), pit.pools()[0].outcomes().retried), (3, 2));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_not_retried_after_its_first_item() {
    let pit = Pit::start(pool()).await;
    let path = pit.file("runs");
    let stream = pit.stream::<u32>("breaks_off", args! { path: path.as_str(), items: 3 });
    // With a credit of one, the second item is sent when the first has been read.
    let mut stream = stream.credit(1).idempotent().open().expect("a stream");
    let mut read = 0;
    let error = loop {
        match soon("the next item", stream.next()).await.expect("no end before the error") {
            Ok(item) => {
                assert_eq!(item, read);
                read += 1;
            }
            Err(error) => break error,
        }
    };
    assert!(read > 0);
    assert_eq!(given_up(&error), (1, Some(NoRetry::Delivered)), "{error}");
    assert_eq!(runs_of(&path), 1);
    assert!(soon("the end", stream.next()).await.is_none());
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_inputs_of_an_idempotent_map_are_retried() {
    let pit = Pit::start(pool().workers(2)).await;
    let path = pit.file("runs");
    let of = path.clone();
    let inputs = (0..60).map(move |value| args! { path: of.as_str(), value: value, fatal: 17, times: 1 });
    let map = pit.map::<u32, _>("dies_of", inputs).chunk(10).idempotent().in_order().expect("a map");
    let values: Vec<_> = soon("the map", map.map(|value| value.expect("a value")).collect::<Vec<_>>()).await;
    assert_eq!(values, (0..60).collect::<Vec<_>>());
    assert_eq!(runs_of(&path), 2);
    let outcomes = pit.pools()[0].outcomes();
    // Only the fatal input is run again: the answers of those before it were kept.
    assert_eq!((outcomes.ok, outcomes.calls(), outcomes.retried), (60, 60, 1), "{outcomes:?}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_that_kills_its_worker_fails_alone_in_an_idempotent_map() {
    let pit = Pit::start(pool().workers(2)).await;
    let path = pit.file("runs");
    let of = path.clone();
    let inputs = (0..60).map(move |value| args! { path: of.as_str(), value: value, fatal: 17, times: 100 });
    let map = pit.map::<u32, _>("dies_of", inputs).chunk(10).idempotent().in_order().expect("a map");
    let outcomes: Vec<_> = soon("the map", map.collect::<Vec<_>>()).await;
    assert_eq!(outcomes.len(), 60);
    for (input, outcome) in (0u32..).zip(outcomes) {
        match outcome {
            Ok(value) => assert_eq!(value, input),
            Err(error) => {
                assert_eq!(input, 17, "{error}");
                assert_eq!(given_up(&error), (3, Some(NoRetry::Attempts)), "{error}");
            }
        }
    }
    assert_eq!(runs_of(&path), 3);
    let outcomes = pit.pools()[0].outcomes();
    assert_eq!((outcomes.ok, outcomes.died, outcomes.calls()), (59, 1, 60), "{outcomes:?}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_dropped_between_attempts_leaves_nothing_behind() {
    let hour = Duration::from_hours(1);
    let patient = Retry::default().first_pause(hour * 100).longest_pause(hour * 100);
    let pit = Pit::start(pool().retry(patient)).await;
    let pool = pit.pools()[0].clone();
    let mut events = pool.events();
    let path = pit.file("runs");
    let call = pit.call::<u64>("dies", args! { path: path.as_str(), times: 1 });
    let call = tokio::spawn(call.idempotent().timeout(hour * 1000).into_future());
    heard(&mut events, |event| matches!(event, Event::WorkerReady { .. }).then_some(())).await;
    assert_eq!(pool.outcomes().calls(), 0, "it is not over");
    call.abort();
    assert!(call.await.expect_err("aborted").is_cancelled());
    let outcomes = pool.outcomes();
    assert_eq!((outcomes.cancelled, outcomes.calls(), outcomes.retried), (1, 1, 0), "{outcomes:?}");
    assert_eq!((pool.queued(), pool.in_flight(), runs_of(&path)), (0, 0, 1));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_pool_retries_nothing() {
    let pit = Pit::start(pool().retry(quick().attempts(u32::MAX).reserve(100_000))).await;
    let pool = pit.pools()[0].clone();
    let path = pit.file("runs");
    let call = pit.call::<u64>("dies", args! { path: path.as_str(), times: 100_000 });
    let call = tokio::spawn(call.idempotent().into_future());
    until("it was made twice", || runs_of(&path) >= 2).await;
    pit.end().await;
    let error = soon("the call", call).await.expect("no panic").expect_err("stopped");
    assert!(matches!(error, CallError::WorkerDied { .. } | CallError::Stopped), "{error}");
    assert_eq!(pool.outcomes().calls(), 1);
}
