//! The caller's trace passes through workers and tools and back.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use futures_util::StreamExt;
use snakepit::telemetry::{Event, TraceContext, subscribe};
use snakepit::{CallError, PoolOptions, Snakepit, args};

use crate::support::{Pit, chain, python, soon, worker};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Returns a distinct trace in the same form.
fn trace(number: usize) -> String {
    format!("00-{:032x}-{:016x}-01", number + 1, number + 1000)
}

fn pool(concurrency: usize) -> PoolOptions {
    worker("traces.py").workers(1).concurrency(concurrency)
}

fn asynchronous() -> PoolOptions {
    snakepit::python(python("traces.py").env("ASYNC", "1")).workers(1).concurrency(4)
}

fn context(text: &str) -> TraceContext {
    TraceContext::new(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Starts a pit whose tool `nested` calls `where` in the pit itself.
async fn with_nested_tool(pool: PoolOptions) -> Pit {
    let shared: Arc<OnceLock<Snakepit>> = Arc::default();
    let inside = Arc::clone(&shared);
    let builder = Snakepit::builder().pool(pool).tool("nested", move |(): (), _| {
        let pit = inside.get().cloned().expect("it is started");
        async move { pit.call::<Option<String>>("where", args! {}).await }
    });
    let pit = Pit::build(builder).await;
    let _ = shared.set((*pit).clone());
    pit
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trace_of_a_call_reaches_its_code_in_the_loop_in_threads_and_in_tasks() {
    for pool in [pool(1), pool(3), asynchronous()] {
        let pit = Pit::start(pool).await;
        let call = pit.call::<Option<String>>("where", args! {});
        assert_eq!(soon("a call", call).await.expect("an answer"), None);
        let calls = (0..40).map(|number| {
            let parent = trace(number);
            let call = pit.call::<String>("where", args! {}).traceparent(&parent).into_future();
            async move { (call.await.expect("an answer"), parent) }
        });
        for (seen, parent) in soon("all calls", futures_util::future::join_all(calls)).await {
            assert_eq!(seen, parent);
        }
        let call = pit.call::<Option<String>>("where", args! {});
        assert_eq!(soon("a call", call).await.expect("an answer"), None, "nothing is left of the others");
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trace_goes_with_streams_sessions_and_maps() {
    for concurrency in [1, 2] {
        let pit = Pit::start(pool(concurrency)).await;
        let stream = pit.stream::<String>("everywhere", args! { n: 3 }).traceparent(PARENT);
        let items: Vec<_> = soon("a stream", stream.open().expect("it opens").collect::<Vec<_>>()).await;
        assert_eq!(items.into_iter().map(|item| item.expect("an item")).collect::<Vec<_>>(), [PARENT; 3]);
        let call = pit.call::<String>("where", args! {}).session("s").traceparent(PARENT);
        assert_eq!(soon("a call", call).await.expect("an answer"), PARENT);
        let map = pit.map::<(u64, String), _>("where_with", 0..50u64).traceparent(PARENT);
        let outcomes: Vec<_> = soon("a map", map.in_order().expect("it begins").collect::<Vec<_>>()).await;
        assert_eq!(outcomes.len(), 50);
        for (outcome, number) in outcomes.into_iter().zip(0..) {
            assert_eq!(outcome.expect("an answer"), (number, PARENT.to_owned()));
        }
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_with_traces_travel_together_and_alone_each_has_its_own() {
    for concurrency in [1, 2] {
        let pit = Pit::start(pool(concurrency)).await;
        // The first call is sent at once, and the others are gathered meanwhile.
        let calls = (0..9).map(|number| {
            let call = pit.call::<(usize, String)>("together", args! { value: number });
            call.traceparent(trace(number)).into_future()
        });
        let answers = soon("all calls", futures_util::future::join_all(calls)).await;
        let answers: Vec<_> = answers.into_iter().map(|answer| answer.expect("an answer")).collect();
        assert!(answers.iter().any(|(size, _)| *size > 1), "some travelled together: {answers:?}");
        let known: HashSet<String> = (0..9).map(trace).collect();
        assert!(answers.iter().all(|(_, seen)| known.contains(seen)), "{answers:?}");
        let calls = (0..9).map(|number| {
            pit.call::<String>("each_alone", args! { value: number }).traceparent(trace(number)).into_future()
        });
        let answers = soon("all calls", futures_util::future::join_all(calls)).await;
        for (answer, number) in answers.into_iter().zip(0..) {
            assert_eq!(answer.expect("an answer"), trace(number));
        }
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_span_of_the_worker_is_a_child_of_the_callers() {
    for pool in [pool(1), pool(2), asynchronous()] {
        let pit = Pit::start(pool).await;
        let mut events = subscribe();
        let call = pit.call::<[String; 4]>("spans", args! {}).traceparent(PARENT);
        let seen = soon("a call", call).await.expect("an answer");
        assert_eq!((&*seen[0], &*seen[3]), (PARENT, PARENT));
        let spans: Vec<_> = spans_among(&events.drain());
        let [inner, outer] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!((&inner["name"], &outer["name"]), (&"inner".into(), &"outer".into()));
        let caller = context(PARENT);
        assert_eq!(outer["trace_id"], caller.trace_id());
        assert_eq!(outer["parent_id"], caller.span_id());
        assert_eq!(outer["span_id"], context(&seen[1]).span_id());
        assert_eq!(inner["parent_id"], outer["span_id"]);
        assert_eq!(inner["span_id"], context(&seen[2]).span_id());
        assert_eq!(outer["attributes"], r#"{"rows": 3, "kind": "test"}"#);
        assert!(outer["took"].as_f64() >= inner["took"].as_f64(), "{spans:?}");
        assert!(outer["worker"].as_str().is_some_and(|worker| worker.starts_with("traces")), "{outer}");
        pit.end().await;
    }
}

fn spans_among(events: &[Event]) -> Vec<serde_json::Value> {
    let spans = events.iter().filter(|event| event.name() == "snakepit.worker.span");
    spans.map(|event| serde_json::to_value(event).expect("JSON")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_span_ended_by_an_exception_names_it_and_may_start_a_trace() {
    let pit = Pit::start(pool(1)).await;
    let mut events = subscribe();
    let call = pit.call::<String>("fails_in_a_span", args! {});
    soon("a call", call).await.expect_err("it fails");
    let spans = spans_among(&events.drain());
    assert_eq!(
        (&spans[0]["error"], &spans[0]["parent_id"]),
        (&"ValueError".into(), &serde_json::Value::Null)
    );
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_one_loop_keep_their_traces_apart() {
    let pit = Pit::start(asynchronous()).await;
    let calls = (0..12).map(|number| {
        pit.call::<Vec<String>>("meet", args! { n: 5 }).traceparent(trace(number)).into_future()
    });
    let answers = soon("all calls", futures_util::future::join_all(calls)).await;
    for (answer, number) in answers.into_iter().zip(0..) {
        let seen = answer.expect("an answer");
        assert_eq!((&seen[0], &seen[6]), (&trace(number), &trace(number)));
        let own = context(&seen[0]);
        assert!(seen[1..6].iter().all(|span| context(span).trace_id() == own.trace_id()), "{seen:?}");
        assert_eq!(seen.iter().collect::<HashSet<_>>().len(), 6, "each step has a span: {seen:?}");
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_tool_belong_to_the_trace_of_the_call_that_uses_the_tool() {
    for pool in [pool(1), pool(3)] {
        let pit = with_nested_tool(pool).await;
        let call = pit.call::<String>("ask_plainly", args! { tool: "nested" }).traceparent(PARENT);
        assert_eq!(soon("a call", call).await.expect("an answer"), PARENT);
        // Called from inside a span, the nested call is a child of that span.
        let call = pit.call::<[String; 3]>("ask", args! { tool: "nested" }).traceparent(PARENT);
        let [span, nested, after] = soon("a call", call).await.expect("an answer");
        assert_ne!(span, PARENT);
        assert_eq!((&nested, &after), (&span, &span));
        assert_eq!(context(&span).trace_id(), context(PARENT).trace_id());
        let call = pit.call::<Option<String>>("ask_plainly", args! { tool: "nested" });
        assert_eq!(soon("a call", call).await.expect("an answer"), None);
        pit.end().await;
    }
    let pit = with_nested_tool(asynchronous()).await;
    let call = pit.call::<[String; 2]>("ask_and_wait", args! { tool: "nested" }).traceparent(PARENT);
    let [span, nested] = soon("a call", call).await.expect("an answer");
    assert_eq!(span, nested);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_inside_a_scope_belong_to_its_trace_unless_they_say_otherwise() {
    let pit = Pit::start(pool(1)).await;
    let scope = context(PARENT).with_state("vendor=1").expect("valid");
    let (inside, said) = scope
        .scope(async {
            let inside = soon("a call", pit.call::<String>("where", args! {})).await;
            let said = pit.call::<String>("where", args! {}).traceparent(trace(7)).tracestate("a=b");
            (inside, soon("a call", said).await)
        })
        .await;
    assert_eq!((&*inside.expect("an answer"), said.expect("an answer")), (PARENT, trace(7)));
    let outside = pit.call::<Option<String>>("where", args! {});
    assert_eq!(soon("a call", outside).await.expect("an answer"), None);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_traceparent_is_refused_with_an_error_that_names_it() {
    let pit = Pit::start(pool(1)).await;
    let call = pit.call::<String>("where", args! {}).traceparent("00-abc-def-01");
    let error = soon("a call", call).await.expect_err("refused");
    assert!(matches!(error, CallError::Trace { .. }), "{error:?}");
    assert_eq!(
        chain(&error),
        "where was not called, because its trace context is invalid: \"00-abc-def-01\" is not a traceparent: \
         it is too short; it looks like 00-<32 hex digits>-<16 hex digits>-01"
    );
    let call = pit.call::<String>("where", args! {}).traceparent(PARENT).tracestate("nonsense");
    let error = soon("a call", call).await.expect_err("refused");
    assert!(chain(&error).contains("\"nonsense\" is not a tracestate"), "{}", chain(&error));
    let stream = pit.stream::<String>("everywhere", args! { n: 1 }).traceparent("x").open();
    assert!(matches!(stream.err(), Some(CallError::Trace { .. })));
    let map = pit.map::<String, _>("where_with", 0..3).traceparent("x").in_order();
    assert!(matches!(map.err(), Some(CallError::Trace { .. })));
    assert_eq!(pit.pools()[0].status().await.outcomes.refused, 3, "a map that does not begin is not counted");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_call_names_its_trace() {
    let pit = Pit::start(pool(1)).await;
    let mut events = subscribe();
    let call = pit.call::<String>("where", args! {}).traceparent(PARENT);
    soon("a call", call).await.expect("an answer");
    let heard = events.drain();
    let stop = heard.iter().find(|event| event.name() == "snakepit.call.stop").expect("its end");
    let stop = serde_json::to_value(stop).expect("JSON");
    assert_eq!(stop["trace_id"], context(PARENT).trace_id());
    pit.end().await;
}
