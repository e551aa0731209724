//! A worker in plain JavaScript against the real host: the specification is enough for another language.
//!
//! About `crates/adapters/src/transport/mod.rs`.

use futures_util::StreamExt;
use snakepit::value::{Blob, DateTime, Map};
use snakepit::{Snakepit, Value, args};

use crate::support::Pit;

const WORKER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/javascript/worker.mjs");

async fn start() -> Pit {
    Pit::start(snakepit::command(["node", WORKER]).workers(1)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_and_their_values_round_trip() {
    let pit = start().await;
    assert_eq!(pit.call::<i64>("add", args! { a: 1, b: 2 }).await.expect("a sum"), 3);
    let value = Value::from(Map::from([
        (
            "list",
            Value::from(vec![Value::Nil, true.into(), (-1).into(), 1.5.into(), 2.0.into(), "text".into()]),
        ),
        ("big", (1u128 << 100).into()),
        ("at", DateTime::new(1_709_202_896_789_012, 7200).expect("an offset").into()),
        ("long", Value::Bytes(vec![7; 100_000].into())),
        ("short", Value::Bytes(vec![7; 10].into())),
    ]));
    assert_eq!(pit.call::<Value>("echo", &value).await.expect("the same"), value);
    let bytes = Blob::from(vec![1; 1 << 20]);
    assert_eq!(pit.call::<usize>("size", args! { bytes: bytes }).await.expect("a length"), 1 << 20);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_and_maps_arrive_in_order() {
    let pit = start().await;
    let stream = pit.stream::<u32>("count", args! { n: 1000 }).credit(16).open().expect("a stream");
    let items: Vec<u32> = stream.map(|item| item.expect("an item")).collect().await;
    assert_eq!(items, (0..1000).collect::<Vec<_>>());
    let sizes = vec![3 << 20; 10];
    let stream = pit.stream::<String>("letters", args! { sizes: sizes.as_slice() }).open().expect("a stream");
    let items: Vec<usize> = stream.map(|item| item.expect("an item").len()).collect().await;
    assert_eq!(items, sizes);
    let map = pit.map::<u64, _>("echo", 0u64..1000).in_order().expect("a map");
    let values: Vec<u64> = map.map(|value| value.expect("a value")).collect().await;
    assert_eq!(values, (0..1000).collect::<Vec<_>>());
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_carries_its_type_stack_and_cause() {
    let pit = start().await;
    let error = pit.call::<Value>("fail", args!["no"]).await.expect_err("an error");
    let remote = error.remote().expect("a remote error");
    assert_eq!((remote.type_name.as_deref(), remote.message.as_str()), (Some("RangeError"), "no"));
    assert!(remote.traceback.as_deref().is_some_and(|text| text.contains("worker.mjs")), "{remote:?}");
    assert_eq!(remote.cause.as_deref().and_then(|cause| cause.type_name.as_deref()), Some("TypeError"));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_of_the_host_is_called_and_a_stream_of_it_taken() {
    let builder = Snakepit::builder()
        .pool(snakepit::command(["node", WORKER]).workers(1))
        .tool("double", |(number,): (i64,), _| async move { Ok::<_, String>(number * 2) })
        .tool_stream("rows", |(): (), _| futures_util::stream::iter((1..=100).map(Ok::<i64, String>)));
    let pit = Pit::build(builder).await;
    let asked = args! { tool: "double", args: [21] };
    assert_eq!(pit.call::<i64>("ask", asked).await.expect("an answer"), 42);
    let summed = args! { tool: "rows", args: () };
    assert_eq!(pit.call::<i64>("sum", summed).await.expect("a sum"), 5050);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_knows_no_traces_serves_calls_that_have_one() {
    let pit = start().await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let call = pit.call::<i64>("add", args! { a: 1, b: 2 }).traceparent(trace).tracestate("a=b");
    assert_eq!(call.await.expect("a sum"), 3);
    let map = pit.map::<u64, _>("echo", 0u64..100).traceparent(trace).in_order().expect("a map");
    assert_eq!(map.filter_map(|value| async move { value.ok() }).count().await, 100);
    pit.end().await;
}
