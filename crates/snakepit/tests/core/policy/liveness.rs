//! Busy, waiting, stuck and stopped workers are told apart, and only the configured policy acts on them.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use snakepit::policy::{Stuck, WhenStuck};
use snakepit::pool::WorkerLiveness;
use snakepit::telemetry::{Event, Subscription};
use snakepit::{CallError, Pool, Value, args};

use crate::support::{self, Pit, heard, soon, worker};

/// Waits until the first worker is seen in this state.
async fn seen(pool: &Pool, liveness: WorkerLiveness) {
    let wanted = async {
        while pool.status().await.workers.first().and_then(|worker| worker.liveness) != Some(liveness) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(&format!("{liveness:?}"), wanted).await;
}

async fn stuck(events: &mut Subscription) -> Option<std::sync::Arc<str>> {
    heard(events, |event| match event {
        Event::WorkerStuck { stack, .. } => Some(stack),
        _ => None,
    })
    .await
}

/// The GIL is held for 30 s, with and without using the CPU. No worker is killed for that.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_holds_the_gil_for_half_a_minute_is_not_killed() {
    // Long enough for several checks on a busy machine.
    let seconds: u64 = if support::is_full() { 30 } else { 10 };
    let pit = Pit::start(worker("hostile.py").workers(2)).await;
    let pool = pit.pools()[0].clone();
    let began = Instant::now();
    let sleeping = tokio::spawn(pit.call::<Value>("holds_the_gil", args! { seconds: seconds }).into_future());
    let computing = tokio::spawn(pit.call::<Value>("powers", args! { seconds: seconds }).into_future());
    let both = async {
        loop {
            let now: Vec<_> =
                pool.status().await.workers.iter().filter_map(|worker| worker.liveness).collect();
            if now.len() == 2 && now.contains(&WorkerLiveness::Busy) && now.contains(&WorkerLiveness::Stuck) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("one is busy, one looks stuck", both).await;
    for call in [sleeping, computing] {
        let ended = tokio::time::timeout(Duration::from_secs(3 * seconds + 30), call).await;
        ended.expect("in time").expect("no panic").expect("it was not killed");
    }
    assert!(began.elapsed() >= Duration::from_secs(seconds));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_worker_is_reported_with_its_stack_and_left_alone() {
    let policy = Stuck::default().after(Duration::from_secs(1));
    let pit = Pit::start(worker("hostile.py").workers(1).stuck(policy)).await;
    let pool = pit.pools()[0].clone();
    let mut events = pool.events();
    let call = tokio::spawn(pit.call::<Value>("holds_the_gil", args! { seconds: 10 }).into_future());
    let stack = stuck(&mut events).await.expect("a stack");
    assert!(stack.contains("holds_the_gil"), "{stack}");
    soon("the call", call).await.expect("no panic").expect("it was left alone");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_worker_is_replaced_if_the_policy_says_so() {
    let policy = Stuck::default().after(Duration::from_secs(1)).then(WhenStuck::Replace);
    let pit = Pit::start(worker("hostile.py").workers(1).stuck(policy)).await;
    let pool = pit.pools()[0].clone();
    let mut events = pool.events();
    let call = pit.call::<Value>("holds_the_gil", args! { seconds: 600 });
    let error = soon("the call", call).await.expect_err("its worker was replaced");
    let CallError::WorkerDied { autopsy, .. } = &error else { panic!("{error:?}") };
    assert!(autopsy.stack.as_ref().is_some_and(|stack| stack.contains("holds_the_gil")), "{error}");
    assert!(error.to_string().contains("no sign of life"), "{error}");
    stuck(&mut events).await;
    assert_eq!(soon("a call", pit.call::<u32>("echo", args! { value: 1 })).await.expect("served"), 1);
    pit.end().await;
}

/// The request for its stack wakes it up.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_recovers_when_asked_is_not_replaced() {
    let policy = Stuck::default().after(Duration::from_secs(1)).then(WhenStuck::Replace);
    let pit = Pit::start(worker("hostile.py").workers(1).stuck(policy)).await;
    let pool = pit.pools()[0].clone();
    let (mut events, before) = (pool.events(), support::pids(&pool));
    let call = tokio::spawn(pit.call::<u32>("sleeps_in_c", args! { seconds: 600 }).into_future());
    stuck(&mut events).await;
    let left = soon("the call", call).await.expect("no panic").expect("it was not ended");
    assert!(left > 0, "the sleep was cut short");
    assert_eq!(soon("a call", pit.call::<u32>("pid", ())).await.expect("served"), before[0]);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_busy_stopped_and_idle_workers_are_distinguished() {
    // A worker that waits or computes is not stuck, however short the limit is.
    let policy = Stuck::default().after(Duration::ZERO).then(WhenStuck::Replace);
    let pit = Pit::start(worker("hostile.py").workers(1).stuck(policy)).await;
    let pool = pit.pools()[0].clone();
    seen(&pool, WorkerLiveness::Idle).await;
    let waiting = tokio::spawn(pit.call::<Value>("sleep", args! { seconds: 4.0 }).into_future());
    seen(&pool, WorkerLiveness::Waiting).await;
    let stats = pool.status().await;
    assert_eq!(stats.workers[0].at_work.len(), 1);
    assert_eq!(stats.workers[0].at_work[0].command, "sleep");
    let pid = stats.workers[0].info.pid.expect("a pid").as_raw() as u32;
    support::signal(pid, Signal::STOP);
    seen(&pool, WorkerLiveness::Stopped).await;
    support::signal(pid, Signal::CONT);
    soon("the call", waiting).await.expect("no panic").expect("it goes on");
    let computing = tokio::spawn(pit.call::<Value>("powers", args! { seconds: 4 }).into_future());
    seen(&pool, WorkerLiveness::Busy).await;
    soon("the call", computing).await.expect("no panic").expect("answered");
    seen(&pool, WorkerLiveness::Idle).await;
    assert_eq!(support::pids(&pool), [pid], "it is still the same");
    pit.end().await;
}
