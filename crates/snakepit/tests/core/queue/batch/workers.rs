//! Batches in every kind of worker, in maps and under load: no call is lost, and each call is answered once.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use snakepit::{CallError, PoolOptions, Value, args};

use crate::support::{Pit, jitter, kill, lines, python, rounds, soon, until, worker};

/// Makes six calls behind one that is under way. Returns the sizes that the function was given, and the answers.
async fn sizes_behind_one(pool: PoolOptions, command: &str) -> (Vec<usize>, Vec<i64>) {
    let pit = Pit::start(pool).await;
    let (path, gate) = (pit.file("path"), pit.file("gate"));
    let call = |x: i64| {
        let args = args! { x: x, path: path.as_str(), gate: gate.as_str() };
        tokio::spawn(pit.call::<i64>(command, args).into_future())
    };
    let first = call(0);
    until("the first is under way", || lines(&path) == ["0"]).await;
    let rest: Vec<_> = (1..7).map(call).collect();
    until("they wait", || pit.pools()[0].queued() == 6).await;
    std::fs::write(&gate, "").expect("the gate opens");
    let mut values = vec![soon("a call", first).await.expect("no panic").expect("an answer")];
    for call in rest {
        values.push(soon("a call", call).await.expect("no panic").expect("an answer"));
    }
    let sizes = lines(&path).iter().map(|line| line.split(',').count()).collect();
    pit.end().await;
    (sizes, values)
}

#[tokio::test(flavor = "multi_thread")]
async fn serial_threaded_and_async_workers_take_batches() {
    let expected = (vec![1, 6], (0..7).collect::<Vec<i64>>());
    assert_eq!(sizes_behind_one(worker("batches.py").workers(1), "hold").await, expected);
    assert_eq!(sizes_behind_one(worker("batches.py").workers(1).concurrency(4), "hold").await, expected);
    let asynchronous = || snakepit::python(python("batches.py").env("ASYNC", "1")).workers(1);
    assert_eq!(sizes_behind_one(asynchronous(), "hold_async").await, expected);
    assert_eq!(sizes_behind_one(asynchronous().concurrency(4), "hold_async").await, expected);
    assert_eq!(sizes_behind_one(asynchronous().concurrency(4), "hold").await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_map_gives_the_function_lists_of_at_most_a_batch() {
    let pit = Pit::start(worker("batches.py").workers(2)).await;
    let map = pit.map::<u32, _>("size", 0..100).in_order().expect("a map");
    let sizes: Vec<u32> = soon("the map", map.map(|size| size.expect("a size")).collect()).await;
    assert_eq!(sizes, [vec![8; 96], vec![4; 4]].concat());
    let map = pit.map::<u32, _>("size", 0..100).chunk(50).in_order().expect("a map");
    let sizes: Vec<u32> = soon("the map", map.map(|size| size.expect("a size")).collect()).await;
    assert_eq!(sizes, [vec![8; 48], vec![2; 2], vec![8; 48], vec![2; 2]].concat());
    let map = pit.map::<i64, _>("no_negatives", -20..20).in_order().expect("a map");
    let outcomes: Vec<_> = soon("the map", map.collect::<Vec<_>>()).await;
    assert!((-20..20).zip(&outcomes).all(|(x, outcome)| outcome.is_ok() == (x >= 0)));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_map_whose_worker_dies_fails_only_the_input_that_killed_it() {
    let pit = Pit::start(worker("batches.py").workers(2)).await;
    let map = pit.map::<i64, _>("mortal", 0..200).in_order().expect("a map");
    let outcomes: Vec<_> = soon("the map", map.collect::<Vec<_>>()).await;
    for (n, outcome) in (0..).zip(outcomes) {
        match outcome {
            Ok(value) => assert!(value == n * 2 && n % 97 != 96),
            Err(CallError::WorkerDied { .. }) => assert_eq!(n % 97, 96),
            Err(error) => panic!("{n}: {error}"),
        }
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_in_debug_mode_gathers_nothing() {
    let pit = Pit::start(worker("batches.py").workers(1).debug()).await;
    let sizes = join_all((0..4).map(|x| pit.call::<u32>("size", args! { x: x }).into_future()));
    for size in soon("sizes", sizes).await {
        assert_eq!(size.expect("a size"), 1);
    }
    pit.end().await;
}

/// The outcomes of the calls of a storm.
#[derive(Default, Debug)]
struct Tally {
    answered: usize,
    failed: HashMap<String, usize>,
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_is_lost_and_each_is_answered_once_while_workers_are_killed() {
    let pool = worker("batches.py").workers(4).call_timeout(Duration::from_mins(1));
    let pit = Pit::start(pool.queue_limit(100_000).queue_timeout(Duration::from_mins(1))).await;
    let calls = rounds(12_000);
    let callers = (0..40).map(|caller| {
        let pit = (*pit).clone();
        tokio::spawn(async move {
            let mut tally = Tally::default();
            for n in (caller..calls).step_by(40) {
                let call = pit.call::<i64>("no_negatives", args! { x: n });
                if n % 13 == 0 {
                    // Dropped, at an arbitrary time.
                    let _ = tokio::time::timeout(jitter(n, 1500), call.into_future()).await;
                    continue;
                }
                match soon("a call", call).await {
                    Ok(value) => {
                        assert_eq!(value, n as i64, "an answer went to another call");
                        tally.answered += 1;
                    }
                    Err(error) => *tally.failed.entry(error.to_string()).or_default() += 1,
                }
            }
            tally
        })
    });
    let callers: Vec<_> = callers.collect();
    let storm = tokio::spawn({
        let pool = pit.pools()[0].clone();
        async move {
            for round in 0_usize.. {
                tokio::time::sleep(Duration::from_millis(30) + jitter(round, 20_000)).await;
                let workers = pool.workers();
                if let Some(pid) = workers.get(round % workers.len().max(1)).and_then(|worker| worker.pid) {
                    kill(pid.as_raw() as u32);
                }
            }
        }
    });
    let mut answered = 0;
    let mut failed: HashMap<String, usize> = HashMap::new();
    for caller in callers {
        let tally = caller.await.expect("no panic");
        answered += tally.answered;
        tally.failed.into_iter().for_each(|(error, count)| *failed.entry(error).or_default() += count);
    }
    storm.abort();
    let lost: usize = failed.values().sum();
    assert_eq!(answered + lost, (0..calls).filter(|n| n % 13 != 0).count());
    assert!(lost * 50 <= answered, "of {answered} calls {lost} failed: {failed:#?}");
    let pool = pit.pools()[0].clone();
    until("nothing is left", || pool.in_flight() == 0 && pool.queued() == 0).await;
    soon("workers", pool.await_ready(Duration::from_secs(30))).await.expect("workers");
    let last: Value = soon("a call", pit.call("size", args! { x: 1 })).await.expect("an answer");
    assert_eq!(last, Value::from(1));
    pit.end().await;
}
