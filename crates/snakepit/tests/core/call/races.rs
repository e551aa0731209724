//! Cancellations, deaths and stops race with answers for many rounds: each call has exactly one outcome, and nothing is left.
//!
//! About `crates/core/src/call/state.rs`, `crates/core/src/call/lease/mod.rs` and `crates/core/src/request/pending.rs`.

use std::time::Duration;

use snakepit::adapter::Mock;
use snakepit::pool::CancelGrace;
use snakepit::{CallError, Snakepit, Value, args};

use crate::support::{self, Pit, jitter, lines, rounds, soon, until, worker};

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_races_the_answer_in_a_thousand_rounds() {
    let grace = CancelGrace::default().ask(Duration::ZERO);
    for (file, concurrency) in [("hostile.py", 1), ("threads.py", 4)] {
        let pit = Pit::start(worker(file).workers(2).concurrency(concurrency).cancel_grace(grace)).await;
        let (mut answered, mut cancelled) = (0, 0);
        for round in 0..rounds(1000) {
            let call = pit.call::<Value>("sleep", args! { seconds: 0.001 }).into_future();
            match tokio::time::timeout(jitter(round, 4000), call).await {
                Ok(outcome) => {
                    outcome.unwrap_or_else(|error| panic!("round {round}: {error}"));
                    answered += 1;
                }
                Err(_) => cancelled += 1,
            }
        }
        println!("{file}: {answered} answered, {cancelled} cancelled");
        let pool = pit.pools()[0].clone();
        until("nothing is left", || pool.in_flight() + pool.queued() == 0).await;
        let ids: Vec<_> = pool.workers().iter().map(|worker| worker.id.clone()).collect();
        assert_eq!(ids.len(), 2);
        assert!(ids.iter().all(|id| id.ends_with("-1") || id.ends_with("-2")), "a worker was lost: {ids:?}");
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_stream_races_its_items() {
    use futures_util::StreamExt;
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    for round in 0..rounds(500) {
        let mut stream = pit.stream::<u32>("count", args! { n: 50 }).credit(8).open().expect("a stream");
        let read = async {
            while let Some(item) = stream.next().await {
                item.unwrap_or_else(|error| panic!("round {round}: {error}"));
            }
        };
        let _ = tokio::time::timeout(jitter(round, 3000), read).await;
    }
    let echoed: u32 = soon("the next", pit.call("echo", args! { value: 1 })).await.expect("a value");
    assert_eq!(echoed, 1);
    assert_eq!(pit.pools()[0].workers()[0].id, "hostile-1");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_races_answers_and_no_call_is_lost_or_run_twice() {
    const WORKERS: usize = 8;
    let (mut served, mut died) = (0, 0);
    for series in 0..rounds(200).div_ceil(WORKERS) {
        // So many that the others serve while the dead ones are replaced.
        let pit = Pit::start(worker("hostile.py").workers(WORKERS)).await;
        let path = pit.file("marks");
        let mut answered = 0;
        for round in 0..WORKERS - 1 {
            let calls: Vec<_> = (0..40)
                .map(|n| {
                    let args = args! { path: path.as_str(), key: format!("{round}-{n}") };
                    tokio::spawn(pit.call::<String>("mark", args).into_future())
                })
                .collect();
            tokio::time::sleep(jitter(series * WORKERS + round, 6000)).await;
            if let Some(pid) = pit.pools()[0].workers().first().and_then(|worker| worker.pid) {
                support::kill(pid.as_raw() as u32);
            }
            for (n, call) in calls.into_iter().enumerate() {
                match soon("a call", call).await.expect("no panic") {
                    Ok(key) => {
                        assert_eq!(key, format!("{round}-{n}"));
                        answered += 1;
                    }
                    Err(CallError::WorkerDied { .. }) => died += 1,
                    Err(error) => panic!("round {round}: {error}"),
                }
            }
        }
        let mut keys = lines(&path);
        keys.sort_unstable();
        let all = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), all, "a call was run twice");
        assert!(all >= answered, "{all} runs for {answered} answers");
        served += answered;
        pit.end().await;
    }
    println!("{served} served, {died} died with their worker");
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_come_and_go_leave_an_empty_pool() {
    let mock = Mock::new().command("nap", |args| async move {
        let micros = args.get("micros").and_then(Value::as_u64).unwrap_or(0);
        tokio::time::sleep(Duration::from_micros(micros)).await;
        Ok(Value::Nil)
    });
    let pool = snakepit::mock(mock).workers(3).concurrency(2).queue_limit(20);
    let pit = Snakepit::builder().pool(pool).start().await.expect("an engine");
    let callers = (0..16).map(|caller| {
        let pit = pit.clone();
        tokio::spawn(async move {
            for round in 0..rounds(1000) {
                let micros = jitter(round * 31 + caller, 500).as_micros() as u64;
                let call = pit.call::<Value>("nap", args! { micros: micros }).priority((round % 3) as i8);
                let call = call.session(format!("s-{}", round % 7));
                match tokio::time::timeout(jitter(round * 17 + caller, 1500), call.into_future()).await {
                    Err(_) | Ok(Ok(_) | Err(CallError::Saturated { .. })) => {}
                    Ok(Err(error)) => panic!("round {round}: {error}"),
                }
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        soon("a caller", caller).await.expect("no panic");
    }
    let pool = pit.pools()[0].clone();
    until("it is empty", || pool.in_flight() + pool.queued() == 0).await;
    soon("the stop", pit.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_races_calls_and_every_call_has_an_outcome() {
    for round in 0..rounds(40) {
        let pit = Pit::start(worker("hostile.py").workers(2)).await;
        let calls: Vec<_> = (0..200)
            .map(|n| tokio::spawn(pit.call::<u32>("echo", args! { value: n }).into_future()))
            .collect();
        tokio::time::sleep(jitter(round, 20_000)).await;
        soon("the stop", pit.stop()).await;
        for (n, call) in calls.into_iter().enumerate() {
            match soon("a call", call).await.expect("no panic") {
                Ok(value) => assert_eq!(value, n as u32),
                Err(CallError::Stopped) => {}
                Err(error) => panic!("round {round}: {error}"),
            }
        }
        pit.prove_nothing_is_left();
    }
}
