//! Workers that have served long enough are replaced without a loss of capacity.

use std::collections::BTreeSet;
use std::time::Duration;

use snakepit::policy::Recycling;
use snakepit::telemetry::{Event, Subscription};
use snakepit::{Pool, args};

use crate::support::{self, Pit, heard, soon, until, worker};

/// Returns the next reason for which a worker is replaced.
async fn due(events: &mut Subscription) -> String {
    let reason = heard(events, |event| match event {
        Event::WorkerDue { reason, .. } => Some(reason),
        _ => None,
    });
    reason.await.to_string()
}

/// Waits until a worker that was replaced is gone.
async fn ended(events: &mut Subscription) {
    heard(events, |event| matches!(event, Event::WorkerEnded { .. }).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_replaced_after_max_requests_calls() {
    let pit =
        Pit::start(worker("leaky.py").workers(1).recycling(Recycling::default().max_requests(50))).await;
    let pool = pit.pools()[0].clone();
    let mut events = pool.events();
    let mut pids = BTreeSet::new();
    let replaced = async {
        while pids.len() < 4 {
            pids.insert(pit.call::<u32>("pid", ()).await.expect("no call fails"));
            assert!(!pool.workers().is_empty(), "capacity does not dip");
        }
    };
    soon("four workers", replaced).await;
    let reason = due(&mut events).await;
    assert!(reason.contains("max_requests"), "{reason}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_worker_starves_while_others_are_replaced_and_none_has_twice_its_calls() {
    const LIMIT: u64 = 200;
    const CALLERS: u64 = 16;
    let recycling = Recycling::default().max_requests(LIMIT).jitter(0.0);
    let pit = Pit::start(worker("leaky.py").workers(4).recycling(recycling)).await;
    let pool = pit.pools()[0].clone();
    let mut events = pool.events();
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let pit = pit.clone();
            tokio::spawn(async move {
                loop {
                    pit.call::<u32>("pid", ()).await.expect("no call fails");
                }
            })
        })
        .collect();
    let (mut most, mut left) = (0, Vec::new());
    let watched = async {
        while left.len() < 12 {
            tokio::select! {
                event = events.next() => if let Some(Event::WorkerLeaves { worker, .. }) = event {
                    left.push(worker);
                },
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
            most = pool.workers().iter().map(|worker| worker.calls).max().unwrap_or(0).max(most);
        }
    };
    soon("twelve are replaced", watched).await;
    assert!(callers.iter().all(|caller| !caller.is_finished()), "a call failed");
    callers.iter().for_each(tokio::task::JoinHandle::abort);
    // The first four are all among the first to go, whatever they had to do.
    for first in ["leaky-1", "leaky-2", "leaky-3", "leaky-4"] {
        assert!(left[..8].iter().any(|worker| **worker == *first), "{first} is not among {left:?}");
    }
    // Callers that have chosen a worker at the same time as the one that reaches the limit may still be served by it.
    assert!(most <= 2 * LIMIT + CALLERS, "a worker was given {most} calls");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_beyond_twice_their_limit_keep_serving_if_no_replacement_starts() {
    let directory = tempfile::tempdir().expect("a directory");
    let lives = directory.path().join("lives");
    std::fs::write(&lives, "600-600").expect("a file");
    let python = support::python("short_lived.py").env("LIVES_IN", lives.as_os_str());
    let restarts =
        snakepit::policy::Restarts::default().failures(0).longest_pause(Duration::from_millis(200));
    let recycling = Recycling::default().max_requests(10).jitter(0.0);
    let pool = snakepit::python(python).workers(1).restarts(restarts).recycling(recycling);
    let pit = Pit::start(pool).await;
    std::fs::write(&lives, "never").expect("a file");
    for n in 0..60 {
        let answer = soon("a call", pit.call::<i64>("echo", args! { value: n })).await;
        assert_eq!(answer.expect("it is served"), n);
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jitter_spreads_the_recycling_of_workers_that_started_together() {
    let recycling = Recycling::default().max_requests(1000).jitter(0.5);
    let pit = Pit::start(worker("leaky.py").workers(3).concurrency(1).recycling(recycling)).await;
    let mut events = pit.pools()[0].events();
    let mut calls = BTreeSet::new();
    let load = tokio::spawn({
        let pit = pit.clone();
        async move {
            loop {
                let four = (0..6).map(|_| pit.call::<u32>("pid", ()).into_future());
                futures_util::future::join_all(four).await;
            }
        }
    });
    for _ in 0..3 {
        calls.insert(due(&mut events).await);
    }
    load.abort();
    assert!(calls.len() > 1, "{calls:?}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_replaced_at_its_maximum_age_and_when_idle() {
    let short = Duration::from_millis(1);
    let cases =
        [(Recycling::default().ttl(short), "(ttl)"), (Recycling::default().idle_ttl(short), "(idle_ttl)")];
    for (recycling, said) in cases {
        let pit = Pit::start(worker("leaky.py").workers(1).recycling(recycling)).await;
        let pool = pit.pools()[0].clone();
        let mut events = pool.events();
        let before = pit.call::<u32>("pid", ()).await.expect("served");
        let reason = due(&mut events).await;
        assert!(reason.contains(said), "{reason}");
        ended(&mut events).await;
        // On a busy machine, the first worker may have been replaced before the call, and this was its end.
        let another = async { while pit.call::<u32>("pid", ()).await.expect("served") == before {} };
        soon("another one", another).await;
        pit.end().await;
    }
}

fn worst(pool: &Pool) -> Option<(String, u64)> {
    pool.growth().into_iter().next().map(|growth| (growth.command, growth.bytes_per_call))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leak_of_ten_megabytes_a_call_meets_its_limit_and_no_call_fails() {
    const MIB: u64 = 1 << 20;
    let pit =
        Pit::start(worker("leaky.py").workers(2).recycling(Recycling::default().max_rss(150 * MIB))).await;
    let pool = pit.pools()[0].clone();
    let mut events = pool.events();
    let caller = |command: &'static str, mib: i64| {
        let pit = pit.clone();
        tokio::spawn(async move {
            for round in 0u64.. {
                let answer = match mib {
                    0 => pit.call::<Option<i64>>(command, args! { value: 1 }).await.map(drop),
                    mib => pit.call::<i64>(command, args! { mib: mib }).await.map(drop),
                };
                answer.expect("no call fails");
                // In a varying mix: among commands that always run together, it is impossible to say which one leaks.
                let pause = if mib == 0 && (round / 32).is_multiple_of(2) { 20 } else { 150 };
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
        })
    };
    let callers = [caller("leak", 10), caller("tidy", 0)];
    for _ in 0..2 {
        let reason = due(&mut events).await;
        assert!(reason.contains("max_rss"), "{reason}");
    }
    let known = || worst(&pool).is_some_and(|(command, bytes)| command == "leak" && bytes > 5 * MIB);
    until("the culprit is known", known).await;
    for caller in callers {
        assert!(!caller.is_finished(), "no call failed");
        caller.abort();
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_of_child_processes_counts_as_well() {
    let pit =
        Pit::start(worker("leaky.py").workers(1).recycling(Recycling::default().max_rss(150 << 20))).await;
    let mut events = pit.pools()[0].events();
    let child = pit.call::<u32>("child_leaks", args! { mib: 200 }).await.expect("served");
    let reason = due(&mut events).await;
    assert!(reason.contains("max_rss"), "{reason}");
    ended(&mut events).await;
    until("the child is gone, too", || !support::runs(child)).await;
    pit.end().await;
}
