//! Devices that kill their workers are avoided for a while.

use std::collections::BTreeSet;
use std::time::Duration;

use snakepit::policy::Taint;
use snakepit::telemetry::Event;
use snakepit::{CallError, Pool, Value, args};

use crate::support::{self, Pit, heard, soon, worker};

fn devices(pool: &Pool) -> BTreeSet<String> {
    pool.workers().into_iter().filter_map(|worker| worker.device).collect()
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
        Event::PoolTainted { place, fault, .. } => Some((place, fault)),
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
    // Once the taint is over, the next worker uses the device again.
    let used_again = async {
        while devices(&pool).len() < 2 {
            pool.recycle_all().await;
            heard(&mut events, |event| matches!(event, Event::WorkerEnded { .. }).then_some(())).await;
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
    // The caller learns of the death before the supervisor does.
    heard(&mut events, |event| matches!(event, Event::PoolTainted { .. }).then_some(())).await;
    let error = soon("a call", pit.call::<u32>("echo", args! { value: 1 })).await.expect_err("no device");
    assert!(error.to_string().contains("devices"), "{error}");
    soon("ready", pool.await_ready(support::SOON)).await.expect("ready again");
    assert_eq!(pit.call::<u32>("echo", args! { value: 1 }).await.expect("served"), 1);
    pit.end().await;
}
