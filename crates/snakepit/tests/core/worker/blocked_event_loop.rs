//! Calls behind a blocked event loop have not started and move to another worker.
//!
//! About `crates/adapters/src/transport/slate.rs`, `crates/adapters/src/stdio/stdin.rs` and
//! `crates/core/src/adapter/held_calls/end.rs`.

use std::time::Duration;

use futures_util::future::join_all;
use snakepit::pool::CancelGrace;
use snakepit::telemetry::Event;
use snakepit::{CallError, PoolOptions, Value, args};

use crate::support::{self, Pit, heard, lines, soon, until, worker};

fn impatient(pool: PoolOptions) -> PoolOptions {
    let grace = CancelGrace::each(Duration::from_millis(300))
        .ask(Duration::from_millis(100))
        .raise(Duration::from_millis(200));
    pool.workers(1).concurrency(4).cancel_grace(grace)
}

/// Lets one call block the loop and run out of time. The calls that come meanwhile have much more time.
async fn others_go_on(pool: PoolOptions) {
    let pit = Pit::start(impatient(pool)).await;
    let mut events = pit.pools()[0].events();
    let path = pit.file("begun");
    let late = Duration::from_millis(500);
    let blocked = tokio::spawn(pit.call::<Value>("block", args! { path: &path }).timeout(late).into_future());
    until("the loop is blocked", || !lines(&path).is_empty()).await;
    let others = (0..3).map(|_| pit.call::<Value>("nap", args! { seconds: 0.0 }).timeout(5 * support::SOON));
    let others = tokio::spawn(join_all(others.map(IntoFuture::into_future).collect::<Vec<_>>()));
    let error = soon("the blocked call", blocked).await.expect("no panic").expect_err("too late");
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    for answer in soon("the others", others).await.expect("no panic") {
        answer.expect("it was not begun, and another worker does it");
    }
    heard(&mut events, |event| matches!(event, Event::WorkerIgnoresCancel { .. }).then_some(())).await;
    assert_eq!(lines(&path).iter().filter(|line| *line == "started").count(), 1, "nothing was begun twice");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_behind_a_blocked_event_loop_go_to_another_worker() {
    others_go_on(worker("asynchronous.py")).await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg(feature = "stdio")]
async fn calls_in_the_pipe_of_a_blocked_worker_go_to_another_worker() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/workers/lines_async.py");
    others_go_on(snakepit::stdio(["python3", file]).name("lines")).await;
}

/// They were read together with the call that blocks the loop, and their first instruction has not run.
#[tokio::test(flavor = "multi_thread")]
async fn calls_read_but_not_begun_go_to_another_worker() {
    let pit = Pit::start(impatient(worker("asynchronous.py"))).await;
    let path = pit.file("begun");
    // The loop is held up until all of them are in the socket.
    let held_up =
        tokio::spawn(pit.call::<Value>("hold_up", args! { path: &path, seconds: 0.5 }).into_future());
    until("the loop is held up", || !lines(&path).is_empty()).await;
    let late = Duration::from_secs(1);
    let blocked = tokio::spawn(pit.call::<Value>("block", args! { path: &path }).timeout(late).into_future());
    until("it is sent", || pit.pools()[0].in_flight() == 2).await;
    let others = (0..2).map(|_| pit.call::<Value>("nap", args! { seconds: 0.0 }).timeout(5 * support::SOON));
    let others = tokio::spawn(join_all(others.map(IntoFuture::into_future).collect::<Vec<_>>()));
    soon("the first", held_up).await.expect("no panic").expect("it ends");
    soon("the blocked call", blocked).await.expect("no panic").expect_err("too late");
    for answer in soon("the others", others).await.expect("no panic") {
        answer.expect("it could not begin, and another worker does it");
    }
    pit.end().await;
}
