//! A caller that goes away cancels its own call, step by step, and no other call.

use std::time::{Duration, Instant};

use snakepit::pool::CancelGrace;
use snakepit::{PoolOptions, Value, args};

use crate::support::{self, Pit, lines, runs, soon, until, worker};

fn short(pool: PoolOptions) -> PoolOptions {
    pool.cancel_grace(CancelGrace::each(Duration::from_millis(300)).ask(Duration::from_millis(50)))
}

/// Begins a call that writes `started`, waits for that, and drops the call.
async fn begin_and_leave(pit: &Pit, command: &str, path: &str) {
    let call = tokio::spawn(pit.call::<Value>(command, args! { path: path }).into_future());
    until("the call is under way", || !lines(path).is_empty()).await;
    call.abort();
    assert!(call.await.is_err_and(|error| error.is_cancelled()));
}

fn pid(pit: &Pit) -> Option<u32> {
    pit.pools()[0].workers().first()?.pid.map(|pid| pid.as_raw() as u32)
}

#[tokio::test(flavor = "multi_thread")]
async fn stage_1_of_a_cancel_sets_a_flag_that_the_call_can_see() {
    let patient = CancelGrace::default().ask(support::SOON);
    let pit = Pit::start(worker("hostile.py").workers(1).cancel_grace(patient)).await;
    let before = pid(&pit);
    let path = pit.file("watchful");
    begin_and_leave(&pit, "watchful", &path).await;
    until("it has seen the flag", || lines(&path).last().is_some_and(|line| line == "saw the flag")).await;
    let _: Value = soon("the next", pit.call("pid", args! {})).await.expect("a pid");
    assert_eq!(pid(&pit), before);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stage_2_of_a_cancel_raises_an_exception_in_python_code_and_in_a_sleep() {
    let pit = Pit::start(short(worker("hostile.py").workers(1))).await;
    let before = pid(&pit);
    for command in ["busy", "sleepy"] {
        let path = pit.file(command);
        begin_and_leave(&pit, command, &path).await;
        until("it is raised", || lines(&path) == ["started", "Cancelled"]).await;
        let _: Value = soon("the next", pit.call("pid", args! {})).await.expect("a pid");
    }
    assert_eq!(pid(&pit), before, "the worker lives");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stage_3_of_a_cancel_sends_term_to_the_worker() {
    let pit = Pit::start(short(worker("hostile.py").workers(1))).await;
    let before = pid(&pit).expect("a worker");
    let path = pit.file("term");
    begin_and_leave(&pit, "waits_for_term", &path).await;
    until("TERM has come", || lines(&path) == ["started", "Cancelled", "TERM"]).await;
    until("it is replaced", || pid(&pit).is_some_and(|pid| pid != before)).await;
    until("it is gone", || !runs(before)).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stage_4_of_a_cancel_kills_the_worker() {
    let pit = Pit::start(short(worker("hostile.py").workers(1))).await;
    let before = pid(&pit).expect("a worker");
    let path = pit.file("stubborn");
    let began = Instant::now();
    begin_and_leave(&pit, "stubborn", &path).await;
    until("it is gone", || !runs(before)).await;
    println!("50 + 300 + 300 ms of patience: gone after {:?}", began.elapsed());
    assert_eq!(lines(&path), ["started", "Cancelled", "TERM"]);
    let _: Value = soon("the next", pit.call("pid", args! {})).await.expect("a new worker");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_the_sdk_that_ignores_cancel_is_killed_too() {
    let pit = Pit::start(short(support::raw("ignores_everything"))).await;
    let before = pid(&pit).expect("a worker");
    let mut call = Box::pin(pit.call::<Value>("any", args! {}).into_future());
    assert!(futures_util::FutureExt::now_or_never(&mut call).is_none());
    drop(call);
    until("it is gone", || !runs(before)).await;
    soon("a new one", pit.await_ready(support::SOON)).await.expect("ready");
    pit.end_now().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_beside_one_that_ignores_its_cancel_finish() {
    let pit = Pit::start(short(worker("threads.py").workers(1).concurrency(3))).await;
    let before = pid(&pit).expect("a worker");
    let neighbour = || tokio::spawn(pit.call::<Value>("sleep", args! { seconds: 1.5 }).into_future());
    let neighbours = [neighbour(), neighbour()];
    begin_and_leave(&pit, "stubborn", &pit.file("stubborn")).await;
    // A replacement comes although the worker still has calls.
    until("it is replaced", || pid(&pit).is_some_and(|pid| pid != before)).await;
    for call in neighbours {
        soon("a neighbour", call).await.expect("no panic").expect("finished in peace");
    }
    until("it is gone", || !runs(before)).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_calls_of_one_worker_that_ignore_their_cancels_do_not_wait_for_each_other() {
    let pit = Pit::start(short(worker("threads.py").workers(1).concurrency(2))).await;
    let before = pid(&pit).expect("a worker");
    begin_and_leave(&pit, "stubborn", &pit.file("first")).await;
    begin_and_leave(&pit, "stubborn", &pit.file("second")).await;
    until("it is gone", || !runs(before)).await;
    soon("a new one", pit.await_ready(support::SOON)).await.expect("ready");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_behind_one_that_ignores_its_cancel_go_to_the_next_worker() {
    let pit = Pit::start(short(worker("hostile.py").workers(1))).await;
    // Known to be short, so they are sent ahead of their turn.
    for _ in 0..50 {
        let _: Value = soon("an echo", pit.call("echo", args! { value: 1 })).await.expect("a value");
        let _: Value = soon("a nap", pit.call("sleep", args! { seconds: 0.0 })).await.expect("slept");
    }
    let before = pid(&pit).expect("a worker");
    let path = pit.file("stubborn");
    let call = tokio::spawn(pit.call::<Value>("stubborn", args! { path: path.as_str() }).into_future());
    until("it is under way", || !lines(&path).is_empty()).await;
    let behind: Vec<_> =
        (0..5).map(|n| tokio::spawn(pit.call::<u32>("echo", args! { value: n }).into_future())).collect();
    call.abort();
    for (n, call) in behind.into_iter().enumerate() {
        assert_eq!(soon("a call", call).await.expect("no panic").expect("a value"), n as u32);
    }
    until("it is gone", || !runs(before)).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_interrupts_threads_and_tasks() {
    let pit = Pit::start(short(worker("threads.py").workers(1).concurrency(4))).await;
    let before = pid(&pit);
    let path = pit.file("busy");
    begin_and_leave(&pit, "busy", &path).await;
    until("it is raised", || lines(&path) == ["started", "Cancelled"]).await;
    assert_eq!(pid(&pit), before);
    pit.end().await;
    let pit = Pit::start(short(worker("asynchronous.py").workers(1).concurrency(4))).await;
    let before = pid(&pit);
    let path = pit.file("patient");
    begin_and_leave(&pit, "patient", &path).await;
    until("it is raised", || lines(&path) == ["started", "CancelledError"]).await;
    assert_eq!(pid(&pit), before);
    pit.end().await;
}
