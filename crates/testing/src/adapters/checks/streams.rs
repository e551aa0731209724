//! Checks of commands that answer with many values.

use futures_util::StreamExt;
use futures_util::stream::BoxStream;

use crate::adapters::Subject;
use crate::adapters::test_engine::{TestEngine, chain, has_line, or_panic, soon, text, until};
use crate::{CallError, args};

/// The length of the items that show how far a worker is ahead of its reader.
const ITEM: usize = 64 << 10;

/// The maximum number of these items in the buffers of all layers together: 16 MiB.
const MOST_ON_THE_WAY: usize = 256;

/// How often a count must be seen unchanged before the worker counts as waiting for its reader.
const STILL: usize = 40;

type Items<T> = Vec<Result<T, CallError>>;

async fn all<T: Send + 'static>(stream: BoxStream<'static, Result<T, CallError>>) -> Items<T> {
    soon("the stream", stream.collect::<Items<T>>()).await
}

fn opened<T>(
    engine: &TestEngine,
    command: &str,
    args: impl serde::Serialize,
) -> BoxStream<'static, Result<T, CallError>>
where
    T: serde::de::DeserializeOwned + Send + 'static,
{
    let opened = engine.stream::<T>(command, args).open();
    or_panic(opened, format_args!("{command} is not opened")).boxed()
}

fn values<T: Clone>(items: &Items<T>) -> Vec<T> {
    items.iter().filter_map(|item| item.as_ref().ok()).cloned().collect()
}

pub(crate) async fn a_stream_brings_its_values_in_order(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    for length in [1, 3, 5000] {
        let items = all(opened::<u32>(&engine, "count", args! { n: length })).await;
        assert!(items.iter().all(Result::is_ok), "{:?}", items.last());
        assert!(
            values(&items) == (0..length).collect::<Vec<_>>(),
            "{length} values came as {} others",
            items.len()
        );
    }
    engine.close_serving().await;
}

pub(crate) async fn a_stream_without_values_ends(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let items = all(opened::<u32>(&engine, "count", args! { n: 0 })).await;
    assert!(items.is_empty(), "{items:?}");
    engine.close_serving().await;
}

pub(crate) async fn a_plain_command_is_a_stream_of_one_value(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let items = all(opened::<u32>(&engine, "add", args! { a: 1, b: 2 })).await;
    assert!(matches!(items.as_slice(), [Ok(3)]), "{items:?}");
    engine.close().await;
}

pub(crate) async fn a_stream_that_fails_brings_what_it_had(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let items = all(opened::<u32>(&engine, "count_and_fail", args! { n: 3, message: "no more" })).await;
    assert_eq!(values(&items), [0, 1, 2], "what came before the error");
    match items.last() {
        Some(Err(error)) => {
            let message = error.remote().map(|error| error.message.as_str());
            assert_eq!(message, Some("no more"), "{}", chain(error));
        }
        other => panic!("the stream ends with {other:?}, and not with its error"),
    }
    assert_eq!(items.len(), 4, "something comes after the error");
    engine.close_serving().await;
}

pub(crate) async fn a_stream_that_nobody_reads_any_more_is_cancelled(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let made = engine.path("made");
    let args = args! { made: text(&made), size: 10 };
    let mut stream = opened::<String>(&engine, "count_for_ever", args);
    let first = soon("the first value", stream.next()).await;
    assert!(matches!(&first, Some(Ok(item)) if item.len() == 10), "{first:?}");
    drop(stream);
    let ended = engine.path("made.ended");
    until("the function is told", || has_line(&ended, "cancelled")).await;
    engine.close_serving().await;
}

pub(crate) async fn a_slow_reader_holds_the_worker_back(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let made = engine.path("made");
    let count = || std::fs::metadata(&made).map_or(0, |file| file.len()) as usize;
    let args = args! { made: text(&made), size: ITEM };
    let opened = engine.stream::<String>("count_for_ever", args).credit(8).open();
    let Ok(mut stream) = opened else { panic!("count_for_ever is not opened") };
    let first = soon("the first value", stream.next()).await;
    assert!(matches!(first, Some(Ok(_))), "the first value");
    let (mut seen, mut still) = (0, 0);
    until("the worker waits for its reader", || {
        let now = count();
        still = if now == seen { still + 1 } else { 0 };
        seen = now;
        assert!(now <= MOST_ON_THE_WAY, "the worker is {now} values ahead of a reader that does not read");
        still > STILL
    })
    .await;
    for _ in 0..2 * MOST_ON_THE_WAY {
        let item = soon("the next value", stream.next()).await;
        assert!(matches!(item, Some(Ok(_))), "it does not go on when it is read");
    }
    drop(stream);
    engine.close_now().await;
}
