//! A slow reader slows the generator down, memory stays flat, and every stream reports how it ended.

use std::time::Duration;

use futures_util::StreamExt;
use snakepit::pool::CancelGrace;
use snakepit::{CallError, Value, args};

use crate::support::{Pit, lines, rounds, soon, until, worker};

fn progress(path: &str) -> usize {
    std::fs::read_to_string(path).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_slows_the_generator() {
    for file in ["hostile.py", "asynchronous.py"] {
        let pit = Pit::start(worker(file).workers(1)).await;
        let path = pit.file("far");
        let stream = pit.stream::<usize>("counted", args! { path: path.as_str() }).credit(10);
        let mut stream = stream.open().expect("a stream");
        for n in 0..100 {
            assert_eq!(soon("an item", stream.next()).await.expect("more").expect("an item"), n);
            // It may be one item ahead of what it may send, but never more.
            let far = progress(&path);
            assert!(far <= n + 12, "{far} made, {n} read");
        }
        until("it has made what was read", || progress(&path) >= 99).await;
        drop(stream);
        let end = format!("{path}.end");
        until("the generator is told", || !lines(&end).is_empty()).await;
        println!("{file}: {:?}", lines(&end));
        let pool = pit.pools()[0].clone();
        until("nothing is left of it", || pool.in_flight() == 0).await;
        assert!(progress(&path) < 200);
        pit.end().await;
    }
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("resident memory");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_stays_flat_over_a_million_items() {
    let all = rounds(1_000_000);
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let worker_memory = || pit.call::<u64>("memory", args! {}).into_future();
    let mut stream = pit.stream::<usize>("count", args! { n: all / 10 }).open().expect("a stream");
    while let Some(item) = stream.next().await {
        item.expect("an item");
    }
    let before = (resident(), soon("memory", worker_memory()).await.expect("a number"));
    let mut stream = pit.stream::<usize>("count", args! { n: all }).open().expect("a stream");
    let mut sum = 0;
    while let Some(item) = stream.next().await {
        sum += item.expect("an item");
    }
    assert_eq!(sum, all * (all - 1) / 2);
    let after = (resident(), soon("memory", worker_memory()).await.expect("a number"));
    println!("host and worker, KiB: {before:?} before, {after:?} after {all} items");
    assert!(after.0 < before.0 + 32 * 1024 && after.1 < before.1 + 16 * 1024);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_cannot_be_sent_ends_the_stream_and_names_the_place() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let stream = pit.stream::<Value>("bad_item", args! { good: 3 }).open().expect("a stream");
    let items: Vec<_> = soon("the stream", stream.collect::<Vec<_>>()).await;
    assert_eq!(items.len(), 4);
    let error = items[3].as_ref().expect_err("an error");
    let remote = error.remote().expect("a remote error");
    assert_eq!(
        (remote.kind.as_str(), remote.path.as_deref()),
        ("bad_value", Some("item.rows[1].price")),
        "{error}"
    );
    let error = soon("the call", pit.call::<Value>("bad_result", args! {})).await.expect_err("an error");
    assert_eq!(
        error.remote().and_then(|error| error.path.as_deref()),
        Some("result.rows[1].price"),
        "{error}"
    );
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn items_come_before_the_error_that_ends_them() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let stream = pit.stream::<u32>("failing_stream", args! { good: 100 }).open().expect("a stream");
    let items: Vec<_> = soon("the stream", stream.collect::<Vec<_>>()).await;
    assert_eq!(items.iter().filter(|item| item.is_ok()).count(), 100);
    let error = items[100].as_ref().expect_err("an error");
    assert_eq!(error.remote().map(|error| error.message.as_str()), Some("no more"));
    let stream = pit.stream::<u32>("dying_stream", args! { good: 5 }).open().expect("a stream");
    let items: Vec<_> = soon("the stream", stream.collect::<Vec<_>>()).await;
    let error = items.last().expect("an end").as_ref().expect_err("a death");
    assert!(error.autopsy().is_some(), "{error}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_of_another_type_ends_the_stream_and_the_call() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let path = pit.file("far");
    let stream = pit.stream::<String>("counted", args! { path: path.as_str() }).open().expect("a stream");
    let items: Vec<_> = soon("the stream", stream.collect::<Vec<_>>()).await;
    assert!(matches!(items.as_slice(), [Err(CallError::Result { .. })]), "{items:?}");
    until("the generator is told", || !lines(&format!("{path}.end")).is_empty()).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_a_plain_command_has_one_item_and_a_plain_call_of_a_generator_fails() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let stream = pit.stream::<u32>("echo", args! { value: 7 }).open().expect("a stream");
    let items: Vec<_> = soon("the stream", stream.collect::<Vec<_>>()).await;
    assert!(matches!(items.as_slice(), [Ok(7)]), "{items:?}");
    let error = soon("the call", pit.call::<Value>("count", args! { n: 3 })).await.expect_err("a stream");
    assert_eq!(error.remote().map(|error| error.kind.as_str()), Some("streaming"), "{error}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_reader_may_make_calls_between_items() {
    let pit = Pit::start(worker("hostile.py").workers(2)).await;
    // Cut short several times. The engine must not take a stream for a short call because of that.
    for _ in 0..20 {
        let mut stream = pit.stream::<u32>("count", args! { n: 100_000 }).credit(1).open().expect("a stream");
        let _ = soon("an item", stream.next()).await.expect("more").expect("an item");
    }
    let mut stream = pit.stream::<u32>("count", args! { n: 300 }).credit(2).open().expect("a stream");
    let busy = tokio::spawn(pit.call::<Value>("sleep", args! { seconds: 1.0 }).into_future());
    while let Some(item) = soon("an item", stream.next()).await {
        let value = item.expect("an item");
        let echoed: u32 = soon("the call", pit.call("echo", args! { value: value })).await.expect("a value");
        assert_eq!(echoed, value);
    }
    assert!(soon("the other", busy).await.expect("no panic").is_ok());
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_stream_frees_its_worker() {
    let grace = CancelGrace::default().ask(Duration::from_millis(100));
    let pit = Pit::start(worker("hostile.py").workers(1).cancel_grace(grace)).await;
    for _ in 0..20 {
        let stream = pit.stream::<u32>("count", args! { n: 1_000_000 }).credit(4).open().expect("a stream");
        drop(stream);
    }
    let _: Value = soon("the next", pit.call("pid", args! {})).await.expect("a pid");
    assert_eq!(pit.pools()[0].workers()[0].id, "hostile-1", "it is the first one still");
    pit.end().await;
}
