//! Circuits of a pool and of its commands open when calls lose workers or time out, and close when trial calls succeed.

use std::time::Duration;

use snakepit::policy::{Breaker, CircuitPhase};
use snakepit::pool::CircuitScope;
use snakepit::telemetry::{Event, Subscription};
use snakepit::{CallError, Pool, PoolOptions, Value, args};

use crate::support::{self, Pit, at_once, heard, soon, worker};

const OPEN_FOR: Duration = Duration::from_millis(300);

fn breaker() -> Breaker {
    Breaker::default().open_for(OPEN_FOR)
}

fn pool(breaker: Breaker) -> PoolOptions {
    worker("hostile.py").workers(1).restarts(at_once()).quarantine(None).breaker(breaker)
}

async fn end(pit: &Pit, how: &str) -> Result<Value, CallError> {
    soon("the call", pit.call("end", args! { how: how })).await
}

async fn echo(pit: &Pit) -> Result<u32, CallError> {
    soon("the call", pit.call("echo", args! { value: 1 })).await
}

fn command(name: &str) -> CircuitScope {
    CircuitScope::Command(name.into())
}

fn phase(pool: &Pool, scope: &CircuitScope) -> CircuitPhase {
    pool.circuits().get(scope).expect("a circuit").state
}

/// Returns what refuses a call, and for how long.
fn refusal(error: &CallError) -> (Option<&str>, Duration) {
    match error {
        CallError::CircuitOpen { command, retry_in, .. } => (command.as_deref(), *retry_in),
        other => panic!("not refused by a circuit: {other}"),
    }
}

async fn next_turn(events: &mut Subscription) -> (&'static str, CircuitScope) {
    let turn = heard(events, |event| match event {
        Event::CircuitOpened { command, .. } => Some(("opened", command)),
        Event::CircuitHalfOpen { command, .. } => Some(("half open", command)),
        Event::CircuitClosed { command, .. } => Some(("closed", command)),
        _ => None,
    });
    let (turn, command) = turn.await;
    (turn, command.map_or(CircuitScope::Pool, CircuitScope::Command))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_circuit_of_a_pool_opens_half_opens_and_closes() {
    let pit = Pit::start(pool(breaker().failures(2))).await;
    let pool = pit.pools()[0].clone();
    let mut events = pool.events();
    for how in ["kill", "abort"] {
        assert!(end(&pit, how).await.is_err_and(|error| error.autopsy().is_some()));
    }
    assert_eq!(next_turn(&mut events).await, ("opened", CircuitScope::Pool));
    assert_eq!(next_turn(&mut events).await, ("opened", command("end")));
    let error = echo(&pit).await.expect_err("refused");
    let (of, retry_in) = refusal(&error);
    assert!(of.is_none() && retry_in <= OPEN_FOR, "{error}");
    let table = pool.circuits().to_string();
    println!("{table}");
    assert!(table.lines().any(|line| line.starts_with("the pool") && line.contains("open")), "{table}");
    tokio::time::sleep(retry_in).await;
    assert_eq!(echo(&pit).await.expect("let in on trial"), 1);
    assert_eq!(next_turn(&mut events).await, ("half open", CircuitScope::Pool));
    assert_eq!(next_turn(&mut events).await, ("closed", CircuitScope::Pool));
    // The circuit of the command has its own trial, which fails.
    assert!(end(&pit, "kill").await.is_err_and(|error| error.autopsy().is_some()));
    assert_eq!(next_turn(&mut events).await, ("half open", command("end")));
    assert_eq!(next_turn(&mut events).await, ("opened", command("end")));
    let error = end(&pit, "kill").await.expect_err("refused");
    assert_eq!(refusal(&error).0, Some("end"), "{error}");
    assert!(error.to_string().contains("calls of end are refused"), "{error}");
    assert_eq!(echo(&pit).await.expect("the pool goes on"), 1);
    let outcomes = pool.outcomes();
    assert_eq!((outcomes.ok, outcomes.died, outcomes.refused), (2, 3, 2), "{outcomes:?}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_failing_command_does_not_block_other_commands() {
    let pit = Pit::start(pool(breaker().failures(2))).await;
    let pool = pit.pools()[0].clone();
    for _ in 0..20 {
        assert_eq!(echo(&pit).await.expect("served"), 1);
    }
    for _ in 0..2 {
        assert!(end(&pit, "kill").await.is_err_and(|error| error.autopsy().is_some()));
    }
    assert_eq!(phase(&pool, &command("end")), CircuitPhase::Open);
    assert_eq!(phase(&pool, &CircuitScope::Pool), CircuitPhase::Closed);
    assert_eq!(refusal(&end(&pit, "kill").await.expect_err("refused")).0, Some("end"));
    assert_eq!(echo(&pit).await.expect("served"), 1);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exceptions_count_as_failures_only_if_configured() {
    for (breaker, expected) in [
        (breaker().failures(2), CircuitPhase::Closed),
        (breaker().failures(2).count_errors(), CircuitPhase::Open),
    ] {
        let pit = Pit::start(pool(breaker)).await;
        for _ in 0..2 {
            assert!(end(&pit, "MemoryError").await.is_err_and(|error| error.remote().is_some()));
        }
        assert_eq!(phase(&pit.pools()[0], &command("end")), expected);
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_at_a_worker_counts_and_one_in_the_queue_does_not() {
    let short = Duration::from_millis(50);
    let pit = Pit::start(pool(breaker().failures(1).ratio(0.0))).await;
    let pool = pit.pools()[0].clone();
    let running = tokio::spawn(pit.call::<f64>("sleep", args! { seconds: 0.5 }).into_future());
    support::until("it runs", || pool.in_flight() == 1).await;
    let call = pit.call::<u32>("echo", args! { value: 1 }).queue_timeout(short);
    let error = soon("the call", call).await.expect_err("nobody is free");
    assert!(matches!(error, CallError::QueueTimeout { .. }), "{error}");
    assert_eq!(phase(&pool, &CircuitScope::Pool), CircuitPhase::Closed);
    soon("the call", running).await.expect("no panic").expect("slept");
    let call = pit.call::<f64>("sleep", args! { seconds: 0.5 }).timeout(short);
    let error = soon("the call", call).await.expect_err("late");
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    assert_eq!(phase(&pool, &CircuitScope::Pool), CircuitPhase::Open);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_trial_frees_its_place() {
    let pit = Pit::start(pool(breaker().failures(1).ratio(0.0).longest(OPEN_FOR)).workers(2)).await;
    let pool = pit.pools()[0].clone();
    assert!(end(&pit, "kill").await.is_err_and(|error| error.autopsy().is_some()));
    let (_, retry_in) = refusal(&echo(&pit).await.expect_err("refused"));
    tokio::time::sleep(retry_in).await;
    let trial = tokio::spawn(pit.call::<f64>("sleep", args! { seconds: 20.0 }).into_future());
    support::until("it runs", || pool.in_flight() == 1).await;
    assert_eq!(phase(&pool, &CircuitScope::Pool), CircuitPhase::HalfOpen);
    trial.abort();
    assert!(trial.await.expect_err("aborted").is_cancelled());
    assert_eq!(echo(&pit).await.expect("in its place"), 1);
    assert_eq!(phase(&pool, &CircuitScope::Pool), CircuitPhase::Closed);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_of_a_map_are_refused_each_by_itself() {
    use futures_util::StreamExt;
    let pit = Pit::start(pool(breaker().failures(1).ratio(0.0).open_for(Duration::from_hours(1)))).await;
    let pool = pit.pools()[0].clone();
    let path = pit.file("marks");
    let inputs = (0..10).map(move |key| args! { path: path.as_str(), key: key, fatal: 0 });
    let map = pit.map::<u32, _>("mark_or_die", inputs).chunk(1).in_order().expect("a map");
    let outcomes: Vec<_> = soon("the map", map.collect::<Vec<_>>()).await;
    assert!(matches!(outcomes[0], Err(CallError::WorkerDied { .. })), "{:?}", outcomes[0]);
    assert!(matches!(outcomes[9], Err(CallError::CircuitOpen { .. })), "{:?}", outcomes[9]);
    let counted = pool.outcomes();
    assert_eq!((counted.died, counted.calls()), (1, 10), "{counted:?}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_without_a_breaker_has_no_circuits() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    assert_eq!(echo(&pit).await.expect("served"), 1);
    assert!(pit.pools()[0].circuits().rows.is_empty());
    pit.end().await;
}
