//! A late call of async code shows what the call awaits, down to the last coroutine, without a long wait.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use snakepit::pool::CancelGrace;
use snakepit::{CallError, PoolOptions, Value, args};

use crate::support::{self, Pit, lines, soon, until, worker};

const SHORT: CancelGrace = CancelGrace::each(Duration::from_millis(200)).ask(Duration::from_millis(20));
const TIME: Duration = Duration::from_millis(500);

fn pool() -> PoolOptions {
    worker("asynchronous.py").workers(1).cancel_grace(SHORT)
}

fn stack_of(error: &CallError) -> String {
    let CallError::Timeout { stack: Some(stack), .. } = error else { panic!("no stack: {error}") };
    assert!(error.to_string().contains(stack.trim_end()), "{error}");
    stack.clone()
}

/// Returns the line before the first part of a stack, and the functions of that part, innermost first.
fn first_part(stack: &str) -> (String, Vec<String>) {
    let mut all = stack.lines();
    let header = all.next().unwrap_or_default().to_owned();
    let frames = all.take_while(|line| line.starts_with("  "));
    let function = |line: &str| line.rsplit(" in ").next().unwrap_or_default().to_owned();
    (header, frames.map(function).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coroutine_that_is_late_shows_all_that_it_awaits() {
    let pit = Pit::start(pool()).await;
    let call = pit.call::<Value>("waits_deep_down", args! { path: pit.file("mark") }).timeout(TIME);
    let error = soon("the call", call).await.expect_err("no time");
    let stack = stack_of(&error);
    let (header, functions) = first_part(&stack);
    assert!(header.starts_with("Task of call ") && header.contains(": waits_deep_down "), "{stack}");
    assert_eq!(functions, ["wait", "innermost", "numbers", "waits_deep_down"], "{stack}");
    assert!(stack.contains("asynchronous.py\", line "), "{stack}");
    assert!(stack.contains("Current thread 0x"), "the threads follow: {stack}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_shows_the_stack_of_the_late_call_only() {
    let pit = Pit::start(pool().concurrency(4)).await;
    let (own, other) = (pit.file("own"), pit.file("other"));
    let neighbour = tokio::spawn(pit.call::<Value>("patient", args! { path: &other }).into_future());
    until("the neighbour waits", || !lines(&other).is_empty()).await;
    let call = pit.call::<Value>("waits_deep_down", args! { path: &own }).timeout(TIME);
    let stack = stack_of(&soon("the call", call).await.expect_err("no time"));
    assert!(stack.contains("in innermost") && !stack.contains("in patient"), "{stack}");
    neighbour.abort();
    pit.end_now().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_travel_together_show_their_one_task() {
    let pit = Pit::start(pool()).await;
    let busy = tokio::spawn(pit.call::<Value>("nap", args! { seconds: 0.1 }).into_future());
    let pool = pit.pools()[0].clone();
    until("it is busy, and gathers calls", || pool.in_flight() == 1).await;
    let calls = ["a", "b"].map(|name| {
        let args = args! { paths: pit.file(name) };
        tokio::spawn(pit.call::<Value>("waits_together", args).timeout(TIME).into_future())
    });
    soon("the first", busy).await.expect("no panic").expect("a nap");
    for call in calls {
        let error = soon("a call", call).await.expect("no panic").expect_err("no time");
        let CallError::Timeout { stack, .. } = &error else { panic!("{error}") };
        let stack = stack.clone().unwrap_or_default();
        assert!(stack.starts_with("Task of call ") && stack.contains("in innermost"), "{error}");
    }
    pit.end_now().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_inside_of_a_sync_command_is_shown_too() {
    let pit = Pit::start(pool()).await;
    let call = pit.call::<Value>("runs_a_loop", args! { path: pit.file("mark") }).timeout(TIME);
    let stack = stack_of(&soon("the call", call).await.expect_err("no time"));
    assert!(stack.starts_with("Task") && stack.contains("in innermost"), "{stack}");
    pit.end_now().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_that_is_blocked_shows_its_thread() {
    let pit = Pit::start(pool()).await;
    let call = pit.call::<Value>("block", args! { path: pit.file("mark") }).timeout(TIME);
    let stack = stack_of(&soon("the call", call).await.expect_err("no time"));
    assert!(stack.contains("Current thread 0x") && stack.contains("in block"), "{stack}");
    pit.end_now().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn code_that_holds_the_interpreter_does_not_delay_the_answer_for_long() {
    let pit = Pit::start(pool()).await;
    let began = Instant::now();
    let call = pit.call::<Value>("holds_the_interpreter", args! {}).timeout(TIME);
    let error = soon("the call", call).await.expect_err("no time");
    let took = began.elapsed();
    let stack = stack_of(&error);
    assert!(stack.starts_with("Current thread 0x") && stack.contains("in holds_the_interpreter"), "{stack}");
    assert!(took < TIME + Duration::from_secs(1), "{took:?}");
    pit.end_now().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_stopped_does_not_delay_the_answer() {
    let pit = Pit::start(pool()).await;
    let path = pit.file("mark");
    let call = pit.call::<Value>("waits_deep_down", args! { path: &path }).timeout(TIME);
    let call = tokio::spawn(call.into_future());
    until("it waits", || !lines(&path).is_empty()).await;
    let pid = support::pids(&pit.pools()[0])[0];
    support::signal(pid, Signal::STOP);
    let error = soon("the call", call).await.expect("no panic").expect_err("no time");
    assert!(error.to_string().contains("is stopped by a signal"), "{error}");
    support::signal(pid, Signal::CONT);
    pit.end_now().await;
}
