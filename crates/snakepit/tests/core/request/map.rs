//! One command over many inputs: each input has its own outcome, and inputs are taken only as they are needed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use snakepit::{CallError, Value, args};

use crate::support::{self, Pit, lines, rounds, soon, worker};

#[tokio::test(flavor = "multi_thread")]
async fn outcomes_come_in_order_or_as_they_come() {
    let pit = Pit::start(worker("hostile.py").workers(2)).await;
    let map = pit.map::<u32, _>("echo", 0..1000).in_order().expect("a map");
    let values: Vec<u32> = soon("the map", map.map(|value| value.expect("a value")).collect()).await;
    assert_eq!(values, (0..1000).collect::<Vec<_>>());
    let map = pit.map::<u32, _>("echo", 0..1000).as_they_come().expect("a map");
    let mut values: Vec<(usize, u32)> =
        soon("the map", map.map(|(at, value)| (at, value.expect("a value"))).collect()).await;
    values.sort_unstable();
    assert!(values.iter().enumerate().all(|(n, (at, value))| n == *at && n as u32 == *value));
    assert_eq!(values.len(), 1000);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_input_has_its_own_result_or_error() {
    let pit = Pit::start(worker("basic.py").workers(2)).await;
    let inputs: Vec<Value> = (0..100)
        .map(|n| if n % 10 == 3 { Value::from("text") } else { Value::from(n) })
        .map(|a| Value::from(vec![a, Value::from(1)]))
        .collect();
    let map = pit.map::<i64, _>("add", inputs).in_order().expect("a map");
    let outcomes: Vec<_> = soon("the map", map.collect::<Vec<_>>()).await;
    for (n, outcome) in outcomes.iter().enumerate() {
        match outcome {
            Ok(sum) => assert_eq!(*sum, n as i64 + 1),
            Err(error) => {
                assert_eq!(n % 10, 3, "{error}");
                let remote = error.remote().expect("a remote error");
                assert_eq!((remote.kind.as_str(), remote.parameter.as_deref()), ("bad_argument", Some("a")));
            }
        }
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_that_cannot_be_sent_fails_alone_and_is_named() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let deep = (0..200).fold(Value::from(1), |inner, _| vec![inner].into());
    let inputs: Vec<Value> =
        (0..10).map(|n| if n == 4 { deep.clone() } else { vec![Value::from(n)].into() }).collect();
    let map = pit.map::<Value, _>("echo", inputs).in_order().expect("a map");
    let outcomes: Vec<_> = soon("the map", map.collect::<Vec<_>>()).await;
    let Err(error @ CallError::Arguments { .. }) = &outcomes[4] else { panic!("{:?}", outcomes[4]) };
    assert!(support::chain(error).contains("[0][0][0]"), "{}", support::chain(error));
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 9);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_of_the_wrong_type_fails_only_its_input() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let inputs: Vec<Value> = (0..10).map(|n| if n == 5 { "five".into() } else { n.into() }).collect();
    let map = pit.map::<u32, _>("echo", inputs).chunk(10).in_order().expect("a map");
    let outcomes: Vec<_> = soon("the map", map.collect::<Vec<_>>()).await;
    assert!(matches!(outcomes[5], Err(CallError::Result { .. })), "{:?}", outcomes[5]);
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 9);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_infinite_iterator_is_taken_lazily() {
    let pit = Pit::start(worker("hostile.py").workers(2)).await;
    let taken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&taken);
    let inputs = (0u64..).inspect(move |_| _ = count.fetch_add(1, Ordering::Relaxed));
    let mut map = pit.map::<u64, _>("echo", inputs).chunk(10).in_order().expect("a map");
    for n in 0..100u64 {
        assert_eq!(soon("an outcome", map.next()).await.expect("more").expect("a value"), n);
    }
    let taken = taken.load(Ordering::Relaxed);
    assert!(taken <= 100 + 5 * 10, "{taken} inputs were taken for 100 outcomes");
    drop(map);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_fails_only_what_was_started_and_nothing_is_run_twice() {
    for round in 0..rounds(20) {
        let pit = Pit::start(worker("hostile.py").workers(2)).await;
        let path = pit.file("runs");
        let fatal = 13 + 7 * round;
        let inputs = (0..200).map({
            let path = path.clone();
            move |key| args! { path: path.as_str(), key: key, fatal: fatal }
        });
        let map = pit.map::<usize, _>("mark_or_die", inputs).chunk(25).in_order().expect("a map");
        let outcomes: Vec<_> = soon("the map", map.collect::<Vec<_>>()).await;
        assert_eq!(outcomes.len(), 200);
        check_runs(&path, &outcomes, fatal);
        only_fails(&outcomes, &[fatal]);
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_of_a_worker_with_several_chunks_runs_nothing_twice() {
    for round in 0..rounds(20) {
        let pit = Pit::start(worker("threads.py").workers(1).concurrency(4)).await;
        let path = pit.file("runs");
        let fatal = 3 + 5 * round;
        let inputs = (0..100).map({
            let path = path.clone();
            move |key| args! { path: path.as_str(), key: key, fatal: fatal }
        });
        let map = pit.map::<usize, _>("mark_or_die", inputs).chunk(10).in_order().expect("a map");
        let outcomes: Vec<_> = soon("the map", map.collect::<Vec<_>>()).await;
        check_runs(&path, &outcomes, fatal);
        // One input of each chunk was running.
        let failed: Vec<_> = (0..100).filter(|key| outcomes[*key].is_err()).map(|key| key / 10).collect();
        assert!(failed.windows(2).all(|two| two[0] != two[1]) && failed.len() <= 4, "{failed:?}");
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_fails_the_input_that_was_at_work_and_the_default_chunk_goes_on() {
    for file in ["hostile.py", "threads.py"] {
        let pit = Pit::start(worker(file).workers(1).restarts(support::at_once())).await;
        let path = pit.file("runs");
        let fatal = [150, 151, 400];
        let inputs = (0..500).map({
            let path = path.clone();
            move |key| args! { path: path.as_str(), key: key, fatal: if fatal.contains(&key) { key } else { 1000 } }
        });
        let map = pit.map::<usize, _>("mark_or_die", inputs).in_order().expect("a map");
        let outcomes: Vec<_> = soon("the map", map.collect::<Vec<_>>()).await;
        only_fails(&outcomes, &fatal);
        assert_eq!(lines(&path).len(), 500, "each was run once");
        pit.end().await;
    }
}

/// A worker of quick inputs has two chunks, of which it has begun one.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_among_quick_inputs_fails_one_and_each_is_counted_once() {
    let pit = Pit::start(worker("hostile.py").workers(2).restarts(support::at_once())).await;
    let path = pit.file("runs");
    let fatal = 9_000;
    let inputs = (0..20_000).map({
        let path = path.clone();
        move |key| args! { path: path.as_str(), key: key, fatal: fatal }
    });
    let map = pit.map::<usize, _>("mark_or_die", inputs).in_order().expect("a map");
    let outcomes: Vec<_> = soon("the map", map.collect::<Vec<_>>()).await;
    only_fails(&outcomes, &[fatal]);
    assert_eq!(lines(&path).len(), 20_000, "each was run once");
    let counted = pit.pools()[0].outcomes();
    assert_eq!((counted.ok, counted.died, counted.calls()), (19_999, 1, 20_000));
    pit.end().await;
}

/// Answers that do not fit into their place are sent before the next input begins.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_loses_no_large_answer_of_an_earlier_input() {
    for (file, concurrency) in [("hostile.py", 1), ("threads.py", 2)] {
        let pit = Pit::start(worker(file).workers(1).concurrency(concurrency)).await;
        for size in [10, 20_000, 100_000] {
            let inputs = (0..20).map(move |key| args! { size: size, fatal: key == 15 });
            let map = pit.map::<String, _>("large_or_die", inputs).chunk(20).in_order().expect("a map");
            let outcomes: Vec<_> = soon("the map", map.collect::<Vec<_>>()).await;
            assert!(outcomes.iter().flatten().all(|text| text.len() == size));
            only_fails(&outcomes, &[15]);
        }
        pit.end().await;
    }
}

fn only_fails<T>(outcomes: &[Result<T, CallError>], fatal: &[usize]) {
    let failed: Vec<_> = (0..outcomes.len()).filter(|key| outcomes[*key].is_err()).collect();
    assert_eq!(failed, fatal);
}

/// Checks that inputs with a result were run once and the others at most once, the fatal one exactly once.
fn check_runs(path: &str, outcomes: &[Result<usize, CallError>], fatal: usize) {
    let mut counts: HashMap<usize, usize> = HashMap::new();
    for line in lines(path) {
        *counts.entry(line.parse().expect("a key")).or_default() += 1;
    }
    for (key, outcome) in outcomes.iter().enumerate() {
        let count = counts.get(&key).copied().unwrap_or(0);
        match outcome {
            Ok(value) => assert_eq!((*value, count), (key, 1)),
            Err(error) => {
                assert!(
                    error.autopsy().is_some() && count <= 1,
                    "input {key} was run {count} times: {error}"
                );
            }
        }
    }
    assert!(outcomes[fatal].is_err());
    assert_eq!(counts.get(&fatal), Some(&1));
}

#[tokio::test(flavor = "multi_thread")]
async fn large_inputs_do_not_travel_in_one_frame() {
    let pit = Pit::start(worker("hostile.py").workers(1).max_frame(1 << 20)).await;
    let inputs: Vec<Value> = (0..20).map(|_| vec![Value::from("x".repeat(300_000))].into()).collect();
    let map = pit.map::<String, _>("echo", inputs).chunk(20).in_order().expect("a map");
    let outcomes: Vec<_> = soon("the map", map.collect::<Vec<_>>()).await;
    assert!(outcomes.iter().all(|outcome| outcome.as_ref().is_ok_and(|text| text.len() == 300_000)));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_too_long_for_one_frame_all_arrive() {
    for (file, concurrency) in [("hostile.py", 1), ("threads.py", 3)] {
        let pit = Pit::start(worker(file).workers(1).concurrency(concurrency).max_frame(1 << 20)).await;
        let lengths: Vec<usize> = (0..40).map(|n| 300_000 + n).collect();
        let map = pit.map::<String, _>("text", lengths.clone()).chunk(40).in_order().expect("a map");
        let outcomes: Vec<_> = soon("the map", map.collect::<Vec<_>>()).await;
        let texts: Vec<usize> = outcomes.into_iter().map(|text| text.expect("a text").len()).collect();
        assert_eq!(texts, lengths);
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_too_long_by_itself_fails_alone_and_is_named() {
    for (file, concurrency) in [("hostile.py", 1), ("threads.py", 3)] {
        let pit = Pit::start(worker(file).workers(1).concurrency(concurrency).max_frame(1 << 20)).await;
        let lengths = (0..20).map(|n| if n == 7 { 2 << 20 } else { 400_000 });
        let map = pit.map::<String, _>("text", lengths).chunk(20).as_they_come().expect("a map");
        let outcomes: Vec<_> = soon("the map", map.collect::<Vec<_>>()).await;
        assert_eq!(outcomes.len(), 20);
        for (at, outcome) in outcomes {
            match outcome {
                Ok(text) => assert!(at != 7 && text.len() == 400_000),
                Err(error) => {
                    assert_eq!(at, 7, "{error}");
                    let remote = error.remote().expect("a remote error");
                    let (kind, path) = (remote.kind.as_str(), remote.path.as_deref());
                    assert_eq!((kind, path), ("bad_value", Some("result")));
                    assert!(remote.message.contains("max_frame"), "{}", remote.message);
                }
            }
        }
        assert_eq!(pit.pools()[0].workers()[0].id.rsplit('-').next(), Some("1"), "the first one still");
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_map_that_is_dropped_ends() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let mut map = pit.map::<f64, _>("sleep", std::iter::repeat(0.01)).in_order().expect("a map");
    let _ = soon("an outcome", map.next()).await.expect("more").expect("slept");
    drop(map);
    let pool = pit.pools()[0].clone();
    support::until("nothing is left of it", || pool.queued() + pool.in_flight() == 0).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_map_ends_with_its_pool() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let mut map = pit.map::<f64, _>("sleep", vec![0.01; 1000]).chunk(1).in_order().expect("a map");
    let _ = soon("an outcome", map.next()).await.expect("more").expect("slept");
    pit.stop_within(Duration::from_secs(5)).await;
    let rest: Vec<_> = soon("the rest", map.collect::<Vec<_>>()).await;
    assert_eq!(rest.len(), 999);
    assert!(rest.last().is_some_and(|last| matches!(last, Err(CallError::Stopped))), "{:?}", rest.last());
    pit.prove_nothing_is_left();
}
