//! Calls that keep killing workers are recognized, rejected with the autopsies, and released later.

use std::time::Duration;

use futures_util::StreamExt;
use snakepit::pool::CancelGrace;
use snakepit::telemetry::Event;
use snakepit::{CallError, Pool, PoolOptions, Value, args};

use crate::support::{self, Pit, at_once, heard, runs_of, soon, until, worker};

/// The number of deaths by SIGKILL that it takes: twice as many as crashes, since they may have come from outside.
const KILLS: usize = 6;

fn pool(file: &str) -> PoolOptions {
    worker(file).restarts(at_once())
}

async fn dies(pit: &Pit, how: &str) -> CallError {
    soon("a death", pit.call::<Value>("end", args! { how: how })).await.expect_err("a death")
}

/// Returns, for each refused suspect, the number of deaths.
fn refused(pool: &Pool) -> Vec<usize> {
    let refused = pool.quarantine().into_iter().filter(|suspect| suspect.refused_until.is_some());
    refused.map(|suspect| suspect.autopsies.len()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_keeps_killing_workers_is_refused_and_others_go_on() {
    let pit = Pit::start(pool("hostile.py").workers(2)).await;
    let pool = pit.pools()[0].clone();
    let mut events = pool.events();
    for _ in 0..KILLS {
        let error = dies(&pit, "kill").await;
        assert!(error.autopsy().is_some(), "{error}");
        assert_eq!(pit.call::<u32>("echo", args! { value: 1 }).await.expect("served"), 1);
    }
    let deaths = heard(&mut events, |event| match event {
        Event::CallQuarantined { command, deaths, .. } => Some((command, deaths)),
        _ => None,
    })
    .await;
    assert_eq!((&*deaths.0, deaths.1), ("end", KILLS));
    let error = dies(&pit, "kill").await;
    let CallError::Quarantined { command, autopsies, fingerprint } = &error else { panic!("{error}") };
    assert_eq!((command.as_str(), autopsies.len()), ("end", KILLS));
    let text = error.to_string();
    assert_eq!(text.matches("SIGKILL").count(), KILLS, "{text}");
    assert!(text.contains(&fingerprint.to_string()), "{text}");
    // The same command with other arguments is another call.
    let error = pit.call::<Value>("end", args! { how: "MemoryError" }).await.expect_err("an exception");
    assert!(error.remote().is_some(), "{error}");
    assert_eq!(refused(&pool), [KILLS]);
    assert!(pool.release(*fingerprint) && !pool.release(*fingerprint));
    assert!(dies(&pit, "kill").await.autopsy().is_some(), "it may try again");
    assert_eq!((refused(&pool), pool.quarantine().len()), (vec![], 1));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crashes_and_exits_are_blamed_on_the_call() {
    let pit = Pit::start(pool("hostile.py").workers(1)).await;
    for how in ["os._exit", "abort"] {
        for _ in 0..3 {
            assert!(dies(&pit, how).await.autopsy().is_some());
        }
        let error = dies(&pit, how).await;
        assert!(
            matches!(&error, CallError::Quarantined { autopsies, .. } if autopsies.len() == 3),
            "{error}"
        );
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deaths_by_external_kills_count_half_towards_the_quarantine() {
    let pit = Pit::start(pool("hostile.py").workers(1)).await;
    let pool = pit.pools()[0].clone();
    let path = pit.file("started");
    let call = || tokio::spawn(pit.call::<Value>("sleepy", args! { path: path.as_str() }).into_future());
    for deaths in 1..KILLS {
        let pid = soon("a pid", pit.call::<u32>("pid", ())).await.expect("a pid");
        let hit = call();
        until("it is under way", || support::lines(&path).len() == deaths).await;
        support::kill(pid);
        let error = soon("the call", hit).await.expect("no panic").expect_err("killed");
        assert!(error.autopsy().is_some(), "{error}");
        assert_eq!((refused(&pool), pool.quarantine()[0].autopsies.len()), (vec![], deaths));
    }
    let again = call();
    until("it is let in once more", || support::lines(&path).len() == KILLS).await;
    again.abort();
    pit.end_now().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_clears_a_suspect() {
    let pit = Pit::start(pool("fatal.py").workers(1)).await;
    let pool = pit.pools()[0].clone();
    let path = pit.file("runs");
    let call = || pit.call::<u64>("dies", args! { path: path.as_str(), times: 2 });
    for deaths in 1..=2 {
        assert!(soon("a death", call()).await.is_err());
        assert_eq!(pool.quarantine()[0].autopsies.len(), deaths);
    }
    assert_eq!(soon("an answer", call()).await.expect("answered"), 3);
    assert!(pool.quarantine().is_empty());
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_suspected_even_if_its_caller_has_gone() {
    let pit = Pit::start(pool("hostile.py").workers(1)).await;
    let pool = pit.pools()[0].clone();
    let path = pit.file("started");
    let pid = pit.call::<u32>("pid", ()).await.expect("a pid");
    let call = tokio::spawn(pit.call::<Value>("sleepy", args! { path: path.as_str() }).into_future());
    until("it is under way", || !support::lines(&path).is_empty()).await;
    call.abort();
    support::kill(pid);
    assert!(call.await.expect_err("aborted").is_cancelled());
    until("it is suspected", || pool.quarantine().len() == 1).await;
    assert_eq!(&*pool.quarantine()[0].command, "sleepy");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_the_pool_ended_makes_no_call_a_suspect() {
    let short = Duration::from_millis(20);
    let grace = CancelGrace::each(short);
    let pit = Pit::start(pool("hostile.py").workers(1).cancel_grace(grace)).await;
    let pool = pit.pools()[0].clone();
    let path = pit.file("started");
    let pid = pit.call::<u32>("pid", ()).await.expect("a pid");
    let call = tokio::spawn(pit.call::<Value>("stubborn", args! { path: path.as_str() }).into_future());
    until("it is under way", || !support::lines(&path).is_empty()).await;
    call.abort();
    until("its worker is gone", || !support::runs(pid)).await;
    assert_ne!(soon("another worker", pit.call::<u32>("pid", ())).await.expect("served"), pid);
    assert!(pool.quarantine().is_empty(), "{:?}", pool.quarantine());
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_sent_ahead_that_never_ran_are_not_suspects() {
    let pit = Pit::start(pool("hostile.py").workers(1)).await;
    let pool = pit.pools()[0].clone();
    let path = pit.file("marks");
    support::learn_that_they_are_short(&pit, &path).await;
    let calls = (0..60).map(|key| {
        let args = args! { path: path.as_str(), key: key, fatal: 20 };
        pit.call::<u32>("mark_or_die", args).into_future()
    });
    soon("the calls", futures_util::future::join_all(calls)).await;
    let suspects = pool.quarantine();
    assert_eq!(suspects.len(), 1, "{suspects:?}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_map_refuses_only_its_fatal_input() {
    let pit = Pit::start(pool("fatal.py").workers(1)).await;
    let pool = pit.pools()[0].clone();
    let path = pit.file("runs");
    let map = || {
        let of = path.clone();
        let inputs =
            (0..30).map(move |value| args! { path: of.as_str(), value: value, fatal: 5, times: 100 });
        let map = pit.map::<u32, _>("dies_of", inputs).chunk(10).in_order().expect("a map");
        soon("the map", map.collect::<Vec<_>>())
    };
    for deaths in 1..=KILLS {
        let outcomes = map().await;
        assert!((0..).zip(&outcomes).all(|(input, it)| it.is_ok() == (input != 5)), "{outcomes:?}");
        assert!(matches!(outcomes[5], Err(CallError::WorkerDied { .. })), "{:?}", outcomes[5]);
        let suspects = pool.quarantine();
        assert_eq!((suspects.len(), suspects[0].autopsies.len()), (1, deaths), "{suspects:?}");
    }
    for (input, outcome) in (0u32..).zip(map().await) {
        match outcome {
            Ok(value) => assert_eq!(value, input),
            Err(error) => assert!(input == 5 && matches!(error, CallError::Quarantined { .. }), "{error}"),
        }
    }
    assert_eq!(runs_of(&path), KILLS as u64);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotent_call_is_not_made_again_once_it_is_refused() {
    let eager = snakepit::policy::Retry::default().attempts(10).first_pause(Duration::from_millis(1));
    let pit = Pit::start(pool("fatal.py").workers(1).retry(eager)).await;
    let path = pit.file("runs");
    let call = pit.call::<u64>("dies", args! { path: path.as_str(), times: 100 }).idempotent();
    let error = soon("the call", call).await.expect_err("deaths");
    let CallError::WorkerDied { attempts, no_retry, .. } = &error else { panic!("{error}") };
    assert_eq!(
        (*attempts, *no_retry),
        (KILLS as u32, Some(snakepit::policy::NoRetry::Quarantined)),
        "{error}"
    );
    assert_eq!(runs_of(&path), KILLS as u64);
    pit.end().await;
}

/// Begins a call that runs beside others and is always the same.
async fn beside(pit: &Pit, path: &str) -> tokio::task::JoinHandle<Result<String, CallError>> {
    let before = support::lines(path).len();
    let args = args! { path: path, key: "ping", seconds: 0.3 };
    let call = tokio::spawn(pit.call::<String>("mark_and_sleep", args).into_future());
    until("it is under way", || support::lines(path).len() > before).await;
    call
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_beside_a_killer_is_tried_alone_and_not_quarantined() {
    let pit = Pit::start(pool("threads.py").workers(1).concurrency(4)).await;
    let (pool, path) = (pit.pools()[0].clone(), pit.file("begun"));
    let mut answered = 0;
    for round in 0..8 {
        let ping = beside(&pit, &path).await;
        let killer = pit.call::<Value>("exits", args! { status: round + 1 });
        assert!(soon("the killer", killer).await.expect_err("a death").autopsy().is_some());
        match soon("the bystander", ping).await.expect("no panic") {
            Ok(_) => answered += 1,
            Err(error) => assert!(matches!(error, CallError::WorkerDied { .. }), "round {round}: {error}"),
        }
        assert!(refused(&pool).is_empty(), "round {round}");
    }
    assert_eq!(answered, 2, "after three deaths it was alone, and was cleared by its answer");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killer_among_other_calls_is_tried_alone_and_then_quarantined() {
    let pit = Pit::start(pool("threads.py").workers(1).concurrency(4)).await;
    let path = pit.file("begun");
    let mut deaths = 0;
    let error = loop {
        let args = args! { path: path.as_str(), key: format!("neighbour-{deaths}"), seconds: 0.3 };
        let neighbour = tokio::spawn(pit.call::<String>("mark_and_sleep", args).into_future());
        until("it is under way", || support::lines(&path).len() > deaths).await;
        let error =
            soon("the killer", pit.call::<Value>("exits", args! { status: 1 })).await.expect_err("an end");
        let lives = soon("the neighbour", neighbour).await.expect("no panic").is_ok();
        if !matches!(error, CallError::WorkerDied { .. }) {
            break error;
        }
        deaths += 1;
        assert_eq!(lives, deaths > 3, "death {deaths}: from the fourth on it is alone");
        assert!(deaths < 10, "it is never refused");
    };
    assert!(matches!(&error, CallError::Quarantined { .. }), "{error}");
    assert_eq!(deaths, 5, "three halves and two whole ones");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quarantine_can_be_turned_off() {
    let pit = Pit::start(pool("hostile.py").workers(1).quarantine(None)).await;
    for _ in 0..5 {
        let error = dies(&pit, "kill").await;
        assert!(error.autopsy().is_some(), "{error}");
    }
    assert!(pit.pools()[0].quarantine().is_empty());
    pit.end().await;
}
