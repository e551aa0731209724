//! One time budget covers queue and worker. A call that exceeds its budget says where the call was stuck.

use std::time::{Duration, Instant};

use snakepit::pool::CancelGrace;
use snakepit::{CallError, Value, args};

use crate::support::{self, Pit, soon, worker};

const SHORT: CancelGrace = CancelGrace::each(Duration::from_millis(200)).ask(Duration::from_millis(20));

async fn stack_of(pit: &Pit, command: &str, args: impl serde::Serialize) -> String {
    let began = Instant::now();
    let call = pit.call::<Value>(command, args).timeout(Duration::from_millis(300));
    let error = soon(command, call).await.expect_err("no time");
    println!("{command}: {:?} for 300 ms", began.elapsed());
    let CallError::Timeout { stack, after, .. } = &error else { panic!("{error}") };
    assert_eq!(*after, Duration::from_millis(300));
    let stack = stack.clone().unwrap_or_else(|| panic!("no stack: {error}"));
    assert!(error.to_string().contains(stack.trim_end()), "{error}");
    stack
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_late_shows_where_it_sleeps() {
    let pit = Pit::start(worker("hostile.py").workers(1).cancel_grace(SHORT)).await;
    let stack = stack_of(&pit, "sleep", args! { seconds: 60.0 }).await;
    assert!(stack.contains("hostile.py") && stack.contains("in sleep"), "{stack}");
    let echoed: u32 = soon("the next", pit.call("echo", args! { value: 1 })).await.expect("a value");
    assert_eq!(echoed, 1);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_shows_the_stack_of_code_that_holds_the_gil() {
    let pit = Pit::start(worker("hostile.py").workers(1).cancel_grace(SHORT)).await;
    let stack = stack_of(&pit, "holds_the_gil", args! { seconds: 5 }).await;
    assert!(stack.contains("in holds_the_gil"), "{stack}");
    pit.end_now().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stack_is_shown_with_several_calls_at_a_time() {
    let pit = Pit::start(worker("threads.py").workers(1).concurrency(4).cancel_grace(SHORT)).await;
    let other = tokio::spawn(pit.call::<Value>("sleep", args! { seconds: 1.0 }).into_future());
    let stack = stack_of(&pit, "busy", args! { path: pit.file("busy") }).await;
    assert!(stack.contains("in busy"), "{stack}");
    assert!(soon("the neighbour", other).await.expect("no panic").is_ok());
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_output_shows_earlier_output_of_its_worker() {
    let pit = Pit::start(worker("hostile.py").workers(1).cancel_grace(SHORT)).await;
    let _: Value = soon("the words", pit.call("says", args! { text: "last words" })).await.expect("said");
    let pool = &pit.pools()[0];
    let id = pool.workers()[0].id.clone();
    support::until("they are read", || pool.output(&id).is_some_and(|output| !output.lines.is_empty())).await;
    let call = pit.call::<Value>("sleep", args! { seconds: 60.0 }).timeout(Duration::from_millis(100));
    let error = soon("the call", call).await.expect_err("no time");
    let CallError::Timeout { output, .. } = &error else { panic!("{error}") };
    assert_eq!(output, &["(nothing was printed in this call; before it:)", "last words"]);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_and_worker_share_one_budget() {
    let pit = Pit::start(worker("hostile.py").workers(1).cancel_grace(SHORT)).await;
    let first = tokio::spawn(pit.call::<Value>("sleep", args! { seconds: 0.6 }).into_future());
    let pool = pit.pools()[0].clone();
    support::until("the first is under way", || pool.in_flight() == 1).await;
    // Alone it would finish in time.
    let began = Instant::now();
    let call = pit.call::<Value>("sleep", args! { seconds: 0.8 }).timeout(Duration::from_secs(1));
    let error = soon("the call", call).await.expect_err("no time");
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert!(soon("the first", first).await.expect("no panic").is_ok());
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_knows_the_remaining_time() {
    let pit = Pit::start(worker("deadline.py").workers(1)).await;
    let call = pit.call::<f64>("remaining", args! {}).timeout(Duration::from_secs(100));
    let left = soon("the call", call).await.expect("a number");
    assert!((60.0..=100.0).contains(&left), "{left}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_stalls_ends_with_its_time() {
    use futures_util::StreamExt;
    let pit = Pit::start(worker("deadline.py").workers(1).cancel_grace(SHORT)).await;
    let stream = pit.stream::<u32>("stall", args! { good: 3 }).timeout(Duration::from_millis(500));
    let items: Vec<_> = soon("the stream", stream.open().expect("a stream").collect::<Vec<_>>()).await;
    assert_eq!(items.len(), 4);
    let error = items[3].as_ref().expect_err("no time");
    let CallError::Timeout { stack: Some(stack), .. } = error else { panic!("{error}") };
    assert!(stack.contains("in stall"), "{stack}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_of_zero_fails_before_the_call_is_started() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    for _ in 0..50 {
        let args = args! { path: pit.file("order"), key: "never" };
        let call = pit.call::<Value>("mark", args).timeout(Duration::ZERO);
        assert!(soon("the call", call).await.is_err());
    }
    let _: Value = soon("another", pit.call("pid", args! {})).await.expect("a pid");
    assert_eq!(support::lines(&pit.file("order")), Vec::<String>::new());
    pit.end().await;
}
