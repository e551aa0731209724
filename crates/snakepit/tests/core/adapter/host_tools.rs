//! How many tool calls a worker may make at a time, and what happens to a worker that exceeds the limit.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use snakepit::pool::CancelGrace;
use snakepit::value::Blob;
use snakepit::{Builder, CallError, PoolOptions, RemoteError, Snakepit, Value, args};

use crate::support::{self, Pit, fault_of, raw, soon, until};

/// What the tools of a test have done.
#[derive(Clone, Default)]
struct Seen {
    /// The number of slow tools that run.
    running: Arc<AtomicUsize>,
    /// The highest number at a time.
    most: Arc<AtomicUsize>,
    /// The number of items and large answers that were made.
    made: Arc<AtomicUsize>,
}

impl Seen {
    fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

const LARGE: usize = 64 * 1024;

/// A refusal and an answer, each with its id.
type Answers = ((u64, RemoteError), (u64, String));

fn with_tools(pool: PoolOptions) -> (Builder, Seen) {
    let seen = Seen::default();
    let (slow, items, large) = (seen.clone(), Arc::clone(&seen.made), Arc::clone(&seen.made));
    let grace = Duration::from_millis(50);
    let pool = pool.cancel_grace(CancelGrace::each(grace));
    let builder = Snakepit::builder()
        .pool(pool)
        .tool("quick", |_: Value, _| async move { Ok::<_, Infallible>("quick") })
        .tool("slow", move |_: Value, _| {
            let running = slow.running.fetch_add(1, Ordering::SeqCst) + 1;
            slow.most.fetch_max(running, Ordering::SeqCst);
            let guard = Running(Arc::clone(&slow.running));
            async move {
                let () = std::future::pending().await;
                drop(guard);
                Ok::<_, Infallible>(())
            }
        })
        .tool("large", move |_: Value, _| {
            large.fetch_add(1, Ordering::SeqCst);
            async move { Ok::<_, Infallible>("x".repeat(LARGE)) }
        })
        .tool_stream("endless", move |_: Value, _| {
            let items = Arc::clone(&items);
            futures_util::stream::repeat_with(move || {
                items.fetch_add(1, Ordering::SeqCst);
                Ok::<_, Infallible>(Blob::from(vec![7; LARGE]))
            })
        });
    (builder, seen)
}

async fn pit_of(pool: PoolOptions) -> (Pit, Seen) {
    let (builder, seen) = with_tools(pool);
    (Pit::build(builder).await, seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_call_beyond_the_limit_is_rejected_until_another_ends() {
    let (pit, seen) = pit_of(raw("asks_for_too_much")).await;
    let call = pit.call::<Answers>("any", args! {});
    let ((id, refused), (next, answer)) = soon("the call", call).await.expect("two answers");
    assert_eq!((id, refused.kind.as_str()), (1024, "refused"));
    assert!(refused.message.contains("1024 tool calls of this worker are under way"), "{}", refused.message);
    assert_eq!((next, answer.as_str()), (5000, "quick"));
    assert!(seen.most() <= 1024, "{} at a time", seen.most());
    until("they end with their call", || seen.running.load(Ordering::SeqCst) == 0).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_calls_that_hold_too_many_bytes_are_refused() {
    let (pit, _) = pit_of(raw("asks_with_too_many_bytes").max_frame(1 << 20)).await;
    let call = pit.call::<(u64, RemoteError)>("any", args! {});
    let (id, refused) = soon("the call", call).await.expect("an answer");
    assert_eq!((id, refused.kind.as_str()), (16, "refused"));
    assert!(refused.message.contains("16777216 is the limit"), "{}", refused.message);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_is_used_twice_at_a_time_is_a_fault() {
    let (pit, seen) = pit_of(raw("tool_id_twice")).await;
    let error = soon("the call", pit.call::<Value>("any", args! {})).await.expect_err("a fault");
    assert!(fault_of(&error).contains("the id 7, which it uses for another"), "{error}");
    until("none of its tools is left", || seen.running.load(Ordering::SeqCst) == 0).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_is_free_once_its_tool_call_is_over() {
    let (pit, seen) = pit_of(raw("uses_an_id_again")).await;
    let call = pit.call::<[(u64, String); 2]>("any", args! {});
    let answers = soon("the call", call).await.expect("two answers");
    assert_eq!(answers, [(1, "quick".to_owned()), (1, "quick".to_owned())]);
    until("what was cancelled has ended", || seen.running.load(Ordering::SeqCst) == 0).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_asks_without_end_and_reads_nothing_is_ended() {
    let (pit, seen) = pit_of(raw("endless_tool_flood")).await;
    let error = soon("the call", pit.call::<Value>("any", args! {})).await.expect_err("a fault");
    assert!(fault_of(&error).contains("without reading the answers"), "{error}");
    assert!(seen.most() <= 1024, "{} at a time", seen.most());
    until("none of its tools is left", || seen.running.load(Ordering::SeqCst) == 0).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_not_made_for_a_worker_that_does_not_read_it() {
    let (pit, seen) = pit_of(raw("deaf_to_a_stream")).await;
    let call = pit.call::<Value>("any", args! {}).timeout(Duration::from_secs(1));
    let error = soon("the call", call).await.expect_err("no answer");
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    // What waits to be written, what is being written, and what the socket holds.
    let made = seen.made.load(Ordering::SeqCst) * LARGE;
    assert!(made > 0 && made < 16 << 20, "{made} bytes were made for nobody");
    pit.end_now().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_wait_for_a_worker_that_does_not_read_them_and_end_with_it() {
    let (pit, seen) = pit_of(raw("deaf_to_tools")).await;
    let call = pit.call::<Value>("any", args! {}).timeout(Duration::from_secs(1));
    let error = soon("the call", call).await.expect_err("no answer");
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    assert!(seen.made.load(Ordering::SeqCst) <= 1024);
    pit.end_now().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_answers_to_a_worker_that_reads_them_all_arrive() {
    let pool = support::worker("asynchronous.py").workers(1).concurrency(4);
    let (pit, seen) = pit_of(pool).await;
    let call = pit.call::<Vec<String>>("ask_together", args! { tool: "large", times: 500 });
    let answers = soon("the call", call).await.expect("texts");
    assert!(answers.len() == 500 && answers.iter().all(|text| text.len() == LARGE));
    assert_eq!(seen.made.load(Ordering::SeqCst), 500);
    let streams = pit.call::<Value>("read", args! { tool: "endless", args: args! {} });
    let streams = tokio::spawn(streams.into_future());
    until("whoever reads is sent more", || seen.made.load(Ordering::SeqCst) * LARGE > 64 << 20).await;
    streams.abort();
    pit.end_now().await;
}
