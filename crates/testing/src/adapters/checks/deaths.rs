//! Checks of workers that die: each death fails only the worker's own calls, and none of its processes survives.

use std::path::Path;

use futures_util::future::join_all;
use rustix::fs::{FlockOperation, flock};

use crate::adapters::test_engine::{TestEngine, chain, soon, text, until};
use crate::adapters::{Capability, Feature, Subject};
use crate::custody::ExitStatus;
use crate::{CallError, Value, args};
use snakepit_core::Autopsy;

/// Calls a command that kills its worker, and returns the autopsy.
async fn death(engine: &TestEngine, command: &str, args: impl serde::Serialize) -> Autopsy {
    let answer = engine.ask::<Value>(command, args).await;
    let Err(error) = answer else { panic!("{command} answers {answer:?}, and should have died") };
    match error.autopsy() {
        Some(autopsy) => autopsy.clone(),
        None => panic!("{command}: not the death of a worker: {}", chain(&error)),
    }
}

fn status(autopsy: &Autopsy) -> Option<ExitStatus> {
    autopsy.exit.map(|exit| exit.status)
}

pub(crate) async fn a_worker_that_exits_fails_its_call_with_an_autopsy(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let before = engine.pool().workers()[0].id.clone();
    let autopsy = death(&engine, "exit", args! { status: 3 }).await;
    assert_eq!(autopsy.worker.as_str(), before, "it was another worker");
    if subject.capability(Feature::Processes) == Capability::Present {
        assert_eq!(status(&autopsy), Some(ExitStatus::Code(3)), "{autopsy}");
        assert!(autopsy.fault.is_none(), "nobody ended it: {autopsy}");
    }
    engine.close_serving().await;
}

pub(crate) async fn a_worker_that_a_signal_ends_fails_its_call_with_an_autopsy(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let autopsy = death(&engine, "die", args! {}).await;
    assert_eq!(status(&autopsy), Some(ExitStatus::Signal(9)), "{autopsy}");
    engine.close_serving().await;
}

pub(crate) async fn a_worker_that_is_killed_fails_its_call_and_is_replaced(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    engine.assert_serves().await;
    let Some(process) = engine.recording.process(0) else { panic!("a worker that is a process has none") };
    let pid = engine.pool().workers()[0].pid;
    assert_eq!(pid, Some(process.pid()), "the pid of the pool's status");
    let _ = process.kill();
    // The handle of the worker that answered must report the end of the process that was killed.
    soon("its end", process.exited()).await;
    until("it is replaced", || {
        let workers = engine.pool().workers();
        workers.len() == 1 && workers[0].pid != pid
    })
    .await;
    engine.close_serving().await;
}

pub(crate) async fn a_death_harms_no_neighbour(subject: &dyn Subject) {
    let engine = TestEngine::with(subject, |pool| pool.workers(2)).await;
    let wait = engine.begin_wait("wait").await;
    for _ in 0..3 {
        death(&engine, "exit", args! { status: 3 }).await;
    }
    assert!(!wait.answer.is_finished(), "the neighbour's call has ended with it");
    wait.finish().await;
    engine.close().await;
}

pub(crate) async fn calls_that_wait_behind_a_death_are_served(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    engine.assert_serves().await;
    let first = tokio::spawn(engine.call::<Value>("exit", args! { status: 3 }).into_future());
    until("it is with its worker", || engine.pool().in_flight() > 0 || first.is_finished()).await;
    let behind = (0..20).map(|n| {
        let engine = &engine;
        async move {
            let sum: i64 = engine.get("add", args! { a: n, b: n }).await;
            assert_eq!(sum, 2 * n);
        }
    });
    join_all(behind).await;
    match soon("the death", first).await {
        Ok(Err(CallError::WorkerDied { .. })) => {}
        other => panic!("exit comes to {other:?}"),
    }
    engine.close().await;
}

pub(crate) async fn garbage_costs_its_own_call_only(subject: &dyn Subject) {
    let engine = TestEngine::with(subject, |pool| pool.workers(2)).await;
    let wait = engine.begin_wait("wait").await;
    let answer = engine.ask::<Value>("garbage", args! {}).await;
    assert!(answer.is_err(), "garbage is taken for an answer: {answer:?}");
    assert!(!wait.answer.is_finished(), "the neighbour's call has ended with it");
    engine.assert_serves().await;
    wait.finish().await;
    engine.close().await;
}

/// Reports whether no process holds the lock of the file.
pub(crate) fn is_free(lock: &Path) -> bool {
    let Ok(file) = std::fs::File::open(lock) else { panic!("{} was not made", lock.display()) };
    flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Makes a worker start a process that holds the lock of a file for as long as it lives.
pub(crate) async fn leave_child(engine: &TestEngine) -> std::path::PathBuf {
    let lock = engine.path("lock");
    let _: Value = engine.get("leave_child", args! { lock: text(&lock) }).await;
    assert!(!is_free(&lock), "the child does not have the lock");
    lock
}

pub(crate) async fn nothing_that_a_dead_worker_started_lives_on(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let lock = leave_child(&engine).await;
    death(&engine, "die", args! {}).await;
    until("its child is gone, too", || is_free(&lock)).await;
    engine.close_serving().await;
}
