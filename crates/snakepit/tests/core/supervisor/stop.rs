//! Pools stop and leave nothing, whatever their workers do.
//!
//! About `crates/core/src/supervisor/worker_end.rs` and `crates/core/src/pool/set.rs`.

use std::time::{Duration, Instant};

use snakepit::custody::CustodyOptions;
use snakepit::{CallError, Snakepit, Value, args};

use crate::support::{self, Pit, lines, runs_in, soon, until, worker};

#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_a_stopped_pool_fails_at_once() {
    let pit = Pit::start(worker("basic.py").workers(1)).await;
    let pool = pit.pools()[0].clone();
    pit.end().await;
    let told = soon("the answer", pool.await_ready(std::time::Duration::from_hours(1))).await;
    assert!(matches!(told, Err(snakepit::CallError::Stopped)), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_gives_back_what_waits_and_lets_what_runs_finish() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let pool = pit.pools()[0].clone();
    let path = pit.file("marks");
    let running = tokio::spawn(pit.call::<f64>("sleep", args! { seconds: 1.0 }).into_future());
    until("it is under way", || pool.in_flight() == 1).await;
    let waiting: Vec<_> = (0..10)
        .map(|n| {
            let args = args! { path: path.as_str(), key: n.to_string() };
            tokio::spawn(pit.call::<Value>("mark", args).into_future())
        })
        .collect();
    until("they wait", || pool.queued() == 10).await;
    soon("the stop", pit.stop()).await;
    for call in waiting {
        let error = soon("a call", call).await.expect("no panic").expect_err("given back");
        assert!(matches!(error, CallError::Stopped), "{error}");
    }
    assert!(soon("the running one", running).await.expect("no panic").is_ok());
    assert!(lines(&path).is_empty());
    let error = pit.call::<Value>("pid", args! {}).await.expect_err("stopped");
    assert!(matches!(error, CallError::Stopped), "{error}");
    soon("a second stop", pit.stop()).await;
    pit.prove_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_with_a_worker_that_ignores_it_is_bounded_and_fails_its_call() {
    let custody = CustodyOptions::default().cleanup_on_stop_timeout_ms(300);
    let builder = Snakepit::builder().pool(worker("hostile.py").workers(1));
    let pit = Pit::build_with(builder, custody).await;
    let path = pit.file("stubborn");
    let call = tokio::spawn(pit.call::<Value>("stubborn", args! { path: path.as_str() }).into_future());
    until("it is under way", || !lines(&path).is_empty()).await;
    let began = Instant::now();
    soon("the stop", pit.stop_within(Duration::from_millis(200))).await;
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    let error = soon("the call", call).await.expect("no panic").expect_err("cut short");
    assert!(error.to_string().contains("stopped"), "{error}");
    pit.prove_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_workers_that_are_leaving_too() {
    let pit = Pit::start(worker("hostile.py").workers(2)).await;
    let pool = pit.pools()[0].clone();
    let call = || tokio::spawn(pit.call::<f64>("sleep", args! { seconds: 600.0 }).into_future());
    let calls = [call(), call()];
    until("both are under way", || pool.in_flight() == 2).await;
    pool.scale(0);
    until("they leave", || pool.workers().is_empty()).await;
    soon("the stop", pit.stop_within(Duration::from_millis(200))).await;
    for call in calls {
        assert!(soon("a call", call).await.expect("no panic").is_err());
    }
    pit.prove_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_during_the_start_leaves_nothing() {
    for millis in [0, 1, 5, 20, 50, 100] {
        let home = tempfile::tempdir().expect("a directory");
        let builder =
            Snakepit::builder().pool(worker("hostile.py").workers(4)).custody(support::config(&home));
        let pit = builder.start_in_background().await.expect("an engine");
        let call = tokio::spawn(pit.call::<Value>("pid", args! {}).into_future());
        tokio::time::sleep(Duration::from_millis(millis)).await;
        soon("the stop", pit.stop()).await;
        let _ = soon("the call", call).await.expect("no panic");
        assert!(runs_in(home.path()).is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_dropped_leaves_nothing() {
    let pit = Pit::start(worker("hostile.py").workers(2)).await;
    let path = pit.file("sleepy");
    let call = tokio::spawn(pit.call::<Value>("sleepy", args! { path: path.as_str() }).into_future());
    until("the call is under way", || !lines(&path).is_empty()).await;
    let pids: Vec<u32> =
        pit.pools()[0].workers().iter().filter_map(|w| w.pid).map(|pid| pid.as_raw() as u32).collect();
    assert_eq!(pids.len(), 2);
    let home = pit.abandon();
    let outcome = soon("the call", call).await.expect("no panic");
    println!("a call of a dropped engine: {outcome:?}");
    assert!(outcome.is_err());
    until("all workers are gone", || !pids.iter().any(|pid| support::runs(*pid))).await;
    until("the run is gone", || runs_in(home.path()).is_empty()).await;
}

#[test]
fn a_runtime_that_is_dropped_with_its_engine_leaves_nothing() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let home = tempfile::tempdir().expect("a directory");
    let pid = runtime.block_on(async {
        let builder =
            Snakepit::builder().pool(worker("hostile.py").workers(1)).custody(support::config(&home));
        let pit = builder.start().await.expect("an engine");
        let pid: u32 = pit.call("pid", args! {}).await.expect("a pid");
        tokio::spawn(async move { pit.call::<Value>("sleep", args! { seconds: 600.0 }).await });
        tokio::task::yield_now().await;
        pid
    });
    drop(runtime);
    let deadline = Instant::now() + support::SOON;
    while support::runs(pid) || !runs_in(home.path()).is_empty() {
        assert!(Instant::now() < deadline, "worker {pid} or its run is left: {:?}", runs_in(home.path()));
        std::thread::yield_now();
    }
}
