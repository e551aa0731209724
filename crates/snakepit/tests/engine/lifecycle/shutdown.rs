//! Stops of engines in one process: from any thread, several at once and repeated, and by dropping the last handle.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use snakepit::telemetry::{self, Event};
use snakepit::{CallError, ShutdownReport, Snakepit, Value, args};

use crate::support::{self, Pit, lines, rounds, runs, runs_in, soon, until, worker};

/// Returns the events of one run whose names begin with this prefix.
fn told_of(events: &mut telemetry::Subscription, run: &str, start: &str) -> Vec<Event> {
    let mut told = Vec::new();
    while let Some(event) = events.next_within(Duration::from_millis(200)) {
        let text = serde_json::to_string(&event).expect("an event");
        if event.name().starts_with(start) && text.contains(run) {
            told.push(event);
        }
    }
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_concurrent_stops_are_one_shutdown_and_later_ones_do_nothing() {
    for _ in 0..rounds(5) {
        let mut events = telemetry::subscribe();
        let pit = Pit::start(worker("hostile.py").workers(2)).await;
        let run = pit.run().expect("a run").id().to_string();
        let call = tokio::spawn(pit.call::<f64>("sleep", args! { seconds: 0.3 }).into_future());
        until("it is under way", || pit.pools()[0].in_flight() == 1).await;
        let stops: Vec<_> = (0..50)
            .map(|_| {
                let pit = (*pit).clone();
                tokio::spawn(async move { pit.stop().await })
            })
            .collect();
        for stop in stops {
            let report = soon("a stop", stop).await.expect("no panic");
            assert!(report.is_clean() && report.completed == 1 && report.given_back == 0, "{report:?}");
            assert!(runs_in(pit.home()).is_empty(), "a stop returned before the end");
        }
        assert!(soon("the call", call).await.expect("no panic").is_ok(), "it could finish");
        let began = Instant::now();
        for _ in 0..10 {
            soon("a late stop", pit.stop()).await;
        }
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        let told = told_of(&mut events, &run, "snakepit.");
        let count = |name: &str| told.iter().filter(|event| event.name() == name).count();
        // One for each worker, and one for the run.
        assert!(count("snakepit.cleanup.start") <= 3, "{told:?}");
        for step in ["start", "stop", "cleanup", "exit"] {
            assert_eq!(count(&format!("snakepit.script.shutdown.{step}")), 1, "{step}");
        }
        pit.prove_nothing_is_left();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_with_a_shorter_timeout_shortens_a_waiting_stop() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let call = tokio::spawn(pit.call::<Value>("sleep", args! { seconds: 600.0 }).into_future());
    until("it is under way", || pit.pools()[0].in_flight() == 1).await;
    let patient = tokio::spawn({
        let pit = (*pit).clone();
        async move { pit.stop_within(Duration::MAX).await }
    });
    soon("its beginning", pit.stopping()).await;
    soon("the other stop", pit.stop_within(Duration::from_millis(10))).await;
    soon("the patient one", patient).await.expect("no panic");
    assert!(soon("the call", call).await.expect("no panic").is_err());
    pit.prove_nothing_is_left();
}

/// On one thread, where everything that blocks would block the stop itself.
#[tokio::test(flavor = "current_thread")]
async fn a_stop_on_a_runtime_of_one_thread_lets_calls_finish() {
    let pit = Pit::start(worker("hostile.py").workers(2)).await;
    let call = tokio::spawn(pit.call::<f64>("sleep", args! { seconds: 0.3 }).into_future());
    until("it is under way", || pit.pools()[0].in_flight() == 1).await;
    let (one, other) = tokio::join!(tokio::spawn(stopped(&pit)), tokio::spawn(stopped(&pit)));
    assert!(one.is_ok() && other.is_ok());
    assert!(soon("the call", call).await.expect("no panic").is_ok());
    pit.prove_nothing_is_left();
}

fn stopped(pit: &Snakepit) -> impl Future<Output = ShutdownReport> + Send + use<> {
    let pit = pit.clone();
    async move { pit.stop().await }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_requested_by_a_tool_lets_its_call_finish() {
    for stops in 1..=2 {
        let later: Arc<OnceLock<Snakepit>> = Arc::default();
        let inner = Arc::clone(&later);
        let builder =
            Snakepit::builder().pool(worker("tools.py").workers(1)).tool("stop", move |(): (), _| {
                let pit = inner.get().expect("a pit").clone();
                async move {
                    for _ in 0..stops {
                        pit.stop().await;
                    }
                    Ok::<_, Infallible>(7)
                }
            });
        let pit = Pit::build(builder).await;
        assert!(later.set((*pit).clone()).is_ok());
        let call = pit.call::<u32>("ask", args! { tool: "stop", args: args! {} });
        assert_eq!(soon("the call", call).await.expect("it finishes"), 7);
        soon("the stop", pit.stop()).await;
        pit.prove_nothing_is_left();
    }
}

/// Different places that hold the last handle and drop it.
#[test]
fn the_last_handle_may_be_dropped_anywhere() {
    for current in [true, false] {
        for place in ["inside", "outside", "on another thread", "after the runtime", "with the runtime"] {
            drop_at(place, current);
        }
    }
}

fn runtime(current: bool) -> tokio::runtime::Runtime {
    let mut builder = if current {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    builder.enable_all().build().expect("a runtime")
}

fn drop_at(place: &str, current: bool) {
    let runtime = runtime(current);
    let home = tempfile::tempdir().expect("a directory");
    let (pit, pid) = runtime.block_on(async {
        let builder =
            Snakepit::builder().pool(worker("hostile.py").workers(1)).custody(support::config(&home));
        let pit = builder.start().await.expect("an engine");
        let pid: u32 = pit.call("pid", args! {}).await.expect("a pid");
        (pit, pid)
    });
    let kept = match place {
        "inside" => {
            runtime.block_on(async { drop(pit) });
            Some(runtime)
        }
        "outside" => {
            drop(pit);
            Some(runtime)
        }
        "on another thread" => {
            std::thread::spawn(move || drop(pit)).join().expect("no panic");
            Some(runtime)
        }
        "after the runtime" => {
            drop(runtime);
            drop(pit);
            None
        }
        _ => {
            runtime.spawn(async move {
                let _pit = pit;
                std::future::pending::<()>().await;
            });
            drop(runtime);
            None
        }
    };
    let deadline = Instant::now() + support::SOON;
    while runs(pid) || !runs_in(home.path()).is_empty() {
        assert!(Instant::now() < deadline, "dropped {place}: left {:?}", runs_in(home.path()));
        std::thread::yield_now();
    }
    drop(kept);
}

/// The call is awaited in another runtime than the one that is dropped.
#[test]
fn a_runtime_that_is_dropped_in_the_middle_of_a_call_answers_it() {
    for current in [true, false] {
        let (served, other) = (runtime(current), runtime(true));
        let home = tempfile::tempdir().expect("a directory");
        let builder =
            Snakepit::builder().pool(worker("hostile.py").workers(1)).custody(support::config(&home));
        let pit = served.block_on(builder.start()).expect("an engine");
        let path = home.path().join("mark").to_string_lossy().into_owned();
        let args = args! { path: path.as_str(), key: "it", seconds: 600.0 };
        let call = pit.call::<Value>("mark_and_sleep", args).into_future();
        let waiting = std::thread::spawn(move || other.block_on(async { soon("the answer", call).await }));
        served.block_on(until("it is under way", || !lines(&path).is_empty()));
        drop(served);
        let answer = waiting.join().expect("no panic");
        assert!(answer.is_err(), "{answer:?}");
        let error = runtime(true).block_on(pit.call::<Value>("pid", args! {}).into_future());
        assert!(matches!(error, Err(CallError::Stopped)), "{error:?}");
        runtime(true).block_on(async { soon("a stop afterwards", pit.stop()).await });
        assert!(runs_in(home.path()).is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_while_workers_start_and_a_start_while_others_stop_leave_nothing() {
    for round in 0..rounds(10) {
        let home = tempfile::tempdir().expect("a directory");
        let engine =
            || Snakepit::builder().pool(worker("hostile.py").workers(2)).custody(support::config(&home));
        let first = engine().start_in_background().await.expect("an engine");
        tokio::time::sleep(support::jitter(round, 60_000)).await;
        let (second, _) = tokio::join!(engine().start(), first.stop());
        let second = second.expect("an engine");
        let value: u32 = soon("a call", second.call("echo", args! { value: 7 })).await.expect("served");
        assert_eq!(value, 7);
        soon("the stop", second.stop_within(Duration::ZERO)).await;
        assert!(runs_in(home.path()).is_empty());
    }
}
