//! Workers that SIGSTOP has stopped get no calls; other workers serve instead, until SIGCONT.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use snakepit::custody::CustodyOptions;
use snakepit::policy::Sizing;
use snakepit::pool::{Affinity, WorkerLiveness};
use snakepit::{CallError, Pool, Snakepit, Value, args};

use crate::support::{self, Pit, pids, signal, soon, until, worker};

/// Waits until the pool has noticed that some workers are stopped, and reports why.
async fn is_short(pool: &Pool) {
    until("it is noticed", || support::trouble(pool).is_some_and(|trouble| trouble.contains("SIGCONT")))
        .await;
}

async fn pid(pit: &Pit) -> u32 {
    soon("a call", pit.call::<u32>("pid", ())).await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_stopped_while_it_idles_gets_no_calls_until_it_goes_on() {
    let pit = Pit::start(worker("hostile.py").workers(2)).await;
    let pool = pit.pools()[0].clone();
    // The worker that was busy last would be the first to get a call.
    let stopped = pid(&pit).await;
    signal(stopped, Signal::STOP);
    is_short(&pool).await;
    let stats = pool.status().await;
    let seen = stats
        .workers
        .iter()
        .find(|worker| worker.info.pid.is_some_and(|pid| pid.as_raw() as u32 == stopped))
        .expect("it is there");
    assert_eq!(seen.liveness, Some(WorkerLiveness::Stopped));
    for _ in 0..50 {
        assert_ne!(pid(&pit).await, stopped);
    }
    let mut together = BTreeSet::new();
    for answer in futures_util::future::join_all((0..8).map(|_| pid(&pit))).await {
        together.insert(answer);
    }
    assert!(!together.contains(&stopped), "{together:?}");
    let error = pool.await_ready(Duration::from_millis(1)).await.expect_err("one is missing");
    assert!(
        matches!(&error, CallError::NoWorkers { reason, .. } if reason.to_string().contains("SIGCONT")),
        "{error}"
    );
    signal(stopped, Signal::CONT);
    soon("it goes on", pool.await_ready(support::SOON)).await.expect("ready");
    let served = async {
        // Two calls at a time need both workers.
        while !futures_util::future::join_all((0..2).map(|_| pid(&pit))).await.contains(&stopped) {}
    };
    soon("it serves again", served).await;
    assert_eq!(pids(&pool).len(), 2, "nobody was started in its place");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_wait_in_the_queue_while_all_workers_are_stopped() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let pool = pit.pools()[0].clone();
    let only = pids(&pool)[0];
    signal(only, Signal::STOP);
    is_short(&pool).await;
    let call = tokio::spawn(pit.call::<u32>("pid", ()).into_future());
    until("it waits", || pool.queued() == 1).await;
    assert_eq!(pool.in_flight(), 0);
    let brief = pit.call::<u32>("pid", ()).queue_timeout(Duration::from_millis(20));
    let error = soon("the queue's time", brief).await.expect_err("nobody serves");
    assert!(error.to_string().contains("SIGCONT"), "{error}");
    signal(only, Signal::CONT);
    assert_eq!(soon("the call", call).await.expect("no panic").expect("served"), only);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_stopped_worker_stay_with_it() {
    let pit = Pit::start(worker("hostile.py").workers(1).concurrency(1)).await;
    let pool = pit.pools()[0].clone();
    let (only, path) = (pids(&pool)[0], pit.file("started"));
    let nap = args! { path: path.as_str(), key: "nap", seconds: 0.2 };
    let call = tokio::spawn(pit.call::<Value>("mark_and_sleep", nap).into_future());
    until("it is under way", || !support::lines(&path).is_empty()).await;
    signal(only, Signal::STOP);
    is_short(&pool).await;
    assert_eq!(pool.in_flight(), 1);
    signal(only, Signal::CONT);
    soon("the call", call).await.expect("no panic").expect("it goes on");
    assert_eq!(support::lines(&path).len(), 1, "it was made once");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_whose_size_follows_the_load_grows_past_a_stopped_worker() {
    let pit = Pit::start(worker("hostile.py").sizing(Sizing::between(1, 2))).await;
    let pool = pit.pools()[0].clone();
    let stopped = pids(&pool)[0];
    signal(stopped, Signal::STOP);
    is_short(&pool).await;
    assert_ne!(pid(&pit).await, stopped);
    signal(stopped, Signal::CONT);
    soon("both serve", pool.await_ready(support::SOON)).await.expect("ready");
    assert_eq!(pids(&pool).len(), 2);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shrinking_pool_ends_its_stopped_worker() {
    let pit = Pit::start(worker("hostile.py").workers(2)).await;
    let pool = pit.pools()[0].clone();
    let stopped = pid(&pit).await;
    signal(stopped, Signal::STOP);
    is_short(&pool).await;
    pool.scale(1);
    soon("the other one is enough", pool.await_ready(support::SOON)).await.expect("ready");
    assert_ne!(pid(&pit).await, stopped);
    until("it is gone", || !support::runs(stopped)).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strict_session_waits_for_its_stopped_worker() {
    type Who = (Option<String>, u32);
    let pit = Pit::start(worker("sessions.py").workers(2).affinity(Affinity::StrictQueue)).await;
    let pool = pit.pools()[0].clone();
    let who = || pit.call::<Who>("who", args! {}).session("a").into_future();
    let (_, owner) = soon("who", who()).await.expect("who");
    signal(owner, Signal::STOP);
    is_short(&pool).await;
    let call = tokio::spawn(who());
    until("it waits", || pool.queued() == 1).await;
    let other = soon("who", pit.call::<Who>("who", args! {})).await.expect("who");
    assert_ne!(other.1, owner);
    signal(owner, Signal::CONT);
    assert_eq!(soon("the session", call).await.expect("no panic").expect("who").1, owner);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_at_a_stopped_worker_is_kept_and_the_error_says_that_it_is_stopped() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let (pool, path) = (pit.pools()[0].clone(), pit.file("started"));
    let mut late = Vec::new();
    for round in 1..=3 {
        let (only, time) = (pids(&pool)[0], Duration::from_secs(2));
        let nap = args! { path: path.as_str(), key: "nap", seconds: 600 };
        let began = Instant::now();
        let call = tokio::spawn(pit.call::<Value>("mark_and_sleep", nap).timeout(time).into_future());
        until("it is under way", || support::lines(&path).len() == round).await;
        signal(only, Signal::STOP);
        let error = soon("the call", call).await.expect("no panic").expect_err("too late");
        late.push(began.elapsed().saturating_sub(time));
        assert!(matches!(&error, CallError::Timeout { .. }), "{error}");
        assert!(error.to_string().contains("is stopped by a signal"), "{error}");
        signal(only, Signal::CONT);
        soon("the next", pid(&pit)).await;
    }
    // At least one of them on a machine with enough time. A request for the stack would take half a second.
    assert!(late.iter().min().is_some_and(|late| *late < Duration::from_millis(400)), "{late:?}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_continues_a_stopped_worker_so_that_it_can_exit() {
    let custody = CustodyOptions::default().cleanup_on_stop_timeout_ms(60_000);
    let pit = Pit::build_with(Snakepit::builder().pool(worker("hostile.py").workers(1)), custody).await;
    let pool = pit.pools()[0].clone();
    signal(pids(&pool)[0], Signal::STOP);
    is_short(&pool).await;
    let began = Instant::now();
    pit.end().await;
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}
