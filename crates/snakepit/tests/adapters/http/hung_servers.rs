//! A web server that hangs after a timed-out call gets TERM and KILL, and the check for stuck workers finds it.
//!
//! About `crates/adapters/src/http/cancellation.rs` and `crates/policy/src/liveness.rs`.

use std::time::Duration;

use futures_util::StreamExt;
use snakepit::policy::{Stuck, WhenStuck};
use snakepit::pool::CancelGrace;
use snakepit::telemetry::Event;
use snakepit::{CallError, PoolOptions, Value, args};

use crate::support::{self, Pit, heard, lines, pids, soon, until};

const PATIENCE: CancelGrace =
    CancelGrace::each(Duration::from_millis(200)).terminate(Duration::from_millis(300));

fn server() -> PoolOptions {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/workers/http_async.py");
    snakepit::http(["python3", file]).name("server").workers(1)
}

/// Returns the process that answers a call.
async fn who(pit: &Pit) -> u32 {
    soon("the call", pit.call::<u32>("pid", args! {})).await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_in_a_call_that_timed_out_is_replaced() {
    let pit = Pit::start(server().cancel_grace(PATIENCE)).await;
    let mut events = pit.pools()[0].events();
    let (path, before) = (pit.file("begun"), who(&pit).await);
    let call = pit.call::<Value>("block", args! { path: &path }).timeout(Duration::from_millis(500));
    let error = soon("the call", call).await.expect_err("too late");
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    let called = heard(&mut events, |event| match event {
        Event::WorkerIgnoresCancel { call, .. } => Some(call),
        _ => None,
    })
    .await;
    assert!(called > 0);
    assert_ne!(who(&pit).await, before);
    until("it is gone", || !support::runs(before)).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_in_a_stream_that_nobody_reads_is_replaced() {
    let pit = Pit::start(server().cancel_grace(PATIENCE)).await;
    let before = who(&pit).await;
    let path = pit.file("begun");
    let mut stream = pit.stream::<u32>("stream_then_block", args! { path: &path }).open().expect("a stream");
    assert_eq!(soon("an item", stream.next()).await.expect("an item").expect("an item"), 1);
    until("it hangs", || !lines(&path).is_empty()).await;
    drop(stream);
    assert_ne!(who(&pit).await, before);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_is_replaced_if_the_policy_says_so() {
    let stuck = Stuck::default().after(Duration::from_secs(1)).then(WhenStuck::Replace);
    let pit = Pit::start(server().stuck(stuck)).await;
    let mut events = pit.pools()[0].events();
    let (path, before) = (pit.file("begun"), who(&pit).await);
    let call = pit.call::<Value>("block", args! { path: &path });
    let error = soon("the call", call).await.expect_err("its worker is replaced");
    assert!(error.to_string().contains("no sign of life"), "{error}");
    heard(&mut events, |event| matches!(event, Event::WorkerStuck { .. }).then_some(())).await;
    assert_ne!(who(&pit).await, before);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_health_of_a_pool_names_a_server_that_hangs() {
    let pit = Pit::start(server().stuck(Stuck::default().after(Duration::from_secs(1)))).await;
    let pool = pit.pools()[0].clone();
    let (path, before) = (pit.file("begun"), pids(&pool));
    let call = tokio::spawn(pit.call::<Value>("block", args! { path: &path }).into_future());
    until("it hangs", || !lines(&path).is_empty()).await;
    let told = || support::trouble(&pool).is_some_and(|trouble| trouble.contains("no sign of life"));
    until("the pool says so", told).await;
    assert_eq!(pids(&pool), before, "it is left alone");
    call.abort();
    pit.end_now().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_server_is_left_alone() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/workers/http_server.py");
    let pool = snakepit::http(["python3", file, "port"]).name("server").workers(1);
    let pool =
        pool.cancel_grace(PATIENCE).stuck(Stuck::default().after(Duration::ZERO).then(WhenStuck::Replace));
    let pit = Pit::start(pool).await;
    let (path, before) = (pit.file("said"), pids(&pit.pools()[0]));
    let call = pit.call::<Value>("hang", args! { path: &path }).timeout(Duration::from_secs(4));
    let error = soon("the call", call).await.expect_err("too late");
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    assert_eq!(soon("the call", pit.call::<Vec<i64>>("echo", args![1])).await.expect("it serves on"), [1]);
    assert_eq!(pids(&pit.pools()[0]), before);
    pit.end().await;
}
