//! Checks of what the engine promises an adapter: `init` once, `start_worker` for each worker, and `terminate` for each
//! worker that became ready. This file covers the start of workers and the end of everything around them.
//! [`super::endings`] covers the other ways to end.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use crate::adapter::Reason;
use crate::adapters::recording::Recording;
use crate::adapters::test_engine::{
    SOON, TestEngine, chain, directory, has_line, noted, or_panic, plan, runs_in, soon, text, until,
};
use crate::adapters::{Subject, Way};
use crate::{Builder, EngineError, PoolOptions, StartError, args};

pub(crate) async fn init_runs_once_and_each_worker_is_started_once(subject: &dyn Subject) {
    let engine = TestEngine::with(subject, |pool| pool.workers(3)).await;
    assert_eq!((engine.recording.inits(), engine.recording.starts(), engine.recording.ready()), (1, 3, 3));
    or_panic(soon("the reload", engine.pool().reload()).await, "it does not reload");
    assert_eq!((engine.recording.inits(), engine.recording.starts(), engine.recording.ready()), (1, 6, 6));
    engine.close_serving().await;
}

pub(crate) async fn a_start_that_is_cancelled_leaves_nothing(subject: &dyn Subject) {
    let engine =
        TestEngine::begin(subject, Way::NeverReady, |pool| pool.worker_start_timeout(SOON * 2)).await;
    noted(&engine.recording, "the start has begun", |recording| recording.starts() == 1).await;
    soon("the stop", engine.stop_within(Duration::ZERO)).await;
    assert_eq!(
        (engine.recording.starts(), engine.recording.ready()),
        (1, 0),
        "starts, and workers that got ready"
    );
    engine.assert_is_over();
}

/// Returns a pool whose worker warms up until a file exists.
fn warms_up(files: &TempDir) -> impl FnOnce(PoolOptions) -> PoolOptions {
    let (started, release) = (text(&files.path().join("started")), text(&files.path().join("release")));
    move |pool| pool.warm_up("wait", args! { started: started, release: release }).worker_start_timeout(SOON)
}

async fn warm_up_began(files: &TempDir) {
    let started = files.path().join("started");
    until("the warm-up has begun", || has_line(&started, "started")).await;
}

pub(crate) async fn a_start_that_is_cancelled_while_it_warms_up_is_terminated_once(subject: &dyn Subject) {
    let files = directory();
    let engine = TestEngine::begin(subject, Way::Ready, warms_up(&files)).await;
    warm_up_began(&files).await;
    soon("the stop", engine.stop_within(Duration::ZERO)).await;
    assert_eq!(engine.recording.reasons(), [[Reason::Stopped]], "why it was terminated");
    engine.assert_is_over();
}

pub(crate) async fn a_worker_that_does_not_warm_up_is_terminated_once(subject: &dyn Subject) {
    let started =
        TestEngine::start(subject, Way::Ready, |pool| pool.warm_up("fail", args! { message: "too cold" }));
    let Err((error, recording)) = started.await else { panic!("it serves although its warm-up failed") };
    assert!(
        matches!(error, EngineError::Start { source: StartError::WarmUp { .. }, .. }),
        "not an error of the warm-up: {}",
        chain(&error)
    );
    recording.assert_balanced();
    let reasons = recording.reasons();
    assert!(matches!(reasons[0].as_slice(), [Reason::Broken(_)]), "why it was terminated: {reasons:?}");
}

/// Starts an engine in a new runtime, and drops the runtime after `lives_until` has returned.
async fn drop_runtime_under(
    (builder, recording, home): (Builder, Arc<Recording>, TempDir),
    lives_until: impl AsyncFnOnce(&crate::Snakepit) + Send + 'static,
) {
    let held = Arc::clone(&recording);
    let done = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let Ok(runtime) = runtime else { panic!("no runtime") };
        let pit = runtime.block_on(async {
            let pit = or_panic(builder.start_in_background().await, "the pool does not start");
            lives_until(&pit).await;
            pit
        });
        drop(runtime);
        // Everything that ran in the runtime has ended.
        held.assert_balanced();
        pit
    });
    let pit = match done.await {
        Ok(pit) => pit,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    };
    drop(pit);
    until("nothing is left", || runs_in(home.path()).is_empty()).await;
    assert_eq!(recording.inits(), 1, "init ran {} times", recording.inits());
    recording.assert_balanced();
}

pub(crate) async fn a_runtime_that_is_dropped_terminates_its_workers_once(subject: &dyn Subject) {
    let planned = plan(subject, Way::Ready, |pool| pool.workers(2));
    let recording = Arc::clone(&planned.1);
    drop_runtime_under(planned, async |pit| {
        or_panic(pit.await_ready(SOON).await, "the workers do not get ready");
    })
    .await;
    assert_eq!(recording.ready(), 2);
    let reasons = recording.reasons();
    assert!(
        reasons.iter().all(|reasons| matches!(reasons.as_slice(), [Reason::Broken(_)])),
        "why they were terminated: {reasons:?}"
    );
}

pub(crate) async fn a_runtime_that_is_dropped_while_a_worker_warms_up_terminates_it_once(
    subject: &dyn Subject,
) {
    let files = Arc::new(directory());
    let planned = plan(subject, Way::Ready, warms_up(&files));
    let recording = Arc::clone(&planned.1);
    let seen = Arc::clone(&files);
    drop_runtime_under(planned, async move |_| warm_up_began(&seen).await).await;
    assert_eq!(recording.ready(), 1);
}

pub(crate) async fn a_runtime_that_is_dropped_during_a_goodbye_terminates_nobody_twice(
    subject: &dyn Subject,
) {
    let planned = plan(subject, Way::Ready, |pool| pool);
    let recording = Arc::clone(&planned.1);
    let watched = Arc::clone(&planned.1);
    drop_runtime_under(planned, async move |pit| {
        or_panic(pit.await_ready(SOON).await, "the worker does not get ready");
        watched.clinging.store(true, std::sync::atomic::Ordering::SeqCst);
        pit.pools()[0].scale(0);
        noted(&watched, "the goodbye has begun", |recording| !recording.reasons()[0].is_empty()).await;
    })
    .await;
    assert_eq!(recording.reasons(), [[Reason::Stopped]], "why it was terminated");
}
