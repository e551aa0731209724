//! A reload changes call policies and session limits, and policies keep what they have learned where possible.

use std::time::Duration;

use snakepit::policy::{Breaker, CircuitPhase, Quarantine, Retry};
use snakepit::pool::CircuitScope;
use snakepit::telemetry::Event;
use snakepit::{CallError, Pool, PoolOptions, Value, args};

use crate::support::{Pit, at_once, heard, soon, until, worker};

const LONG: Duration = Duration::from_hours(1);

fn pool(file: &str) -> PoolOptions {
    worker(file).name("p").workers(1).restarts(at_once())
}

async fn reload(pool: &Pool, settings: PoolOptions) {
    soon("the reload", pool.reload_as(settings)).await.expect("reloaded");
}

async fn dies(pit: &Pit) -> CallError {
    soon("a death", pit.call::<Value>("end", args! { how: "os._exit" })).await.expect_err("a death")
}

/// Returns how many deaths of each suspect are known.
fn deaths(pool: &Pool) -> Vec<usize> {
    pool.quarantine().iter().map(|suspect| suspect.autopsies.len()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_changes_the_quarantine_and_judges_suspects_again() {
    let base = || pool("hostile.py");
    let pit = Pit::start(base()).await;
    let pool = pit.pools()[0].clone();
    for _ in 0..2 {
        assert!(dies(&pit).await.autopsy().is_some());
    }
    let mut events = pool.events();
    reload(&pool, base().quarantine(Quarantine::default().deaths(2))).await;
    let known = heard(&mut events, |event| match event {
        Event::CallQuarantined { deaths, .. } => Some(deaths),
        _ => None,
    });
    assert_eq!(known.await, 2);
    assert!(matches!(dies(&pit).await, CallError::Quarantined { .. }));
    reload(&pool, base().quarantine(Quarantine::default().deaths(4))).await;
    assert_eq!(deaths(&pool), [2], "they are remembered");
    assert!(dies(&pit).await.autopsy().is_some(), "and no longer enough");
    reload(&pool, base().quarantine(None)).await;
    assert!(pool.quarantine().is_empty());
    for _ in 0..5 {
        assert!(dies(&pit).await.autopsy().is_some(), "nobody is refused");
    }
    reload(&pool, base().quarantine(Quarantine::default().deaths(1))).await;
    assert!(dies(&pit).await.autopsy().is_some(), "what happened without it was not written down");
    assert!(matches!(dies(&pit).await, CallError::Quarantined { .. }));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_changes_the_breaker_and_an_open_circuit_stays_open() {
    let base = || pool("hostile.py").quarantine(None);
    let strict = Breaker::default().failures(1).ratio(0.1).open_for(LONG).longest(LONG);
    let pit = Pit::start(base()).await;
    let pool = pit.pools()[0].clone();
    let phase = |scope| pool.circuits().get(&scope).map(|circuit| circuit.state);
    assert!(dies(&pit).await.autopsy().is_some() && dies(&pit).await.autopsy().is_some());
    assert!(pool.circuits().rows.is_empty());
    reload(&pool, base().breaker(strict)).await;
    assert_eq!(phase(CircuitScope::Pool), Some(CircuitPhase::Closed), "what it did not see does not count");
    assert!(dies(&pit).await.autopsy().is_some());
    until("it is open", || phase(CircuitScope::Pool) == Some(CircuitPhase::Open)).await;
    reload(&pool, base().breaker(strict.failures(7))).await;
    assert!(
        matches!(dies(&pit).await, CallError::CircuitOpen { .. }),
        "new workers are no reason to close it"
    );
    let short = Duration::from_millis(1);
    reload(&pool, base().breaker(strict.longest(short))).await;
    let closes = async {
        // Only a call can reveal that the time is over.
        while pit.call::<u32>("echo", args! { value: 1 }).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    soon("the new time has passed", closes).await;
    assert_eq!(phase(CircuitScope::Pool), Some(CircuitPhase::Closed));
    reload(&pool, base().breaker(strict)).await;
    assert!(dies(&pit).await.autopsy().is_some());
    until("it is open", || phase(CircuitScope::Pool) == Some(CircuitPhase::Open)).await;
    reload(&pool, base().breaker(None)).await;
    assert!(pool.circuits().rows.is_empty());
    assert!(dies(&pit).await.autopsy().is_some(), "nobody is refused");
    reload(&pool, base().breaker(strict)).await;
    assert!(pool.circuits().rows.iter().all(|row| row.circuit.trips == 0), "{}", pool.circuits());
    assert!(dies(&pit).await.autopsy().is_some(), "it begins anew");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_changes_the_retry_policy() {
    let base = || pool("fatal.py").quarantine(None);
    let pit = Pit::start(base().retry(Retry::default().attempts(1))).await;
    let pool = pit.pools()[0].clone();
    let call = |name: &str| {
        let path = pit.file(name);
        soon("the call", pit.call::<u64>("dies", args! { path: path, times: 2 }).idempotent())
    };
    let error = call("first").await.expect_err("one attempt");
    assert!(matches!(error, CallError::WorkerDied { attempts: 1, .. }), "{error}");
    reload(&pool, base().retry(Retry::default().attempts(3).first_pause(Duration::from_millis(1)))).await;
    assert_eq!(call("second").await.expect("the third attempt"), 3);
    reload(&pool, base().retry(Retry::default().ratio(0.0).reserve(0))).await;
    let error = call("third").await.expect_err("no budget");
    assert!(
        matches!(error, CallError::WorkerDied { no_retry: Some(snakepit::policy::NoRetry::Budget), .. }),
        "{error}"
    );
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_changes_the_limits_of_sessions_and_sessions_outlive_it() {
    let base = || pool("sessions.py");
    let pit = Pit::start(base().max_sessions(1)).await;
    let pool = pit.pools()[0].clone();
    let put = |id: &str| {
        let call = pit.call::<Value>("put", args! { key: "k", value: 7 }).session(id);
        soon("the call", call)
    };
    put("a").await.expect("a session");
    let error = put("b").await.expect_err("one too many");
    assert!(matches!(error, CallError::TooManySessions { limit: 1, .. }), "{error}");
    reload(&pool, base().max_sessions(2)).await;
    put("b").await.expect("another session");
    assert!(matches!(put("c").await, Err(CallError::TooManySessions { limit: 2, .. })));
    let kept = pit.call::<u32>("get", args! { key: "k" }).session("a");
    assert_eq!(soon("the call", kept).await.expect("its store is still there"), 7);
    reload(&pool, base().max_sessions(1)).await;
    assert_eq!(pool.sessions().len(), 2, "nobody is turned out");
    reload(&pool, base().max_sessions(1).session_ttl(Duration::from_millis(50))).await;
    until("their time is over", || pool.sessions().is_empty()).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_that_fails_makes_no_policy_forget_anything() {
    let pit = Pit::start(pool("hostile.py").breaker(Breaker::default()).max_sessions(3)).await;
    let pool = pit.pools()[0].clone();
    assert!(dies(&pit).await.autopsy().is_some());
    let failures = || pool.circuits().get(&CircuitScope::Pool).map(|circuit| circuit.failures);
    until("it is counted", || failures() == Some(1)).await;
    let broken = self::pool("hostile.py")
        .quarantine(None)
        .breaker(None)
        .session_ttl(Duration::ZERO)
        .worker_start_timeout(Duration::ZERO);
    let call = pit.call::<u32>("echo", args! { value: 1 }).session("kept");
    soon("the call", call).await.expect("an answer");
    soon("the reload", pool.reload_as(broken)).await.expect_err("no time to start");
    assert_eq!((deaths(&pool), failures(), pool.sessions().len()), (vec![1], Some(1), 1));
    pit.end().await;
}
