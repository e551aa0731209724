//! Streams of large items: the buffered bytes are bounded in both directions, whatever the other side does.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt;
use snakepit::value::Blob;
use snakepit::{PoolOptions, Snakepit, Value, args};

use crate::support::{Pit, fault_of, raw, rounds, soon, until, worker};

const MIB: usize = 1 << 20;

/// Returns how many items the worker has made, according to its own record.
fn made(path: &str) -> usize {
    std::fs::read_to_string(path).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("resident memory");
    line.split_whitespace().nth(1).expect("a number").parse::<usize>().expect("a number") * 1024
}

/// Returns the workers that stream: one call at a time, in threads, and in tasks.
fn kinds() -> [PoolOptions; 3] {
    ["hostile.py", "hostile.py", "asynchronous.py"]
        .map(worker)
        .into_iter()
        .zip([1, 2, 2])
        .map(|(pool, concurrency)| pool.workers(1).concurrency(concurrency))
        .collect::<Vec<_>>()
        .try_into()
        .expect("three")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_of_large_items_slows_the_generator_and_memory_stays_flat() {
    const SIZE: usize = 8 * MIB;
    for pool in kinds() {
        let pit = Pit::start(pool).await;
        let all = rounds(100);
        let path = pit.file("made");
        let before = resident();
        let arguments = args! { n: all, size: SIZE, path: path.as_str() };
        let mut stream = pit.stream::<Blob>("blobs", arguments).open().expect("a stream");
        let mut most = 0;
        for read in 0..all {
            // One item may be unread, and the generator may hold another. It gets that far, and no further.
            until("it has made what it may", || made(&path) >= (read + 2).min(all)).await;
            let item = soon("an item", stream.next()).await.expect("more").expect("an item");
            assert!(made(&path) <= read + 3, "{} made, {read} read", made(&path));
            assert_eq!((item.len(), item[0]), (SIZE, u8::try_from(read % 256).expect("a byte")));
            most = most.max(resident().saturating_sub(before));
        }
        assert!(soon("the end", stream.next()).await.is_none());
        println!("{all} items of {} MiB: at most {} MiB more", SIZE / MIB, most / MIB);
        assert!(most < 8 * SIZE, "{most} bytes");
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_caller_sets_how_many_bytes_are_sent_ahead() {
    const SIZE: usize = 100_000;
    for pool in kinds() {
        let pit = Pit::start(pool).await;
        let path = pit.file("made");
        let arguments = args! { n: 40, size: SIZE, path: path.as_str() };
        let stream = pit.stream::<Blob>("blobs", arguments).credit_bytes(5 * SIZE as u64);
        let mut stream = stream.open().expect("a stream");
        // An item is a little longer on the wire, so five reach the limit.
        for read in 0..40 {
            let item = soon("an item", stream.next()).await.expect("more").expect("an item");
            assert_eq!(item.len(), SIZE);
            assert!(made(&path) <= read + 8, "{} made, {read} read", made(&path));
        }
        assert!(soon("the end", stream.next()).await.is_none());
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn small_and_large_items_take_turns_and_all_arrive() {
    // The two counts run out at different times. Whichever it is, the stream goes on.
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    for (items, bytes) in [(1, 1), (1, 1 << 30), (3, 5000), (1000, 1), (7, 70_000)] {
        for size in [4, 4000, 40_000] {
            let path = pit.file("made");
            let arguments = args! { n: 50, size: size, path: path.as_str() };
            let stream = pit.stream::<Blob>("blobs", arguments).credit(items).credit_bytes(bytes);
            let items = soon("the items", stream.open().expect("a stream").collect::<Vec<_>>()).await;
            assert_eq!(items.len(), 50);
            assert!(items.into_iter().all(|item| item.expect("an item").len() == size));
        }
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_sends_more_bytes_than_it_may_is_ended() {
    let pit = Pit::start(raw("bytes_beyond_credit")).await;
    let pool = pit.pools()[0].clone();
    let first = pool.workers()[0].pid;
    let stream = pit.stream::<Value>("any", args! {}).open().expect("a stream");
    until("it is replaced", || pool.workers().iter().any(|worker| worker.pid != first)).await;
    let outcomes: Vec<_> = soon("the stream", stream.collect()).await;
    // Four items reach the 4 MiB that it may send, the fifth is the fault, and the error comes last.
    assert!(outcomes.len() <= 6, "{} of a hundred items were kept", outcomes.len());
    let error = outcomes.last().and_then(|last| last.as_ref().err()).expect("an error at the end");
    assert!(fault_of(error).contains("more bytes"), "{error}");
    pit.end().await;
}

/// Returns a tool that streams items of this size without end, and counts them.
fn endless(pool: PoolOptions, size: usize, made: &Arc<AtomicUsize>) -> snakepit::Builder {
    let made = Arc::clone(made);
    Snakepit::builder().pool(pool).tool_stream("endless", move |(): (), _| {
        let made = Arc::clone(&made);
        futures_util::stream::repeat_with(move || {
            made.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Infallible>(Blob::from(vec![7; size]))
        })
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_produces_large_items_only_as_they_are_read() {
    for (file, concurrency) in [("tools.py", 1), ("tools.py", 3), ("asynchronous.py", 3)] {
        let made = Arc::new(AtomicUsize::new(0));
        let read = AtomicUsize::new(0);
        let most = Arc::new(AtomicUsize::new(0));
        let (seen, ahead) = (Arc::clone(&made), Arc::clone(&most));
        let pool = worker(file).workers(1).concurrency(concurrency);
        let builder = endless(pool, 4 * MIB, &made).tool("between", move |(): (), _| {
            let read = read.fetch_add(1, Ordering::SeqCst) + 1;
            let (seen, ahead) = (Arc::clone(&seen), Arc::clone(&ahead));
            async move {
                // The next item is made while the worker is here. One more would be too much.
                until("the next is made", || seen.load(Ordering::SeqCst) > read).await;
                ahead.fetch_max(seen.load(Ordering::SeqCst) - read, Ordering::SeqCst);
                Ok::<_, Infallible>(())
            }
        });
        let pit = Pit::build(builder).await;
        let arguments = args! { tool: "endless", between: "between", items: 20 };
        assert_eq!(soon("the call", pit.call::<u32>("read_between", arguments)).await.expect("a number"), 20);
        assert_eq!(most.load(Ordering::SeqCst), 1, "{file}");
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_cannot_be_sent_ends_the_stream_of_a_tool() {
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let pool = worker("tools.py").workers(1).max_frame(MIB);
    let builder = endless(pool, 2 * MIB, &made).tool("made", move |(): (), _| {
        let count = count.load(Ordering::SeqCst);
        async move { Ok::<_, Infallible>(count) }
    });
    let pit = Pit::build(builder).await;
    let call = pit.call::<(String, usize)>("read_to_error", args! { tool: "endless", then: "made" });
    assert_eq!(soon("the call", call).await.expect("an error"), ("bad_value".to_owned(), 1));
    pit.end().await;
}
