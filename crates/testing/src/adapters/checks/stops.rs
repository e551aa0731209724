//! Checks of the end of a pool: running calls may finish, but no wait is unbounded.

use std::time::Duration;

use tokio::time::Instant;

use super::deaths::{is_free, leave_child};
use crate::adapters::Subject;
use crate::adapters::test_engine::{SOON, TestEngine, chain, soon};
use crate::{CallError, Value, args};

pub(crate) async fn a_stop_lets_calls_finish(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let wait = engine.begin_wait("wait").await;
    let pit = (*engine).clone();
    let stop = tokio::spawn(async move { pit.stop_within(SOON * 2).await });
    soon("the beginning of the stop", engine.stopping()).await;
    assert!(!wait.answer.is_finished(), "the call has ended with the beginning of the stop");
    wait.finish().await;
    assert!(soon("the stop", stop).await.is_ok(), "the stop panics");
    engine.assert_is_over();
}

pub(crate) async fn a_stop_does_not_wait_for_ever(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let call = engine.begin_stubborn().await;
    let began = Instant::now();
    soon("the stop", engine.stop_within(Duration::from_millis(300))).await;
    assert!(began.elapsed() < SOON / 2, "it took {:?}", began.elapsed());
    let answer = soon("the answer of stubborn", call).await;
    assert!(matches!(answer, Ok(Err(_))), "it comes to {answer:?}");
    engine.assert_is_over();
}

pub(crate) async fn a_stopped_pool_takes_no_call(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    engine.assert_serves().await;
    soon("the stop", engine.stop()).await;
    match engine.ask::<Value>("add", args! { a: 1, b: 2 }).await {
        Err(CallError::Stopped) => {}
        Err(error) => panic!("not an error that says so: {}", chain(&error)),
        Ok(value) => panic!("a stopped pool answers {value}"),
    }
    engine.assert_is_over();
}

pub(crate) async fn nothing_that_a_worker_started_outlives_a_stop(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let lock = leave_child(&engine).await;
    soon("the stop", engine.stop()).await;
    assert!(is_free(&lock), "its child lives on");
    engine.assert_is_over();
}
