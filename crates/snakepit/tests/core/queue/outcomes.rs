//! Every call is counted once, under one outcome; errors of a degraded pool say that the pool is degraded.

use std::time::Duration;

use futures_util::StreamExt;
use snakepit::policy::{Quarantine, Restarts};
use snakepit::pool::CancelGrace;
use snakepit::{CallError, Value, args};

use crate::support::{self, Pit, at_once, soon, until, worker};

#[tokio::test(flavor = "multi_thread")]
async fn the_counted_outcomes_sum_up_to_the_calls_made() {
    let short = Duration::from_millis(50);
    let grace = CancelGrace::each(short);
    let pool = worker("hostile.py")
        .workers(1)
        .restarts(at_once())
        .cancel_grace(grace)
        .queue_limit(1)
        .max_frame(1 << 20)
        .quarantine(Quarantine::default().deaths(1));
    let pit = Pit::start(pool).await;
    let pool = pit.pools()[0].clone();
    let echo = || pit.call::<u32>("echo", args! { value: 1 });

    assert_eq!(echo().await.expect("served"), 1);
    // What its caller makes of a value does not concern the pool.
    assert!(matches!(pit.call::<String>("echo", args! { value: 1 }).await, Err(CallError::Result { .. })));
    assert!(pit.call::<Value>("end", args! { how: "MemoryError" }).await.is_err());
    let exits = || pit.call::<Value>("end", args! { how: "os._exit" });
    assert!(exits().await.is_err_and(|it| it.autopsy().is_some()));
    let refused = exits().await;
    assert!(matches!(refused, Err(CallError::Quarantined { .. })), "{refused:?}");
    let too_long = pit.call::<Value>("echo", args! { value: "x".repeat(2 << 20) }).await;
    assert!(matches!(too_long, Err(CallError::Arguments { .. })), "{too_long:?}");
    // The error may come before the supervisor knows of the death, so the pool still counts as ready.
    until("another worker serves", || pool.workers().iter().any(|worker| worker.calls == 0)).await;
    let late = soon("late", pit.call::<Value>("sleep", args! { seconds: 0.5 }).timeout(short)).await;
    assert!(matches!(late, Err(CallError::Timeout { .. })), "{late:?}");

    // One call that runs, one that waits too long, and one for which there is no room.
    let path = pit.file("started");
    let running = tokio::spawn(pit.call::<Value>("sleepy", args! { path: path.as_str() }).into_future());
    until("it runs", || !support::lines(&path).is_empty()).await;
    let waiting = tokio::spawn(echo().queue_timeout(short * 20).into_future());
    until("it waits", || pool.queued() == 1).await;
    assert!(matches!(echo().await, Err(CallError::Saturated { .. })));
    let waited = soon("the queue", waiting).await.expect("no panic");
    assert!(matches!(waited, Err(CallError::QueueTimeout { .. })), "{waited:?}");
    running.abort();
    assert!(running.await.expect_err("aborted").is_cancelled());

    // A stream that is read to its end, and one that is dropped.
    let mut read =
        soon("open", async { pit.stream::<u32>("count", args! { n: 3 }).open() }).await.expect("open");
    while let Some(item) = soon("an item", read.next()).await {
        item.expect("an item");
    }
    let mut left = pit.stream::<u32>("count", args! { n: 100_000 }).credit(2).open().expect("open");
    assert_eq!(soon("an item", left.next()).await.expect("some").expect("an item"), 0);
    drop(left);

    // In a map, one input dies, and the others do not.
    let marks = pit.file("marks");
    let inputs = (0..20).map(move |key| args! { path: marks.as_str(), key: key, fatal: 3 });
    let map = pit.map::<u32, _>("mark_or_die", inputs).chunk(1).in_order().expect("a map");
    let died = soon("the map", map.filter(|it| std::future::ready(it.is_err())).count()).await;
    assert_eq!(died, 1);
    // Another map is dropped: the inputs that were taken count.
    let mut map = pit.map::<u32, _>("echo", 0..100_000u32).chunk(5).in_order().expect("a map");
    assert_eq!(soon("a value", map.next()).await.expect("some").expect("a value"), 0);
    let before = pool.outcomes();
    drop(map);
    let dropped = pool.outcomes();
    let taken = dropped.calls() - before.calls();
    assert_eq!(dropped.cancelled - before.cancelled, taken);
    until("nothing is under way", || pool.in_flight() == 0).await;

    let stopped = pit.pools()[0].clone();
    pit.end().await;
    assert!(matches!(stopped.call::<u32>("echo", args! { value: 1 }).await, Err(CallError::Stopped)));
    let counted = pool.outcomes();
    println!("{counted:?}");
    let of_dropped_map = counted.ok - 1 - 1 - 1 - 19;
    assert_eq!(of_dropped_map % 5, 0, "{counted:?}");
    assert_eq!((counted.failed, counted.died, counted.timed_out), (1, 2, 1), "{counted:?}");
    assert_eq!((counted.queue_timed_out, counted.saturated, counted.refused), (1, 1, 2), "{counted:?}");
    // The sleeper, the stream, and what was left of the map.
    assert_eq!((counted.cancelled, counted.stopped), (2 + taken, 1), "{counted:?}");
    let plain = 7 + 3 + 2 + 1;
    assert_eq!(counted.calls(), plain + 20 + of_dropped_map + taken, "{counted:?}");
    assert_eq!(counted.retried, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engines_own_calls_are_not_counted() {
    let pit = Pit::start(worker("basic.py").workers(1)).await;
    let pool = pit.pools()[0].clone();
    let _ = pool.check_health().await;
    assert_eq!(pit.call::<i64>("add", args! { a: 1, b: 2 }).session("s").await.expect("a sum"), 3);
    assert!(pool.end_session("s"));
    assert_eq!(pool.outcomes().calls(), 1);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_errors_of_a_degraded_pool_say_so() {
    let few = Restarts::default()
        .failures(1)
        .first_pause(Duration::from_millis(1))
        .longest_pause(Duration::from_millis(300));
    let pool = worker("hostile.py").workers(2).restarts(few).quarantine(None).queue_limit(0);
    let pit = Pit::start(pool).await;
    // It is degraded after a few deaths, recovers, and so on. In between, both kinds of errors occur.
    let both = async {
        let (mut died, mut saturated) = (false, false);
        while !(died && saturated) {
            let error = pit.call::<Value>("end", args! { how: "os._exit" }).await.expect_err("a death");
            let degraded = match &error {
                CallError::WorkerDied { degraded, .. } => {
                    died |= degraded.is_some();
                    degraded
                }
                CallError::Saturated { degraded, .. } => {
                    saturated |= degraded.is_some();
                    // Until a worker serves, or the wanted error may occur.
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    degraded
                }
                other => panic!("{other}"),
            };
            let text = error.to_string();
            assert_eq!(text.contains("the pool is degraded"), degraded.is_some(), "{text}");
            assert!(degraded.as_ref().is_none_or(|why| why.contains("status 5")), "{degraded:?}");
        }
    };
    soon("both errors", both).await;
    pit.end().await;
}
