//! Checks of the ways in which a worker ends, each with its reason: `terminate` runs exactly once in all of them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use crate::adapter::Reason;
use crate::adapters::Subject;
use crate::adapters::test_engine::{SOON, TestEngine, noted, soon};
use crate::{CallError, CancelGrace, Stuck, Value, WhenStuck, args};

pub(crate) async fn a_stopped_worker_is_terminated_once(subject: &dyn Subject) {
    let engine = TestEngine::with(subject, |pool| pool.workers(2)).await;
    engine.assert_serves().await;
    soon("the stop", engine.stop()).await;
    assert_eq!(
        engine.recording.reasons(),
        [[Reason::Stopped], [Reason::Stopped]],
        "why they were terminated"
    );
    engine.assert_is_over();
}

pub(crate) async fn a_worker_too_many_is_terminated_once(subject: &dyn Subject) {
    let engine = TestEngine::with(subject, |pool| pool.workers(2)).await;
    engine.pool().scale(1);
    noted(&engine.recording, "one of them is terminated", |recording| {
        recording.reasons().concat().len() == 1
    })
    .await;
    assert_eq!(engine.recording.reasons().concat(), [Reason::Stopped], "why it was terminated");
    engine.close_serving().await;
}

pub(crate) async fn a_replaced_worker_is_terminated_once(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    assert_eq!(soon("the order", engine.pool().recycle_all()).await, 1);
    noted(&engine.recording, "it is terminated", |recording| !recording.reasons()[0].is_empty()).await;
    let reasons = engine.recording.reasons();
    assert!(matches!(reasons[0].as_slice(), [Reason::Replaced(_)]), "why it was terminated: {reasons:?}");
    assert_eq!(reasons.len(), 2, "the other one serves before");
    engine.close_serving().await;
}

pub(crate) async fn a_dead_worker_is_terminated_once(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let Some(process) = engine.recording.process(0) else { panic!("a worker that is a process has none") };
    let _ = process.kill();
    noted(&engine.recording, "it is terminated", |recording| !recording.reasons()[0].is_empty()).await;
    assert_eq!(engine.recording.reasons()[0], [Reason::Died], "why it was terminated");
    engine.close_serving().await;
}

pub(crate) async fn a_broken_worker_is_terminated_once(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let wait = engine.begin_wait("wait").await;
    engine.recording.break_worker(0, "the check says so");
    let answer = soon("the answer of wait", wait.answer).await;
    assert!(matches!(answer, Ok(Err(_))), "a call of a broken worker comes to {answer:?}");
    noted(&engine.recording, "it is terminated", |recording| !recording.reasons()[0].is_empty()).await;
    assert_eq!(engine.recording.reasons()[0], [Reason::Broken("the check says so".into())]);
    engine.close_serving().await;
}

pub(crate) async fn a_stubborn_worker_is_terminated_once(subject: &dyn Subject) {
    let short = Duration::from_millis(100);
    let grace = CancelGrace::each(short);
    let engine = TestEngine::with(subject, |pool| pool.cancel_grace(grace)).await;
    let wait = engine.begin_wait("wait").await;
    engine.recording.deaf.store(true, Ordering::SeqCst);
    wait.answer.abort();
    noted(&engine.recording, "it is terminated", |recording| !recording.reasons()[0].is_empty()).await;
    let reasons = engine.recording.reasons();
    assert!(
        matches!(reasons[0].as_slice(), [Reason::CancelIgnored(_)]),
        "why it was terminated: {reasons:?}"
    );
    engine.close_serving().await;
}

pub(crate) async fn a_stuck_worker_is_terminated_once(subject: &dyn Subject) {
    let stuck = Stuck::default().after(Duration::from_millis(500)).then(WhenStuck::Replace);
    let engine = TestEngine::with(subject, |pool| pool.stuck(stuck)).await;
    let call = engine.begin_stubborn().await;
    engine.recording.frozen.store(true, Ordering::SeqCst);
    let answer = soon("the answer of stubborn", call).await;
    assert!(matches!(answer, Ok(Err(_))), "a call of a stuck worker comes to {answer:?}");
    noted(&engine.recording, "it is terminated", |recording| !recording.reasons()[0].is_empty()).await;
    let reasons = engine.recording.reasons();
    assert!(matches!(reasons[0].as_slice(), [Reason::Stuck(_)]), "why it was terminated: {reasons:?}");
    engine.recording.frozen.store(false, Ordering::SeqCst);
    engine.close_serving().await;
}

pub(crate) async fn a_terminate_that_does_not_end_is_not_waited_for(subject: &dyn Subject) {
    let engine = TestEngine::with(subject, |pool| pool.workers(2)).await;
    engine.recording.clinging.store(true, Ordering::SeqCst);
    engine.recording.break_worker(0, "the check says so");
    noted(&engine.recording, "the broken one is terminated and replaced", |recording| {
        !recording.reasons()[0].is_empty() && recording.ready() == 3
    })
    .await;
    let _: Value = engine.get("echo", args! { value: 1 }).await;
    let began = Instant::now();
    soon("the stop", engine.stop()).await;
    assert!(began.elapsed() < SOON / 2, "the stop took {:?}", began.elapsed());
    engine.assert_is_over();
}

pub(crate) async fn a_call_that_comes_after_the_end_is_answered(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    engine.recording.late.store(true, Ordering::SeqCst);
    let call = tokio::spawn(engine.call::<i64>("add", args! { a: 1, b: 2 }).into_future());
    noted(&engine.recording, "the call is on its way", |recording| recording.withheld() == 1).await;
    engine.recording.late.store(false, Ordering::SeqCst);
    engine.recording.break_worker(0, "the check says so");
    // Another worker executes the call, or the call fails together with its own worker.
    match soon("the answer of a call that came after the end of its worker", call).await {
        Ok(Ok(sum)) => assert_eq!(sum, 3, "add answers something else"),
        Ok(Err(CallError::WorkerDied { .. })) => {}
        other => panic!("a call that came after the end of its worker comes to {other:?}"),
    }
    engine.close_serving().await;
}
