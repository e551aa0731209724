//! Mock workers: a pool without processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use snakepit::adapter::Mock;
use snakepit::call::RemoteErrorKind;
use snakepit::{CallError, PoolOptions, Snakepit, Value, args};

use crate::support::{self, rounds, soon, until};

fn mock() -> Mock {
    Mock::new()
        .command("echo", |args| async move { Ok(args.get("value").cloned().unwrap_or(args)) })
        .command("fails", |_| async move { Err("it is a mock".into()) })
        .command("never", |_| async move {
            let () = std::future::pending().await;
            Ok(Value::Nil)
        })
}

async fn pit(pool: PoolOptions) -> Snakepit {
    Snakepit::builder().pool(pool).start().await.expect("an engine")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mock_answers_fails_and_lists_its_commands() {
    let pit = pit(snakepit::mock(mock()).workers(2)).await;
    assert!(pit.run().is_none(), "no process, no custody");
    let echoed: u32 = soon("the call", pit.call("echo", args! { value: 7 })).await.expect("a value");
    assert_eq!(echoed, 7);
    let error = soon("the call", pit.call::<Value>("fails", args! {})).await.expect_err("an error");
    assert_eq!(error.remote().map(|error| error.message.as_str()), Some("it is a mock"));
    let error = soon("the call", pit.call::<Value>("eco", args! {})).await.expect_err("no such command");
    let remote = error.remote().expect("a remote error");
    assert!(
        remote.kind == RemoteErrorKind::UnknownCommand && remote.message.contains("echo, fails, never"),
        "{error}"
    );
    assert_eq!(pit.pools()[0].commands(), ["echo", "fails", "never"]);
    soon("the stop", pit.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mock_streams_maps_times_out_and_is_cancelled() {
    let pit = pit(snakepit::mock(mock()).workers(1)).await;
    let stream = pit.stream::<u32>("echo", args! { value: 7 }).open().expect("a stream");
    let items: Vec<_> = soon("the stream", stream.collect::<Vec<_>>()).await;
    assert!(matches!(items.as_slice(), [Ok(7)]), "{items:?}");
    let inputs = (0..100).map(|n| args! { value: n });
    let map = pit.map::<u32, _>("echo", inputs).in_order().expect("a map");
    let values: Vec<u32> = soon("the map", map.map(|value| value.expect("a value")).collect()).await;
    assert_eq!(values, (0..100).collect::<Vec<_>>());
    let call = pit.call::<Value>("never", args! {}).timeout(Duration::from_millis(50));
    let error = soon("the call", call).await.expect_err("no time");
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    let echoed: u32 =
        soon("the next", pit.call("echo", args! { value: 1 })).await.expect("its place is free");
    assert_eq!(echoed, 1);
    soon("the stop", pit.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_of_a_mock_that_panics_fails_its_call_only() {
    let mock = mock().command("panics", |_| async move {
        assert!(std::hint::black_box(false), "a broken mock");
        Ok(Value::Nil)
    });
    let pit = pit(snakepit::mock(mock).workers(1)).await;
    let error = soon("the call", pit.call::<Value>("panics", args! {})).await.expect_err("a panic");
    println!("{error}");
    let echoed: u32 = soon("the next", pit.call("echo", args! { value: 1 })).await.expect("a value");
    assert_eq!(echoed, 1);
    soon("the stop", pit.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_immediate_answers_do_not_overflow_the_stack() {
    let all = rounds(100_000);
    let open = Arc::new(tokio::sync::Semaphore::new(0));
    let gate = Arc::clone(&open);
    let mock = mock().command("gate", move |_| {
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire().await.map_err(Box::new)?.forget();
            Ok(Value::Nil)
        }
    });
    let pit = pit(snakepit::mock(mock).workers(1).queue_limit(all).queue_timeout(support::SOON)).await;
    let first = tokio::spawn(pit.call::<Value>("gate", args! {}).into_future());
    let pool = pit.pools()[0].clone();
    until("it is under way", || pool.in_flight() == 1).await;
    // An unknown command is answered before a worker has it.
    let mut calls: Vec<_> =
        (0..all).map(|_| Box::pin(pit.call::<Value>("unknown", args! {}).into_future())).collect();
    for call in &mut calls {
        assert!(futures_util::FutureExt::now_or_never(call).is_none());
    }
    open.add_permits(1);
    assert!(soon("the first", first).await.expect("no panic").is_ok());
    let refused = AtomicUsize::new(0);
    for call in calls {
        assert!(soon("a call", call).await.is_err());
        refused.fetch_add(1, Ordering::Relaxed);
    }
    assert_eq!(refused.into_inner(), all);
    soon("the stop", pit.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_with_calls_that_never_end_is_bounded() {
    let pit = pit(snakepit::mock(mock()).workers(2)).await;
    let call = || tokio::spawn(pit.call::<Value>("never", args! {}).into_future());
    let calls = [call(), call(), call()];
    let pool = pit.pools()[0].clone();
    until("they are there", || pool.in_flight() == 2 && pool.queued() == 1).await;
    soon("the stop", pit.stop_within(Duration::from_millis(50))).await;
    for call in calls {
        assert!(soon("a call", call).await.expect("no panic").is_err());
    }
}
