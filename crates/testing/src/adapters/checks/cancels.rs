//! Checks of cancelled calls: the function learns of the cancellation, and the worker lives on.

use std::time::Duration;

use crate::adapters::Subject;
use crate::adapters::test_engine::{TestEngine, chain, has_line, soon, text, until};
use crate::{CallError, RemoteErrorKind, args};

pub(crate) async fn a_call_that_nobody_waits_for_is_cancelled_in_the_worker(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let wait = engine.begin_wait("wait").await;
    // Aborting drops the task, and the call with it.
    wait.answer.abort();
    wait.assert_is_cancelled().await;
    engine.close_serving().await;
}

pub(crate) async fn a_call_whose_time_is_over_is_cancelled_in_the_worker(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let (started, release) = (engine.path("wait"), engine.path("never"));
    let args = args! { started: text(&started), release: text(&release) };
    let call = engine.call::<String>("wait", args).timeout(Duration::from_secs(1));
    match soon("the end of its time", call).await {
        // A worker that checks the time itself may report the deadline first.
        Err(CallError::Timeout { .. }) => {}
        Err(CallError::Remote(error)) if error.kind == RemoteErrorKind::Deadline => {}
        Err(error) => panic!("not an error of time: {}", chain(&error)),
        Ok(answer) => panic!("it answers {answer}"),
    }
    until("the function sees the cancel", || has_line(&started, "cancelled")).await;
    engine.close_serving().await;
}

pub(crate) async fn a_cancelled_call_does_not_cost_the_worker(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let before = engine.pool().workers()[0].id.clone();
    for n in 0..3 {
        let wait = engine.begin_wait(&format!("wait-{n}")).await;
        wait.answer.abort();
        wait.assert_is_cancelled().await;
        engine.assert_serves().await;
    }
    assert_eq!(engine.pool().workers()[0].id, before, "a cancel has cost the worker");
    engine.close().await;
}
