//! Checks of calls, and of what a worker learns besides its arguments.

use std::time::Duration;

use futures_util::future::join_all;

use crate::adapters::Subject;
use crate::adapters::test_engine::{TOOL, TestEngine, chain, or_panic, soon, until};
use crate::{Value, args};
use snakepit_core::worker::OutputStream;

pub(crate) async fn a_call_is_answered_with_its_result(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    for n in 0..50 {
        let sum: i64 = engine.get("add", args! { a: n, b: 1 }).await;
        assert_eq!(sum, n + 1);
    }
    engine.close().await;
}

pub(crate) async fn many_calls_at_once_get_their_own_answers(subject: &dyn Subject) {
    let engine = TestEngine::with(subject, |pool| pool.workers(2)).await;
    let calls = (0..200).map(|n| {
        let value = format!("value {n}");
        let engine = &engine;
        async move {
            let echoed: String = engine.get("echo", args! { value: &value }).await;
            assert_eq!(echoed, value, "a call got the answer of another one");
        }
    });
    join_all(calls).await;
    engine.close().await;
}

pub(crate) async fn calls_run_at_the_same_time_where_they_may(subject: &dyn Subject) {
    let engine = TestEngine::with(subject, |pool| pool.concurrency(4)).await;
    let mut waiting = Vec::new();
    for n in 0..3 {
        // Each call begins while the earlier ones are still running.
        waiting.push(engine.begin_wait(&format!("wait-{n}")).await);
    }
    engine.assert_serves().await;
    for wait in waiting {
        wait.finish().await;
    }
    engine.close().await;
}

pub(crate) async fn large_values_travel_both_ways(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    // The euro sign has three bytes in UTF-8, so pieces of a power of two do not end between characters.
    let large = "€uro".repeat(700_000);
    let echoed: String = engine.get("echo", args! { value: &large }).await;
    assert!(echoed == large, "{} bytes came back as {} others", large.len(), echoed.len());
    let list: Vec<u32> = (0..100_000).collect();
    let echoed: Vec<u32> = engine.get("echo", args! { value: &list }).await;
    assert!(echoed == list, "a long list came back as another one");
    engine.close().await;
}

pub(crate) async fn what_a_worker_prints_is_kept_and_harms_nothing(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let words = "a stray print, {\"status\": 17}";
    for _ in 0..20 {
        let printed: String = engine.get("print", args! { text: words }).await;
        assert_eq!(printed, "printed");
    }
    let worker = engine.pool().workers()[0].id.clone();
    until("what it printed is kept, from both of its streams", || {
        let lines = engine.pool().output(&worker).map(|output| output.lines).unwrap_or_default();
        let streams =
            |stream| lines.iter().filter(|line| line.stream == stream && line.text == words).count();
        streams(OutputStream::Stdout) == 20 && streams(OutputStream::Stderr) == 20
    })
    .await;
    engine.close_serving().await;
}

pub(crate) async fn a_worker_knows_how_much_time_is_left(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let call = engine.call::<f64>("deadline", args! {}).timeout(Duration::from_secs(100));
    let left = or_panic(soon("deadline", call).await, "deadline fails");
    assert!(left > 10_000.0 && left <= 100_000.0, "{left} ms of 100 s");
    engine.close().await;
}

pub(crate) async fn a_worker_knows_the_session(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let session = soon("session", engine.call::<Option<String>>("session", args! {}).session("mine")).await;
    assert_eq!(or_panic(session, "session fails").as_deref(), Some("mine"));
    let odd = soon("session", engine.call::<Option<String>>("session", args! {}).session("mine ")).await;
    assert!(
        odd.as_ref().map_or(true, |session| session.as_deref() == Some("mine ")),
        "a session of another name comes, or an error: {odd:?}"
    );
    let none: Option<String> = engine.get("session", args! {}).await;
    assert_eq!(none, None, "a call without a session has one");
    engine.close().await;
}

pub(crate) async fn a_worker_knows_what_the_caller_sent_along(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    // An unusual value either arrives unchanged or is rejected.
    for (tenant, may_fail) in
        [("acme & sons", false), ("Jörg & Söhne", true), (" acme ", true), ("a\nb", true)]
    {
        match soon("metadata", engine.call::<Value>("metadata", args! {}).metadata("tenant", tenant)).await {
            Ok(metadata) => assert_eq!(metadata.get("tenant").and_then(Value::as_str), Some(tenant)),
            Err(error) => assert!(may_fail, "metadata fails: {}", chain(&error)),
        }
    }
    engine.close().await;
}

pub(crate) async fn a_worker_uses_a_tool_of_the_host(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let sum: i64 = engine.get("use_tool", args! { tool: TOOL, a: 40, b: 2 }).await;
    assert_eq!(sum, 42);
    let error = engine.ask::<Value>("use_tool", args! { tool: "no_such_tool", a: 1, b: 2 }).await;
    assert!(error.is_err(), "a tool that does not exist answers {error:?}");
    engine.close_serving().await;
}
