//! Pools in trouble: workers that fail again and again, and devices that kill whoever uses them.

mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use snakepit::{CallError, Pool, PoolEvent, PoolRef, Restarts, Taint, Value, args};
use support::{Pit, heard, python, soon, until, worker};

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_whose_workers_do_not_start_is_degraded_says_so_and_recovers_by_itself() {
    let home = tempfile::tempdir().expect("a directory");
    let mood = home.path().join("bad mood");
    let quick = Restarts::default()
        .failures(3)
        .first_pause(Duration::from_millis(5))
        .longest_pause(Duration::from_millis(100));
    let pool = Pool::python(python("moody.py").env("MOODY_FILE", &mood))
        .workers(1)
        .restarts(quick)
        .queue_timeout(Duration::from_millis(200));
    let pit = Pit::start(pool).await;
    let pool = pit.pools()[0].clone();
    let mut events = pool.events();
    std::fs::write(&mood, "").expect("a file");
    support::kill(pit.call::<u32>("pid", ()).await.expect("a pid"));
    let reason = heard(&mut events, |event| match event {
        PoolEvent::Degraded { reason } => Some(reason),
        _ => None,
    })
    .await;
    assert!(reason.contains("in a bad mood"), "{reason}");
    let status = pool.status().trouble.expect("in trouble");
    assert!(status.contains("in a bad mood"), "{status}");
    let error = soon("a call", pit.call::<u32>("echo", args! { value: 1 })).await.expect_err("nobody serves");
    assert!(matches!(error, CallError::NoWorkers { .. }), "{error:?}");
    assert!(error.to_string().contains("in a bad mood") && error.to_string().contains("degraded"), "{error}");
    std::fs::remove_file(&mood).expect("the file");
    heard(&mut events, |event| matches!(event, PoolEvent::Recovered).then_some(())).await;
    soon("ready", pool.await_ready(support::SOON)).await.expect("ready");
    assert_eq!(pit.call::<u32>("echo", args! { value: 2 }).await.expect("served"), 2);
    assert!(pool.status().trouble.is_none());
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_accident_is_replaced_at_once_even_if_all_die() {
    let slow = Restarts::default().first_pause(Duration::from_mins(1)).longest_pause(Duration::from_mins(1));
    let pit = Pit::start(worker("moody.py").workers(4).restarts(slow)).await;
    let pool = pit.pools()[0].clone();
    for _ in 0..2 {
        let began = Instant::now();
        let pids: Vec<_> = pool.status().workers.iter().filter_map(|worker| worker.pid).collect();
        for pid in &pids {
            support::kill(pid.as_raw() as u32);
        }
        let all_new = || {
            let now = pool.status().workers;
            now.len() == 4 && now.iter().all(|worker| worker.pid.is_some_and(|pid| !pids.contains(&pid)))
        };
        until("all are replaced", all_new).await;
        assert!(began.elapsed() < Duration::from_secs(30), "no pause was made");
        // Each shows that it serves; who dies young is a failure of its own.
        for _ in 0..20 {
            let calls = (0..4).map(|_| pit.call::<u32>("echo", args! { value: 1 }).into_future());
            for answer in futures_util::future::join_all(calls).await {
                assert_eq!(answer.expect("served"), 1);
            }
        }
        until("all have served", || pool.status().workers.iter().all(|worker| worker.calls > 0)).await;
    }
    pit.end().await;
}

fn devices(pool: &PoolRef) -> BTreeSet<String> {
    pool.status().workers.into_iter().filter_map(|worker| worker.device).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_share_the_devices_and_a_faulty_one_is_left_alone_for_a_while() {
    let taint = Taint::default().lasts(Duration::from_secs(2));
    let pool = worker("moody.py").workers(2).devices(["cuda:0", "cuda:1"]).taint(taint);
    let pit = Pit::start(pool).await;
    let pool = pit.pools()[0].clone();
    assert_eq!(devices(&pool).len(), 2);
    let mut events = pool.events();
    let lost = pit.call::<Value>(
        "die",
        args! { of: "RuntimeError: CUDA error: an illegal memory access was encountered" },
    );
    let error = soon("the call", lost).await.expect_err("it dies");
    assert!(matches!(error, CallError::WorkerDied { .. }), "{error:?}");
    let (place, fault) = heard(&mut events, |event| match event {
        PoolEvent::Tainted { place, fault, .. } => Some((place, fault)),
        _ => None,
    })
    .await;
    assert!(fault.to_string().contains("CUDA error"), "{fault}");
    soon("ready", pool.await_ready(support::SOON)).await.expect("ready");
    let left = devices(&pool);
    assert_eq!(left.len(), 1, "both are on the device that is left: {left:?}");
    assert!(!left.iter().any(|device| place.ends_with(device)), "{place} is not used");
    let (slot, device) = pit.call::<(String, String)>("place", ()).await.expect("a place");
    assert!(left.contains(&device) && slot.parse::<usize>().is_ok(), "{slot} {device}");
    // Once the taint is over, whoever comes next uses the device again.
    let used_again = async {
        while devices(&pool).len() < 2 {
            pool.recycle_all().await;
            heard(&mut events, |event| matches!(event, PoolEvent::WorkerEnded { .. }).then_some(())).await;
        }
    };
    soon("both devices", used_again).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_with_no_device_left_waits_for_one_and_says_so() {
    let taint = Taint::default().lasts(Duration::from_millis(1500)).pattern("wedged");
    let pool = worker("moody.py")
        .workers(1)
        .devices(["tpu:0"])
        .taint(taint)
        .queue_timeout(Duration::from_millis(100));
    let pit = Pit::start(pool).await;
    let pool = pit.pools()[0].clone();
    let mut events = pool.events();
    let _ = soon("the call", pit.call::<Value>("die", args! { of: "the driver is wedged" })).await;
    // The caller hears of the death before the crew does.
    heard(&mut events, |event| matches!(event, PoolEvent::Tainted { .. }).then_some(())).await;
    let error = soon("a call", pit.call::<u32>("echo", args! { value: 1 })).await.expect_err("no device");
    assert!(error.to_string().contains("devices"), "{error}");
    soon("ready", pool.await_ready(support::SOON)).await.expect("ready again");
    assert_eq!(pit.call::<u32>("echo", args! { value: 1 }).await.expect("served"), 1);
    pit.end().await;
}
