//! Workers that fail once are replaced at once; a pool whose workers keep failing is degraded until it recovers.

use std::time::{Duration, Instant};

use snakepit::policy::Restarts;
use snakepit::telemetry::Event;
use snakepit::{CallError, args};

use crate::support::{self, Pit, heard, python, soon, until, worker};

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_whose_workers_do_not_start_is_degraded_says_so_and_recovers_by_itself() {
    let home = tempfile::tempdir().expect("a directory");
    let mood = home.path().join("bad mood");
    let quick = Restarts::default()
        .failures(3)
        .first_pause(Duration::from_millis(5))
        .longest_pause(Duration::from_millis(100));
    let pool = snakepit::python(python("moody.py").env("MOODY_FILE", &mood))
        .workers(1)
        .restarts(quick)
        .queue_timeout(Duration::from_millis(200));
    let pit = Pit::start(pool).await;
    let pool = pit.pools()[0].clone();
    let mut events = pool.events();
    std::fs::write(&mood, "").expect("a file");
    support::kill(pit.call::<u32>("pid", ()).await.expect("a pid"));
    let reason = heard(&mut events, |event| match event {
        Event::PoolDegraded { reason, .. } => Some(reason),
        _ => None,
    })
    .await;
    assert!(reason.contains("in a bad mood"), "{reason}");
    let status = support::trouble(&pool).expect("in trouble");
    assert!(status.contains("in a bad mood"), "{status}");
    let error = soon("a call", pit.call::<u32>("echo", args! { value: 1 })).await.expect_err("nobody serves");
    assert!(matches!(error, CallError::NoWorkers { .. }), "{error:?}");
    assert!(error.to_string().contains("in a bad mood") && error.to_string().contains("degraded"), "{error}");
    std::fs::remove_file(&mood).expect("the file");
    heard(&mut events, |event| matches!(event, Event::PoolRecovered { .. }).then_some(())).await;
    soon("ready", pool.await_ready(support::SOON)).await.expect("ready");
    assert_eq!(pit.call::<u32>("echo", args! { value: 2 }).await.expect("served"), 2);
    assert!(support::trouble(&pool).is_none());
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_die_once_are_replaced_at_once_even_if_all_die() {
    let slow = Restarts::default().first_pause(Duration::from_mins(1)).longest_pause(Duration::from_mins(1));
    let pit = Pit::start(worker("moody.py").workers(4).restarts(slow)).await;
    let pool = pit.pools()[0].clone();
    for _ in 0..2 {
        let began = Instant::now();
        let pids: Vec<_> = pool.workers().iter().filter_map(|worker| worker.pid).collect();
        for pid in &pids {
            support::kill(pid.as_raw() as u32);
        }
        let all_new = || {
            let now = pool.workers();
            now.len() == 4 && now.iter().all(|worker| worker.pid.is_some_and(|pid| !pids.contains(&pid)))
        };
        until("all are replaced", all_new).await;
        assert!(began.elapsed() < Duration::from_secs(30), "no pause was made");
        // Each worker shows that it serves. A worker that dies young is a separate failure.
        // The first idle worker gets a call, so only calls at the same time reach all workers.
        let serve = async {
            while pool.workers().iter().any(|worker| worker.calls == 0) {
                let calls = (0..4).map(|_| pit.call::<u32>("echo", args! { value: 1 }).into_future());
                for answer in futures_util::future::join_all(calls).await {
                    assert_eq!(answer.expect("served"), 1);
                }
            }
        };
        soon("all have served", serve).await;
    }
    pit.end().await;
}
