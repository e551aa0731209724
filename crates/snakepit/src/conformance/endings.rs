//! The ways in which a worker ends, each with its reason: `terminate` runs exactly once in all of them.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::scene::{SOON, Scene, noted, soon};
use super::{Held, Subject, Verdict, needs};
use crate::adapter::Reason;
use crate::{CallError, CancelGrace, Stuck, Value, WhenStuck, args};

pub(super) async fn a_stopped_worker_is_terminated_once(subject: &dyn Subject) -> Verdict {
    let scene = Scene::with(subject, |pool| pool.workers(2)).await;
    scene.assert_serves().await;
    soon("the stop", scene.stop()).await;
    assert_eq!(scene.book.reasons(), [[Reason::Stopped], [Reason::Stopped]], "why they were terminated");
    scene.assert_is_over();
    Held
}

pub(super) async fn a_worker_too_many_is_terminated_once(subject: &dyn Subject) -> Verdict {
    let scene = Scene::with(subject, |pool| pool.workers(2)).await;
    scene.pool().scale(1);
    noted(&scene.book, "one of them is terminated", |book| book.reasons().concat().len() == 1).await;
    assert_eq!(scene.book.reasons().concat(), [Reason::Stopped], "why it was terminated");
    scene.assert_serves().await;
    scene.close().await;
    Held
}

pub(super) async fn a_replaced_worker_is_terminated_once(subject: &dyn Subject) -> Verdict {
    let scene = Scene::open(subject).await;
    assert_eq!(soon("the order", scene.pool().recycle_all()).await, 1);
    noted(&scene.book, "it is terminated", |book| !book.reasons()[0].is_empty()).await;
    let reasons = scene.book.reasons();
    assert!(matches!(reasons[0].as_slice(), [Reason::Replaced(_)]), "why it was terminated: {reasons:?}");
    assert_eq!(reasons.len(), 2, "the other one serves before");
    scene.assert_serves().await;
    scene.close().await;
    Held
}

pub(super) async fn a_dead_worker_is_terminated_once(subject: &dyn Subject) -> Verdict {
    needs!(subject, Processes);
    let scene = Scene::open(subject).await;
    let Some(process) = scene.book.process(0) else { panic!("a worker that is a process has none") };
    let _ = process.kill();
    noted(&scene.book, "it is terminated", |book| !book.reasons()[0].is_empty()).await;
    assert_eq!(scene.book.reasons()[0], [Reason::Died], "why it was terminated");
    scene.assert_serves().await;
    scene.close().await;
    Held
}

pub(super) async fn a_broken_worker_is_terminated_once(subject: &dyn Subject) -> Verdict {
    let scene = Scene::open(subject).await;
    let wait = scene.begin_wait("wait").await;
    scene.book.break_worker(0, "the check says so");
    let answer = soon("the answer of wait", wait.answer).await;
    assert!(matches!(answer, Ok(Err(_))), "a call of a broken worker comes to {answer:?}");
    noted(&scene.book, "it is terminated", |book| !book.reasons()[0].is_empty()).await;
    assert_eq!(scene.book.reasons()[0], [Reason::Broken("the check says so".into())]);
    scene.assert_serves().await;
    scene.close().await;
    Held
}

pub(super) async fn a_stubborn_worker_is_terminated_once(subject: &dyn Subject) -> Verdict {
    let short = Duration::from_millis(100);
    let grace = CancelGrace { ask: short, raise: short, terminate: short };
    let scene = Scene::with(subject, |pool| pool.cancel_grace(grace)).await;
    let wait = scene.begin_wait("wait").await;
    scene.book.deaf.store(true, Ordering::SeqCst);
    wait.answer.abort();
    noted(&scene.book, "it is terminated", |book| !book.reasons()[0].is_empty()).await;
    let reasons = scene.book.reasons();
    assert!(matches!(reasons[0].as_slice(), [Reason::Stubborn(_)]), "why it was terminated: {reasons:?}");
    scene.assert_serves().await;
    scene.close().await;
    Held
}

pub(super) async fn a_stuck_worker_is_terminated_once(subject: &dyn Subject) -> Verdict {
    let stuck = Stuck::default().after(Duration::from_millis(500)).then(WhenStuck::Replace);
    let scene = Scene::with(subject, |pool| pool.stuck(stuck)).await;
    let call = scene.begin_stubborn().await;
    scene.book.frozen.store(true, Ordering::SeqCst);
    let answer = soon("the answer of stubborn", call).await;
    assert!(matches!(answer, Ok(Err(_))), "a call of a stuck worker comes to {answer:?}");
    noted(&scene.book, "it is terminated", |book| !book.reasons()[0].is_empty()).await;
    let reasons = scene.book.reasons();
    assert!(matches!(reasons[0].as_slice(), [Reason::Stuck(_)]), "why it was terminated: {reasons:?}");
    scene.book.frozen.store(false, Ordering::SeqCst);
    scene.assert_serves().await;
    scene.close().await;
    Held
}

pub(super) async fn a_terminate_that_does_not_end_is_not_waited_for(subject: &dyn Subject) -> Verdict {
    let scene = Scene::with(subject, |pool| pool.workers(2)).await;
    scene.book.clinging.store(true, Ordering::SeqCst);
    scene.book.break_worker(0, "the check says so");
    noted(&scene.book, "the broken one is terminated and replaced", |book| {
        !book.reasons()[0].is_empty() && book.ready() == 3
    })
    .await;
    let _: Value = scene.get("echo", args! { value: 1 }).await;
    let began = Instant::now();
    soon("the stop", scene.stop()).await;
    assert!(began.elapsed() < SOON / 2, "the stop took {:?}", began.elapsed());
    scene.assert_is_over();
    Held
}

pub(super) async fn a_call_that_comes_after_the_end_is_answered(subject: &dyn Subject) -> Verdict {
    let scene = Scene::open(subject).await;
    scene.book.late.store(true, Ordering::SeqCst);
    let call = tokio::spawn(scene.call::<i64>("add", args! { a: 1, b: 2 }).into_future());
    noted(&scene.book, "the call is on its way", |book| book.withheld() == 1).await;
    scene.book.late.store(false, Ordering::SeqCst);
    scene.book.break_worker(0, "the check says so");
    // Another worker does it, or it fails with its own.
    match soon("the answer of a call that came after the end of its worker", call).await {
        Ok(Ok(sum)) => assert_eq!(sum, 3, "add answers something else"),
        Ok(Err(CallError::WorkerDied { .. })) => {}
        other => panic!("a call that came after the end of its worker comes to {other:?}"),
    }
    scene.assert_serves().await;
    scene.close().await;
    Held
}
