//! Workers that warm up before they serve, that start with the first call, or that serve one call each.
//!
//! About `crates/core/src/request/direct_call.rs`, `crates/core/src/supervisor/worker_task.rs` and
//! `crates/core/src/options/mod.rs`.

use std::time::Duration;

use snakepit::{EngineError, Snakepit, args};

use crate::support::{self, Pit, chain, config, lines, runs_in, soon, until, worker};

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_serves_only_after_its_warm_up_calls() {
    let home = tempfile::tempdir().expect("a directory");
    let path = home.path().join("marks").to_string_lossy().into_owned();
    let mark = |key: &str| args! { path: path.as_str(), key: key };
    let pool = worker("hostile.py").workers(2).warm_up("mark", mark("first")).warm_up("mark", mark("second"));
    let pit = Pit::start(pool).await;
    let marks = lines(&path);
    assert_eq!(marks.len(), 4, "each worker was warmed up when the engine was ready: {marks:?}");
    for worker in pit.pools()[0].workers() {
        assert_eq!(worker.calls, 0, "warm-up calls are not counted");
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_up_that_fails_fails_the_start_and_says_why() {
    let cases = [
        ("nothing_like_it", args! {}, "nothing_like_it"),
        ("echo", args! { wrong: 1 }, "wrong"),
        ("end", args! { how: "segfault" }, "ended with signal 11"),
        ("bad_result", args! {}, "bad_result"),
    ];
    for (command, args, said) in cases {
        let home = tempfile::tempdir().expect("a directory");
        let pool = worker("hostile.py").workers(1).warm_up(command, args);
        let started = Snakepit::builder().pool(pool).custody(config(&home)).start().await;
        let error = started.expect_err("it cannot be warmed up");
        assert!(matches!(error, EngineError::Start { .. }), "{error:?}");
        let text = chain(&error);
        assert!(text.contains("warm-up call") && text.contains(said), "{text}");
        assert!(runs_in(home.path()).is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lazy_pool_starts_with_the_first_call() {
    let pit = Pit::start(worker("hostile.py").workers(2).lazy()).await;
    let pool = pit.pools()[0].clone();
    soon("ready", pool.await_ready(support::SOON)).await.expect("a lazy pool is ready as it is");
    assert!(pit.run().expect("a run").workers().is_empty(), "nobody was started");
    assert_eq!(soon("a call", pit.call::<u32>("echo", args! { value: 1 })).await.expect("served"), 1);
    until("all have started", || pool.workers().len() == 2).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lazy_pool_that_nobody_calls_stops_at_once() {
    let pit = Pit::start(worker("hostile.py").workers(2).lazy()).await;
    soon("the stop", pit.end()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_debug_mode_each_call_gets_a_fresh_worker() {
    let pit = Pit::start(worker("hostile.py").workers(2).debug()).await;
    let pool = pit.pools()[0].clone();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let pid = soon("a call", pit.call::<u32>("pid", ())).await.expect("served");
        assert!(seen.insert(pid), "{pid} served before");
    }
    let calls: Vec<_> = (0..6).map(|_| tokio::spawn(pit.call::<u32>("pid", ()).into_future())).collect();
    for call in calls {
        let pid = soon("a call", call).await.expect("no panic").expect("served");
        assert!(seen.insert(pid), "{pid} served before");
    }
    until("all are gone", || pool.workers().is_empty()).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_debug_mode_nothing_times_out() {
    let pool = worker("hostile.py")
        .workers(1)
        .call_timeout(Duration::from_millis(1))
        .queue_timeout(Duration::from_millis(1))
        .debug();
    let pit = Pit::start(pool).await;
    let slept = soon("a call", pit.call::<f64>("sleep", args! { seconds: 0.1 })).await;
    assert!(slept.is_ok(), "{slept:?}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_of_mocks_support_lazy_and_debug_mode() {
    let mock = || snakepit::adapter::Mock::new().command("one", |_| async { Ok(1.into()) });
    for pool in [snakepit::mock(mock()).lazy(), snakepit::mock(mock()).debug()] {
        let pit = Snakepit::builder().pool(pool.workers(1)).start().await.expect("started");
        for _ in 0..3 {
            assert_eq!(soon("a call", pit.call::<u32>("one", ())).await.expect("served"), 1);
        }
        soon("the stop", pit.stop()).await;
    }
}
