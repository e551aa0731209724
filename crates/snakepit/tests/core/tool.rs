//! Workers call tools of the host, and tools call workers, without waiting for each other forever.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt;
use serde::Deserialize;
use snakepit::pool::CancelGrace;
use snakepit::{Builder, CallError, PoolOptions, Snakepit, Value, args};

use crate::support::{self, Pit, soon, until, worker};

#[derive(Deserialize)]
struct Number {
    n: u64,
}

#[derive(Deserialize)]
struct Levels {
    levels: u32,
}

/// A pit that its own tools can call.
#[derive(Clone, Default)]
struct Later(Arc<OnceLock<Snakepit>>);

impl Later {
    fn pit(&self) -> Snakepit {
        self.0.get().expect("a pit").clone()
    }
}

fn with_tools(builder: Builder) -> Builder {
    builder
        .tool("double", |number: Number, _| async move { Ok::<_, Infallible>(number.n * 2) })
        .tool("nothing", |(): (), _| async move { Ok::<_, Infallible>(()) })
        .tool("fails", |(): (), _| async move { Err::<(), _>("the disk is full") })
        .tool("panics", |(): (), _| async move {
            assert!(std::hint::black_box(false), "this tool is broken");
            Ok::<_, Infallible>(())
        })
        .tool("huge", |(): (), _| async move { Ok::<_, Infallible>("x".repeat(2 << 20)) })
        .tool("who", |(): (), context: snakepit::call::ToolContext| async move {
            Ok::<_, Infallible>(format!("{} of {}", context.command, context.pool))
        })
        .tool_stream("numbers", |number: Number, _| {
            futures_util::stream::iter((0..number.n).map(Ok::<_, Infallible>))
        })
        .tool_stream("breaks", |(): (), _| futures_util::stream::iter([Ok(1), Ok(2), Err("no third")]))
}

/// An error whose text does not include its cause, as is usual in Rust.
#[derive(Debug, thiserror::Error)]
#[error("the settings cannot be read")]
struct Unreadable(#[source] std::num::ParseIntError);

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_tools_and_nested_calls_name_their_causes_and_no_types_of_rust() {
    let later = Later::default();
    let nested = later.clone();
    let builder = Snakepit::builder()
        .pool(worker("tools.py").workers(2))
        .tool("text", |(): (), _| async move { Err::<(), _>("the disk is full".to_owned()) })
        .tool("boxed", |(): (), _| async move {
            let cause = "x".parse::<u8>().expect_err("no number");
            Err::<(), Box<dyn std::error::Error + Send + Sync>>(Unreadable(cause).into())
        })
        .tool("nested", move |(): (), _| {
            let pit = nested.pit();
            async move { pit.call::<Value>("raises", args! { text: "no such row" }).await }
        })
        .tool("unfit", |(): (), _| async move {
            let source = snakepit::value::Encoded::encode(&"a").expect("a text").decode::<u8>();
            let source = source.expect_err("no number");
            Err::<(), _>(CallError::Result { command: "inner".into(), source })
        });
    let pit = Pit::build(builder).await;
    assert!(later.0.set((*pit).clone()).is_ok());
    for (tool, words) in [
        ("text", vec!["the disk is full"]),
        ("boxed", vec!["the settings cannot be read", "invalid digit"]),
        ("nested", vec!["ValueError", "no such row"]),
        ("unfit", vec!["the result of inner does not have the expected type", "found a string"]),
    ] {
        let asked = pit.call::<Value>("ask", args! { tool: tool, args: args! {} });
        let error = soon(tool, asked).await.expect_err("it fails");
        let told = support::chain(&error);
        for word in words {
            assert!(told.contains(word), "{tool}: {word:?} is not in {told}");
        }
        for name in ["alloc::", "snakepit::call", "core::", "CallError", "dyn "] {
            assert!(!told.contains(name), "{tool}: {told}");
        }
    }
    drop(later);
    pit.end().await;
}

async fn pit_of(pool: PoolOptions) -> Pit {
    Pit::build(with_tools(Snakepit::builder().pool(pool))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn sync_and_async_commands_call_and_stream() {
    for (file, concurrency) in [("tools.py", 1), ("tools.py", 3), ("asynchronous.py", 3)] {
        let pit = pit_of(worker(file).workers(1).concurrency(concurrency)).await;
        let call = pit.call::<u64>("ask", args! { tool: "double", args: args! { n: 21 } });
        assert_eq!(soon("the call", call).await.expect("a number"), 42);
        let call = pit.call::<Vec<u64>>("read", args! { tool: "numbers", args: args! { n: 5000 } });
        assert_eq!(soon("the stream", call).await.expect("numbers"), (0..5000).collect::<Vec<_>>());
        let call = pit.call::<String>("ask", args! { tool: "who", args: args! {} });
        assert!(soon("the call", call).await.expect("a text").starts_with("ask of "));
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_tools_than_may_run_at_a_time_wait_in_the_worker_and_all_are_answered() {
    let pit = pit_of(worker("asynchronous.py").workers(1).concurrency(8)).await;
    let call = |times: u64| {
        pit.call::<Vec<u64>>("ask_together", args! { tool: "double", times: times }).into_future()
    };
    let answers = soon("the calls", futures_util::future::join(call(5000), call(2000))).await;
    assert_eq!(answers.0.expect("numbers"), (0..5000).map(|n| n * 2).collect::<Vec<_>>());
    assert_eq!(answers.1.expect("numbers"), (0..2000).map(|n| n * 2).collect::<Vec<_>>());
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tools_run_at_the_same_time() {
    let pit = pit_of(worker("asynchronous.py").workers(1).concurrency(8)).await;
    // All of them together are fewer than the number that a worker may have under way.
    let calls = (0..8)
        .map(|_| pit.call::<Vec<u64>>("ask_together", args! { tool: "double", times: 120 }).into_future());
    for answer in soon("the calls", futures_util::future::join_all(calls)).await {
        assert_eq!(answer.expect("numbers"), (0..120).map(|n| n * 2).collect::<Vec<_>>());
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_tools_arrive_as_host_errors() {
    let pit = pit_of(worker("tools.py").workers(1).max_frame(1 << 20)).await;
    let error_of = |tool: &'static str, args: snakepit::value::Args| {
        pit.call::<(String, String, String)>("error_of", args! { tool: tool, args: args }).into_future()
    };
    let (kind, message) =
        soon("the call", error_of("fails", args! {})).await.map(|e| (e.1, e.2)).expect("told");
    assert_eq!((kind.as_str(), message.as_str()), ("exception", "the disk is full"));
    let (class, kind, message) = soon("the call", error_of("no_such_tool", args! {})).await.expect("told");
    assert_eq!((class.as_str(), kind.as_str()), ("HostError", "unknown_command"));
    assert!(message.contains("no_such_tool") && message.contains("double, fails"), "{message}");
    assert!(!message.contains("snakepit."), "{message}");
    let (_, kind, message) = soon("the call", error_of("double", args! { m: 1 })).await.expect("told");
    assert!(kind == "bad_argument" && message.contains('n'), "{message}");
    let (_, _, message) = soon("the call", error_of("panics", args! {})).await.expect("told");
    assert!(message.contains("this tool is broken"), "{message}");
    let (_, kind, message) = soon("the call", error_of("huge", args! {})).await.expect("told");
    assert!(kind == "bad_value" && message.contains("max_frame"), "{message}");
    let call = pit.call::<Value>("read", args! { tool: "breaks", args: args! {} });
    let error = soon("the stream", call).await.expect_err("an error");
    assert!(error.to_string().contains("no third"), "{error}");
    assert_eq!(pit.pools()[0].workers()[0].id, "tools-1", "it is the first one still");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_a_tool_is_taken_as_slowly_as_it_is_read_and_ends_early() {
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let builder =
        Snakepit::builder().pool(worker("tools.py").workers(1)).tool_stream("endless", move |(): (), _| {
            let count = Arc::clone(&count);
            futures_util::stream::iter(0u64..).map(move |n| {
                count.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Infallible>(n)
            })
        });
    let pit = Pit::build(builder).await;
    let call = pit.call::<Vec<u64>>("read_some", args! { tool: "endless", args: args! {}, items: 10 });
    assert_eq!(soon("the call", call).await.expect("numbers").len(), 10);
    let made = made.load(Ordering::Relaxed);
    assert!(made <= 10_000, "{made} items for a reader of 10");
    pit.end().await;
}

/// Starts a pool of one worker whose tool calls it again. Returns the pit, and the handle for the tool.
async fn recursive(pool: PoolOptions) -> (Pit, Later) {
    let later = Later::default();
    let (down, twice, map) = (later.clone(), later.clone(), later.clone());
    let builder = Snakepit::builder()
        .pool(pool.queue_timeout(Duration::from_secs(5)))
        .tool("down", move |levels: Levels, _| {
            let pit = down.pit();
            async move { pit.call::<u32>("down", args! { levels: levels.levels }).await }
        })
        .tool("twice", move |(): (), _| {
            let pit = twice.pit();
            async move {
                let first: u32 = pit.call("echo", args! { value: 1 }).await?;
                let second: u32 = pit.call("echo", args! { value: 2 }).await?;
                Ok::<_, CallError>(first + second)
            }
        })
        .tool("map", move |(): (), _| {
            let pit = map.pit();
            async move {
                let map = pit.map::<u32, _>("echo", 0..10).in_order()?;
                let values: Vec<Result<u32, CallError>> = map.collect().await;
                values.into_iter().sum::<Result<u32, CallError>>()
            }
        });
    let pit = Pit::build(builder).await;
    assert!(later.0.set((*pit).clone()).is_ok());
    (pit, later)
}

#[tokio::test(flavor = "multi_thread")]
async fn nested_calls_to_a_full_pool_of_one_are_served_inside() {
    for (concurrency, file) in [(1, "tools.py"), (2, "tools.py")] {
        let (pit, _later) = recursive(worker(file).workers(1).concurrency(concurrency)).await;
        let depth = soon("down", pit.call::<u32>("down", args! { levels: 10 })).await;
        assert_eq!(depth.expect("ten levels"), 10);
        // One after another, in one tool: each has the place again.
        let call = pit.call::<Vec<u32>>("ask_twice", args! { tool: "twice", args: args! {} });
        assert_eq!(soon("twice", call).await.expect("served"), [3, 3]);
        let call = pit.call::<u32>("ask", args! { tool: "map", args: args! {} });
        assert_eq!(soon("a map", call).await.expect("served"), 45);
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn recursion_without_an_end_is_refused_and_the_cycle_named() {
    let (pit, _later) = recursive(worker("tools.py").workers(1)).await;
    let error = soon("down", pit.call::<u32>("down", args! { levels: 1000 })).await.expect_err("too deep");
    let told = error.to_string();
    assert!(told.contains("tools.down → tool down → tools.down"), "{told}");
    assert!(told.contains("16 calls already wait"), "{told}");
    let echoed: u32 = soon("the next", pit.call("echo", args! { value: 1 })).await.expect("a value");
    assert_eq!(echoed, 1);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pools_that_call_each_other_do_not_deadlock() {
    let later = Later::default();
    let (ping, pong) = (later.clone(), later.clone());
    let pool = |name: &str| worker("tools.py").name(name).workers(1).queue_timeout(Duration::from_secs(20));
    let builder = Snakepit::builder().pool(pool("left")).pool(pool("right")).tool(
        "pong",
        move |levels: Levels, context: snakepit::call::ToolContext| {
            let pit = ping.pit();
            let other = if &*context.pool == "left" { "right" } else { "left" };
            async move { pit.call::<u32>("ping", args! { levels: levels.levels }).pool(other).await }
        },
    );
    let pit = Pit::build(builder).await;
    assert!(pong.0.set((*pit).clone()).is_ok());
    let calls = (0..40).map(|n| {
        let first = if n % 2 == 0 { "left" } else { "right" };
        pit.call::<u32>("ping", args! { levels: 6 }).pool(first).into_future()
    });
    for answer in soon("the calls", futures_util::future::join_all(calls)).await {
        assert_eq!(answer.expect("six levels"), 6);
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_lets_a_call_finish_that_needs_another_pool() {
    let later = Later::default();
    let (inner, asked) = (later.clone(), Arc::new(tokio::sync::Notify::new()));
    let told = Arc::clone(&asked);
    let builder = Snakepit::builder()
        .pool(worker("tools.py").name("outer").workers(1))
        .pool(worker("tools.py").name("inner").workers(1))
        .tool("later", move |(): (), _| {
            let (pit, told) = (inner.pit(), Arc::clone(&told));
            async move {
                told.notify_one();
                // Long after the idle pool has learned of the stop.
                tokio::time::sleep(Duration::from_secs(1)).await;
                pit.call::<u32>("echo", args! { value: 7 }).pool("inner").await
            }
        });
    let pit = Pit::build(builder).await;
    assert!(later.0.set((*pit).clone()).is_ok());
    let call = tokio::spawn(pit.call::<u32>("ask", args! { tool: "later", args: args! {} }).into_future());
    soon("the tool", asked.notified()).await;
    soon("the stop", pit.stop()).await;
    assert_eq!(soon("the call", call).await.expect("no panic").expect("finished"), 7);
    pit.prove_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_ends_with_the_call_that_asked_it() {
    struct Dropped(Arc<AtomicUsize>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (begun, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let grace = CancelGrace::default().ask(Duration::from_millis(50));
    for (file, concurrency) in [("tools.py", 1), ("tools.py", 2), ("asynchronous.py", 2)] {
        let (tool_begun, tool_dropped) = (Arc::clone(&begun), Arc::clone(&dropped));
        let pool = worker(file).workers(1).concurrency(concurrency).cancel_grace(grace);
        let builder = Snakepit::builder().pool(pool).tool("endless", move |(): (), _| {
            tool_begun.fetch_add(1, Ordering::SeqCst);
            let guard = Dropped(Arc::clone(&tool_dropped));
            async move {
                let () = std::future::pending().await;
                drop(guard);
                Ok::<_, Infallible>(())
            }
        });
        let pit = Pit::build(builder).await;
        let before = (begun.load(Ordering::SeqCst), dropped.load(Ordering::SeqCst));
        let call =
            tokio::spawn(pit.call::<Value>("ask", args! { tool: "endless", args: args! {} }).into_future());
        until("the tool runs", || begun.load(Ordering::SeqCst) > before.0).await;
        call.abort();
        until("the tool is ended", || dropped.load(Ordering::SeqCst) > before.1).await;
        assert_eq!(pit.pools()[0].workers().len(), 1);
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_floods_the_host_with_tool_calls_is_served_and_survived() {
    let builder = Snakepit::builder().pool(support::raw("tool_flood")).tool("slow", |(): (), _| async move {
        let () = std::future::pending().await;
        Ok::<_, Infallible>(())
    });
    let pit = Pit::build(builder).await;
    let answer: String = soon("the call", pit.call("any", args! {})).await.expect("an answer");
    assert_eq!(answer, "ok");
    let answer: String = soon("the call", pit.call("any", args! {})).await.expect("an answer");
    assert_eq!(answer, "ok");
    pit.end().await;
}
