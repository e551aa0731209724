//! Calls, streams and maps with real Python workers.
//!
//! About `crates/core/src/request/builder.rs`, `crates/core/src/request/stream.rs` and
//! `crates/core/src/request/map/mod.rs`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use snakepit::custody::{Containment, CustodyOptions};
use snakepit::pool::HealthAnswer;
use snakepit::{CallError, Snakepit, Value, args};

use crate::support::{self, Pit, worker};

#[tokio::test(flavor = "multi_thread")]
async fn a_call_returns_its_value() {
    let pit = Pit::start(worker("basic.py").workers(2)).await;
    let sum: i64 = pit.call("add", args! { a: 1, b: 2 }).await.expect("a sum");
    assert_eq!(sum, 3);
    let sum: i64 = pit.call("add", args![1, 2]).await.expect("a sum");
    assert_eq!(sum, 3);
    let echoed: Value = pit.call("echo", args! { value: vec![1, 2] }).await.expect("a value");
    assert_eq!(echoed, Value::from(vec![Value::from(1), Value::from(2)]));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exception_arrives_with_type_message_traceback_and_cause() {
    let pit = Pit::start(worker("basic.py").workers(1)).await;
    let error = pit.call::<Value>("fail", args! { text: "why" }).await.expect_err("an exception");
    let remote = error.remote().expect("a remote error");
    assert_eq!((remote.type_name.as_deref(), remote.message.as_str()), (Some("ValueError"), "it failed"));
    assert!(remote.traceback.as_deref().is_some_and(|text| text.contains("basic.py")), "{remote:?}");
    let cause = remote.cause.as_deref().expect("a cause");
    assert_eq!((cause.type_name.as_deref(), cause.message.as_str()), (Some("KeyError"), "'why'"));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generator_streams_in_order() {
    let pit = Pit::start(worker("basic.py").workers(1)).await;
    let stream = pit.stream::<u32>("count", args! { n: 5000 }).credit(16).open().expect("a stream");
    let items: Vec<u32> = stream.map(|item| item.expect("an item")).collect().await;
    assert_eq!(items, (0..5000).collect::<Vec<_>>());
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_map_keeps_the_order_of_its_inputs() {
    let pit = Pit::start(worker("basic.py").workers(2)).await;
    let map = pit.map::<u64, _>("echo", 0u64..10_000).in_order().expect("a map");
    let values: Vec<u64> = map.map(|value| value.expect("a value")).collect().await;
    assert_eq!(values, (0..10_000).collect::<Vec<_>>());
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_fails_its_call_with_an_autopsy_and_is_replaced() {
    let pit = Pit::start(worker("basic.py").workers(1)).await;
    let error = pit.call::<Value>("die", args! { status: 7 }).await.expect_err("a death");
    let CallError::WorkerDied { autopsy, .. } = &error else { panic!("{error}") };
    assert_eq!(autopsy.exit.map(|exit| exit.status), Some(snakepit::custody::ExitStatus::Code(7)));
    assert_eq!(autopsy.output, ["about to die"]);
    let sum: i64 = pit.call("add", args! { a: 1, b: 2 }).await.expect("a new worker");
    assert_eq!(sum, 3);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_async_command_answers_too() {
    let pit = Pit::start(worker("basic.py").workers(1)).await;
    let sum: i64 = pit.call("async_add", args! { a: 1, b: 2 }).await.expect("a sum");
    assert_eq!(sum, 3);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_receives_the_progress_of_its_call() {
    let pit = Pit::start(worker("basic.py").workers(1)).await;
    let heard = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&heard);
    let call = pit.call::<u32>("steps", args! { n: 3 }).on_progress(move |progress| {
        note.lock().expect("no panic").push(progress);
    });
    assert_eq!(call.await.expect("a value"), 3);
    // Progress that comes faster than it is read is merged: the latest counts.
    let last = heard.lock().expect("no panic").pop().expect("progress was told");
    assert_eq!((last.fraction, last.text.as_deref()), (Some(1.0), Some("step 3")));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_worker_is_asked_for_its_health() {
    let pit = Pit::start(worker("basic.py").workers(3)).await;
    let answers = pit.pools()[0].check_health().await;
    let mut pids: Vec<i64> = Vec::new();
    for HealthAnswer { worker, answer, .. } in answers {
        pids.push(answer.unwrap_or_else(|error| panic!("{worker}: {error}"))["pid"].as_i64().expect("a pid"));
    }
    let mut expected: Vec<i64> =
        pit.pools()[0].workers().iter().filter_map(|worker| Some(i64::from(worker.pid?.as_raw()))).collect();
    pids.sort_unstable();
    expected.sort_unstable();
    assert_eq!(pids, expected);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_other_tiers_serve_calls_show_stacks_and_leave_nothing() {
    for tier in support::possible([Containment::Namespace, Containment::Group]) {
        let config = CustodyOptions::default().containment(tier);
        let pit = Pit::build_with(Snakepit::builder().pool(worker("basic.py").workers(1)), config).await;
        let sum: i64 = pit.call("add", args! { a: 1, b: 2 }).await.expect("a sum");
        assert_eq!(sum, 3);
        let late =
            pit.call::<Value>("sleep", args! { seconds: 30.0 }).timeout(Duration::from_millis(200)).await;
        let Err(CallError::Timeout { stack: Some(stack), .. }) = late else { panic!("{tier:?}: {late:?}") };
        assert!(stack.contains("in sleep"), "{tier:?}: {stack}");
        pit.end().await;
    }
}
