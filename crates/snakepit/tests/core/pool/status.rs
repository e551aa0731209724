//! The status of a pool shows its workers, its queue and what the workers are doing.

use std::time::Duration;

use snakepit::args;
use snakepit::policy::Recycling;
use snakepit::pool::{PoolHealth, WorkerDuty};

use crate::support::{Pit, soon, until, worker};

#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_a_pool_shows_workers_queue_and_running_calls() {
    let pit =
        Pit::start(worker("hostile.py").workers(2).recycling(Recycling::default().max_rss(1 << 40))).await;
    let pool = pit.pools()[0].clone();
    let calls: Vec<_> = (0..3)
        .map(|_| tokio::spawn(pit.call::<f64>("sleep", args! { seconds: 600.0 }).into_future()))
        .collect();
    until("one waits", || pool.queued() == 1).await;
    let stats = soon("stats", pool.status()).await;
    assert_eq!((stats.health.clone(), stats.generation, stats.target), (PoolHealth::Ready(2), 1, 2));
    assert_eq!((stats.queued, stats.in_flight, stats.workers.len()), (1, 2, 2));
    assert!(stats.queue_wait < Duration::from_secs(30));
    for worker in &stats.workers {
        assert_eq!((worker.duty, worker.info.calls, worker.info.in_flight), (WorkerDuty::Serving, 1, 1));
        assert!(worker.rss.is_some_and(|rss| rss > 1 << 20), "{worker:?}");
        assert!(worker.cpu.is_some_and(|cpu| cpu > Duration::ZERO), "{worker:?}");
        assert_eq!(worker.processes, Some(1));
        assert!(worker.info.pid.is_some() && worker.info.language.starts_with("python"), "{worker:?}");
    }
    let json = serde_json::to_value(&stats).expect("JSON");
    assert!(json["workers"][0]["age"].is_number(), "{json}");
    assert_eq!(
        (&json["health"], &json["workers"][0]["duty"]),
        (&"ready".into(), &"serving".into()),
        "{json}"
    );
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    until("they have ended", || pool.in_flight() == 0).await;
    let old = stats.workers[0].info.id.clone();
    pool.recycle(&old).await;
    until("it is gone", || !pool.workers().iter().any(|worker| worker.id == old)).await;
    pit.stop().await;
    let stats = soon("stats", pool.status()).await;
    assert_eq!((stats.health, stats.workers.len()), (PoolHealth::Stopped, 0));
    pit.end().await;
}
