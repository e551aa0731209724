//! Workers that die soon after each start are restarted with pauses, and the pool reports the crash loop once.

use std::time::{Duration, Instant};

use snakepit::policy::Restarts;
use snakepit::pool::PoolHealth;
use snakepit::telemetry::{Event, Subscription};
use snakepit::{CallError, Value, args};

use crate::support::{self, Pit, heard, python, soon, until};

/// Counts the events within a time.
async fn told_within(events: &mut Subscription, time: Duration) -> Vec<&'static str> {
    let end = tokio::time::Instant::now() + time;
    let mut told = Vec::new();
    while let Ok(event) = tokio::time::timeout_at(end, events.next()).await {
        told.push(event.expect("the pool lives").name());
    }
    told
}

fn count(told: &[&str], name: &str) -> usize {
    told.iter().filter(|it| **it == name).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_live_a_little_longer_than_a_second_are_held_back_and_do_not_flap() {
    let worker = python("short_lived.py").env("LIVES", "1.1-1.5");
    let restarts = Restarts::default().longest_pause(Duration::from_secs(4));
    let pit = Pit::start(snakepit::python(worker).workers(3).restarts(restarts)).await;
    let mut events = pit.pools()[0].events();
    heard(&mut events, |event| matches!(event, Event::PoolDegraded { .. }).then_some(())).await;
    let told = told_within(&mut events, Duration::from_secs(12)).await;
    let (deaths, recovered, degraded) = (
        count(&told, "snakepit.worker.died"),
        count(&told, "snakepit.pool.recovered"),
        count(&told, "snakepit.pool.degraded"),
    );
    // Workers that were started before may still die. After that, one worker dies per pause of at least 3 s.
    assert!(deaths <= 3 + 5, "{deaths} deaths: {told:?}");
    assert_eq!((recovered, degraded), (0, 0), "{told:?}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_in_a_crash_loop_recovers_when_its_workers_live() {
    let directory = tempfile::tempdir().expect("a directory");
    let lives = directory.path().join("lives");
    std::fs::write(&lives, "0.2-0.4").expect("a file");
    let worker = python("short_lived.py").env("LIVES_IN", lives.as_os_str());
    let restarts = Restarts::default().longest_pause(Duration::from_millis(500));
    let pit = Pit::start(snakepit::python(worker).workers(2).restarts(restarts)).await;
    let pool = pit.pools()[0].clone();
    let mut events = pool.events();
    heard(&mut events, |event| matches!(event, Event::PoolDegraded { .. }).then_some(())).await;
    std::fs::write(&lives, "600-600").expect("a file");
    heard(&mut events, |event| matches!(event, Event::PoolRecovered { .. }).then_some(())).await;
    soon("ready", pool.await_ready(support::SOON)).await.expect("ready");
    assert_eq!(pool.workers().len(), 2);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_to_a_pool_that_cannot_start_a_worker_are_answered_when_a_trial_has_failed() {
    let directory = tempfile::tempdir().expect("a directory");
    let lives = directory.path().join("lives");
    std::fs::write(&lives, "600-600").expect("a file");
    let worker = python("short_lived.py").env("LIVES_IN", lives.as_os_str());
    let restarts = Restarts::default().failures(1).longest_pause(Duration::from_millis(300));
    let pool = snakepit::python(worker).workers(1).restarts(restarts).queue_timeout(support::SOON * 2);
    let pit = Pit::start(pool).await;
    let pool = pit.pools()[0].clone();
    let mut events = pool.events();
    std::fs::write(&lives, "never").expect("a file");
    support::pids(&pool).into_iter().for_each(support::kill);
    heard(&mut events, |event| matches!(event, Event::PoolDegraded { .. }).then_some(())).await;
    let began = Instant::now();
    let error = soon("the call", pit.call::<Value>("echo", args! { value: 1 })).await.expect_err("nobody");
    assert!(began.elapsed() < support::SOON, "{:?}", began.elapsed());
    let said = error.to_string();
    assert!(matches!(error, CallError::NoWorkers { .. }), "{said}");
    assert!(said.contains("told not to start") && said.contains("degraded"), "{said}");
    let stats = soon("stats", pool.status()).await;
    assert!(matches!(stats.health, PoolHealth::Degraded { serving: 0, .. }), "{:?}", stats.health);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_without_workers_is_not_healthy_and_refuses_calls_at_once() {
    let worker = python("short_lived.py").env("LIVES", "600-600");
    let pool = snakepit::python(worker).workers(1).queue_timeout(support::SOON * 2);
    let pit = Pit::start(pool).await;
    let pool = pit.pools()[0].clone();
    let call = || pit.call::<i64>("echo", args! { value: 1 });
    pool.scale(0);
    until("nobody serves", || pool.workers().is_empty()).await;
    let error = soon("the call", call()).await.expect_err("nobody is there");
    assert!(matches!(error, CallError::NoWorkers { .. }), "{error}");
    assert!(error.to_string().contains("scale"), "{error}");
    soon("as many as were asked for", pool.await_ready(support::SOON)).await.expect("none");
    let trouble = support::trouble(&pool).expect("it serves nobody");
    assert!(trouble.contains("scale"), "{trouble}");
    assert_eq!(soon("stats", pool.status()).await.health, PoolHealth::Empty);
    pool.scale(1);
    assert_eq!(soon("a call", call()).await.expect("it waits for the worker that starts"), 1);
    assert_eq!(support::trouble(&pool), None);
    pit.end().await;
}
