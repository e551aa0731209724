//! Pools whose size follows the load: they grow before calls fail and shrink when the load ends.

use std::time::Duration;

use snakepit::args;
use snakepit::policy::Sizing;
use snakepit::telemetry::Event;

use crate::support::{self, Pit, soon, until, worker};

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_grows_while_calls_wait_and_shrinks_when_it_idles() {
    let sizing = Sizing::between(1, 6).grow_after(Duration::from_millis(20)).idle_ttl(Duration::from_secs(1));
    // A call that had to wait this long would fail, so the pool must have grown by then.
    let pool = worker("hostile.py").sizing(sizing).queue_timeout(Duration::from_secs(20));
    let pit = Pit::start(pool).await;
    let pool = pit.pools()[0].clone();
    let mut events = pool.events();
    assert_eq!(pool.workers().len(), 1, "it begins with the fewest");
    let calls: Vec<_> = (0..24)
        .map(|_| tokio::spawn(pit.call::<f64>("sleep", args! { seconds: 0.5 }).into_future()))
        .collect();
    until("it has grown", || pool.workers().len() >= 4).await;
    for call in calls {
        soon("a call", call).await.expect("no panic").expect("no call fails");
    }
    assert!(pool.workers().len() <= 6);
    until("it has shrunk", || pool.workers().len() == 1).await;
    let mut turns = 0;
    let mut last: Option<bool> = None;
    while let Ok(Some(event)) = tokio::time::timeout(Duration::from_millis(1), events.next()).await {
        if let Event::PoolResized { from, to, .. } = event {
            turns += usize::from(last.replace(to > from).is_some_and(|up| up != (to > from)));
        }
    }
    assert_eq!(turns, 1, "up, and then down");
    assert_eq!(pit.call::<u32>("echo", args! { value: 1 }).await.expect("served"), 1);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_with_a_minimum_of_zero_starts_for_a_call_and_shrinks_to_none_when_idle() {
    let sizing = Sizing::between(0, 2).idle_ttl(Duration::from_secs(1));
    let pit = Pit::start(worker("hostile.py").sizing(sizing)).await;
    let pool = pit.pools()[0].clone();
    for _ in 0..2 {
        assert_eq!(pool.workers().len(), 0);
        assert_eq!(soon("a call", pit.call::<u32>("echo", args! { value: 1 })).await.expect("served"), 1);
        until("nobody is left", || pit.run().expect("a run").workers().is_empty()).await;
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_size_set_by_hand_stays_until_automatic_sizing_is_enabled_again() {
    let sizing =
        Sizing::between(1, 4).idle_ttl(Duration::from_millis(100)).grow_after(Duration::from_millis(5));
    let pit = Pit::start(worker("hostile.py").sizing(sizing)).await;
    let pool = pit.pools()[0].clone();
    pool.scale(3);
    soon("ready", pool.await_ready(support::SOON)).await.expect("ready");
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(pool.workers().len(), 3, "idle or not");
    pool.scale_by(sizing);
    until("the load decides", || pool.workers().len() == 1).await;
    pit.end().await;
}
