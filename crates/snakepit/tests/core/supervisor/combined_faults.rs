//! Faults while other work is in progress: stopped workers, crash loops, a full queue, reloads and resizes under load, and
//! a stop in the middle of all that.
//!
//! About `crates/core/src/supervisor/main_loop.rs`, `crates/core/src/supervisor/reload.rs` and
//! `crates/core/src/supervisor/worker_end.rs`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use snakepit::adapter::PythonWorker;
use snakepit::call::NoWorkersReason;
use snakepit::policy::Restarts;
use snakepit::pool::{PoolHealth, ReloadError};
use snakepit::telemetry::Event;
use snakepit::{CallError, Pool, PoolOptions, Snakepit, Value, args};
use tokio::task::JoinHandle;

use crate::support::{
    self, Dice, Pit, config, jitter, kill, lines, pids, python, rounds, runs, runs_in, signal, soon, until,
    worker,
};

/// Restarts that replace dead workers without ever giving up.
fn tireless() -> Restarts {
    Restarts::default()
        .failures(1_000_000)
        .first_pause(Duration::from_millis(1))
        .longest_pause(Duration::from_millis(10))
}

/// A task that kills a random worker every few milliseconds.
struct Storm {
    over: Arc<AtomicBool>,
    task: JoinHandle<usize>,
}

impl Storm {
    fn start(pool: &Pool, every: Duration) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (pool, is_over) = (pool.clone(), Arc::clone(&over));
        let task = tokio::spawn(async move {
            let (mut dice, mut kills) = (Dice::new(1), 0);
            while !is_over.load(Ordering::Relaxed) {
                tokio::time::sleep(every).await;
                let serving = pids(&pool);
                if !serving.is_empty() {
                    kill(serving[dice.below(serving.len())]);
                    kills += 1;
                }
            }
            kills
        });
        Self { over, task }
    }

    async fn end(self) -> usize {
        self.over.store(true, Ordering::Relaxed);
        soon("the end of the storm", self.task).await.expect("no panic")
    }
}

/// Calls without a pause. Each call is answered, or dies with its worker.
fn load(pit: &Snakepit, over: &Arc<AtomicBool>) -> Vec<JoinHandle<(usize, usize)>> {
    let caller = |_| {
        let (pit, over) = (pit.clone(), Arc::clone(over));
        tokio::spawn(async move {
            let (mut answered, mut died) = (0, 0);
            while !over.load(Ordering::Relaxed) {
                match soon("a call", pit.call::<f64>("sleep", args! { seconds: 0.002 })).await {
                    Ok(_) => answered += 1,
                    Err(CallError::WorkerDied { .. }) => died += 1,
                    // While the pool should have no workers, calls are refused at once.
                    Err(CallError::NoWorkers { reason: NoWorkersReason::ScaledToZero, .. }) => {
                        tokio::task::yield_now().await;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            (answered, died)
        })
    };
    (0..6).map(caller).collect()
}

async fn end_load(over: &AtomicBool, callers: Vec<JoinHandle<(usize, usize)>>) -> (usize, usize) {
    over.store(true, Ordering::Relaxed);
    let mut sum = (0, 0);
    for caller in callers {
        let (answered, died) = soon("a caller", caller).await.expect("no panic");
        sum = (sum.0 + answered, sum.1 + died);
    }
    sum
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_stopped_in_a_call_delays_no_other_call_and_finishes_when_continued() {
    let pit = Pit::start(worker("hostile.py").workers(3)).await;
    let pool = pit.pools()[0].clone();
    for round in 0..3 {
        let path = pit.file(&format!("marks-{round}"));
        // Long enough that the worker is stopped before the call is done. That time passes while it is stopped, too.
        let args = args! { path: path.as_str(), key: "begun", seconds: 3.0 };
        let call = tokio::spawn(pit.call::<String>("mark_and_sleep", args).into_future());
        until("it has begun", || !lines(&path).is_empty()).await;
        let busy = pool.workers().into_iter().find(|worker| worker.in_flight > 0);
        let pid = busy.and_then(|worker| worker.pid).expect("a busy worker").as_raw() as u32;
        signal(pid, Signal::STOP);
        assert!(!call.is_finished(), "it was stopped in the call");
        for n in 0..200 {
            let echoed = soon("a neighbour", pit.call::<u32>("echo", args! { value: n })).await;
            assert_eq!(echoed.expect("served by the others"), n);
        }
        assert!(pids(&pool).contains(&pid), "it was not taken for dead");
        signal(pid, Signal::CONT);
        assert_eq!(soon("the call", call).await.expect("no panic").expect("served"), "begun");
        assert_eq!(pool.workers().len(), 3);
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_stopped_in_calls_do_not_delay_the_shutdown() {
    let pit = Pit::start(worker("hostile.py").workers(2)).await;
    let pool = pit.pools()[0].clone();
    let path = pit.file("started");
    let calls: Vec<_> = (0..2)
        .map(|_| tokio::spawn(pit.call::<Value>("sleepy", args! { path: path.as_str() }).into_future()))
        .collect();
    until("both are busy", || lines(&path).len() == 2).await;
    let stopped = pids(&pool);
    for pid in &stopped {
        signal(*pid, Signal::STOP);
    }
    let began = Instant::now();
    soon("the end", pit.end_now()).await;
    println!("end with workers that are stopped in calls: {:?}", began.elapsed());
    for call in calls {
        let error = soon("the call", call).await.expect("no panic").expect_err("it did not finish");
        assert!(matches!(error, CallError::WorkerDied { .. }), "{error}");
    }
    assert!(!stopped.into_iter().any(runs));
}

/// A pool of `fragile.py`, and the files that the worker reads and writes.
struct Fragile {
    home: tempfile::TempDir,
}

impl Fragile {
    fn new() -> Self {
        Self { home: tempfile::tempdir().expect("a directory") }
    }

    fn mood(&self) -> PathBuf {
        self.home.path().join("mood")
    }

    fn starts(&self) -> usize {
        lines(&self.home.path().join("starts").to_string_lossy()).len()
    }

    fn python(&self) -> PythonWorker {
        let starts = self.home.path().join("starts");
        python("fragile.py").env("FRAGILE_FILE", self.mood()).env("FRAGILE_STARTS", starts)
    }

    fn pool(&self) -> PoolOptions {
        let quick = Restarts::default().failures(4).longest_pause(Duration::from_millis(500));
        // The same call meets worker after worker, and must not be refused for that.
        snakepit::python(self.python())
            .quarantine(None)
            .restarts(quick)
            .queue_timeout(Duration::from_millis(300))
    }

    fn becomes(&self, mood: &str) {
        // Never half written, because workers may read it at any time.
        let draft = self.home.path().join("draft");
        std::fs::write(&draft, mood).expect("a file");
        std::fs::rename(draft, self.mood()).expect("a file");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_loop_at_import_after_ready_or_in_calls_is_paced_and_ends_when_fixed() {
    for mood in ["import", "ready", "call"] {
        let fragile = Fragile::new();
        let pit = Pit::start(fragile.pool().workers(2)).await;
        let pool = pit.pools()[0].clone();
        let mut events = pool.events();
        fragile.becomes(mood);
        pids(&pool).into_iter().for_each(kill);
        // A persistent caller that meets every worker that starts.
        let over = Arc::new(AtomicBool::new(false));
        let caller = tokio::spawn({
            let (pit, over) = (pit.clone(), Arc::clone(&over));
            async move {
                while !over.load(Ordering::Relaxed) {
                    let _ = soon("a call", pit.call::<u32>("echo", args! { value: 1 })).await;
                }
            }
        });
        let degraded = async {
            while !matches!(events.next().await.expect("the pool lives"), Event::PoolDegraded { .. }) {}
        };
        soon("the pool is degraded", degraded).await;
        // The question is how often it tries from now on.
        let (before, began) = (fragile.starts(), Instant::now());
        tokio::time::sleep(Duration::from_secs(3)).await;
        let (starts, time) = (fragile.starts() - before, began.elapsed());
        println!("{mood}: {before} starts until it was degraded, then {starts} in {time:?}");
        assert!(before <= 14, "{mood}: {before} starts before it was degraded");
        // One at a time, at the longest pause less a quarter. A worker that answers before it dies lets the others
        // start, too.
        let each = if mood == "ready" { 3 } else { 1 };
        let most = each * (time.as_millis() / 375) as usize + 3;
        assert!(starts <= most, "{mood}: {starts} starts in {time:?}");
        while let Ok(Some(event)) = tokio::time::timeout(Duration::ZERO, events.next()).await {
            let is_false = mood != "ready" && matches!(event, Event::PoolRecovered { .. });
            assert!(!is_false, "{mood}: nobody has served");
        }
        fragile.becomes("well");
        soon("ready", pool.await_ready(support::SOON)).await.expect("ready");
        over.store(true, Ordering::Relaxed);
        soon("the caller", caller).await.expect("no panic");
        assert_eq!(soon("a call", pit.call::<u32>("echo", args! { value: 7 })).await.expect("served"), 7);
        until("it is well", || support::trouble(&pool).is_none()).await;
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_of_code_that_dies_right_after_it_got_ready_keeps_workers_that_serve() {
    for (mood, said) in [("ready", "status 3"), ("call", "status 4")] {
        let fragile = Fragile::new();
        let home = tempfile::tempdir().expect("a directory");
        let well =
            snakepit::python(fragile.python().env("FRAGILE_FILE", home.path().join("none"))).name("fragile");
        let pit = Pit::start(well.workers(3).restarts(tireless())).await;
        let pool = pit.pools()[0].clone();
        fragile.becomes(mood);
        let over = Arc::new(AtomicBool::new(false));
        // So many callers that a new worker gets a call at once.
        let caller = |_| {
            let (pit, over) = (pit.clone(), Arc::clone(&over));
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let _ = soon("a call", pit.call::<u32>("echo", args! { value: 1 })).await;
                }
            })
        };
        let callers: Vec<_> = (0..9).map(caller).collect();
        let bad = snakepit::python(fragile.python())
            .name("fragile")
            .workers(3)
            .quarantine(None)
            .restarts(tireless());
        let error = soon("the reload", pool.reload_as(bad)).await.expect_err("they die");
        assert!(matches!(error, ReloadError::Aborted { .. }), "{error}");
        // On a slow machine it is dead before it serves.
        assert!(error.to_string().contains(said), "{error}");
        soon("ready", pool.await_ready(support::SOON)).await.expect("ready");
        over.store(true, Ordering::Relaxed);
        for caller in callers {
            soon("a caller", caller).await.expect("no panic");
        }
        for n in 0..50 {
            assert_eq!(soon("a call", pit.call::<u32>("echo", args! { value: n })).await.expect("served"), n);
        }
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reloads_and_resizes_during_a_storm_of_kills_complete() {
    let pit = Pit::start(worker("hostile.py").workers(4).restarts(tireless()).quarantine(None)).await;
    let pool = pit.pools()[0].clone();
    let over = Arc::new(AtomicBool::new(false));
    let callers = load(&pit, &over);
    let storm = Storm::start(&pool, Duration::from_millis(60));
    let (mut reloaded, mut aborted) = (0, 0);
    for round in 0..rounds(12) {
        match soon("a reload", pool.reload()).await {
            Ok(_) => reloaded += 1,
            Err(ReloadError::Aborted { .. }) => aborted += 1,
            Err(error) => panic!("{error}"),
        }
        pool.scale(0);
        if round % 2 == 0 {
            until("nobody serves", || pool.workers().is_empty()).await;
        }
        pool.scale(1 + round % 4);
        soon("some serve", async {
            while pool.workers().is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    let kills = storm.end().await;
    pool.scale(4);
    soon("ready", pool.await_ready(support::SOON)).await.expect("ready");
    soon("a reload in peace", pool.reload()).await.expect("reloaded");
    let (answered, died) = end_load(&over, callers).await;
    println!(
        "{reloaded} reloads and {aborted} aborted ones, {kills} kills: {answered} answered, {died} died"
    );
    assert!(answered > 0 && died <= kills);
    assert_eq!(pool.workers().len(), 4);
    until("the others are gone", || pit.run().expect("a run").workers().len() == 4).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_refuses_at_once_while_the_pool_restarts_and_is_served_afterwards() {
    let fragile = Fragile::new();
    let pool = fragile.pool().workers(2).queue_limit(8).queue_timeout(support::SOON);
    let pit = Pit::start(pool).await;
    let pool = pit.pools()[0].clone();
    for round in 0..3 {
        fragile.becomes("import");
        pids(&pool).into_iter().for_each(kill);
        until("nobody serves", || pool.workers().is_empty()).await;
        let queued: Vec<_> =
            (0..8).map(|n| tokio::spawn(pit.call::<u32>("echo", args! { value: n }).into_future())).collect();
        until("the queue is full", || pool.queued() == 8).await;
        let mut worst = Duration::ZERO;
        for _ in 0..100 {
            let began = Instant::now();
            let error = pit.call::<u32>("echo", args! { value: 1 }).await.expect_err("no room");
            worst = worst.max(began.elapsed());
            assert!(matches!(error, CallError::Saturated { depth: 8, .. }), "{error}");
        }
        println!("round {round}: refused within {worst:?}");
        assert!(worst < Duration::from_secs(1), "{worst:?}");
        fragile.becomes("well");
        for (n, call) in queued.into_iter().enumerate() {
            assert_eq!(soon("a call", call).await.expect("no panic").expect("served"), n as u32);
        }
        soon("ready", pool.await_ready(support::SOON)).await.expect("ready");
    }
    pit.end().await;
}

/// What is under way when the engine is stopped.
#[derive(Clone, Copy, Debug)]
enum Amid {
    Start,
    WarmUp,
    Recycling,
    Reload,
    Scale,
    Storm,
}

/// Returns the processes whose environment contains this word.
fn marked(word: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").expect("processes");
    let pids = all.filter_map(|entry| entry.expect("an entry").file_name().into_string().ok());
    let has = |pid: &String| {
        let environ = std::fs::read(Path::new("/proc").join(pid).join("environ")).unwrap_or_default();
        environ.windows(word.len()).any(|part| part == word.as_bytes())
    };
    pids.filter(|pid| pid.parse::<u32>().is_ok_and(runs)).filter(has).collect()
}

async fn stop_amid(amid: Amid, round: usize) -> Duration {
    let home = tempfile::tempdir().expect("a directory");
    let word = format!("amid-{}-{amid:?}-{round}", std::process::id());
    let pool = snakepit::python(python("hostile.py").env("TURMOIL", &word)).workers(3).restarts(tireless());
    let pool = match amid {
        Amid::WarmUp => pool.warm_up("sleep", args! { seconds: 0.3 }),
        _ => pool,
    };
    let builder = Snakepit::builder().pool(pool).custody(config(&home));
    let pit = builder.start_in_background().await.expect("an engine");
    let pool = pit.pools()[0].clone();
    if !matches!(amid, Amid::Start | Amid::WarmUp) {
        soon("ready", pit.await_ready(support::SOON)).await.expect("ready");
    }
    let calls: Vec<_> =
        (0..6).map(|n| tokio::spawn(pit.call::<u32>("echo", args! { value: n }).into_future())).collect();
    let mut storm = None;
    let mut reload = None;
    match amid {
        Amid::Start | Amid::WarmUp => {}
        Amid::Recycling => assert_eq!(soon("recycling", pool.recycle_all()).await, 3),
        Amid::Reload => {
            let pool = pool.clone();
            reload = Some(tokio::spawn(async move { pool.reload().await }));
        }
        Amid::Scale => pool.scale(if round.is_multiple_of(2) { 6 } else { 0 }),
        Amid::Storm => storm = Some(Storm::start(&pool, Duration::from_millis(10))),
    }
    tokio::time::sleep(jitter(round * 7 + amid as usize, 200_000)).await;
    let began = Instant::now();
    let grace = if round.is_multiple_of(2) { Duration::ZERO } else { Duration::from_secs(5) };
    soon("the stop", pit.stop_within(grace)).await;
    let took = began.elapsed();
    if let Some(storm) = storm {
        storm.end().await;
    }
    if let Some(reload) = reload {
        let outcome = soon("the reload", reload).await.expect("no panic");
        assert!(matches!(outcome, Ok(_) | Err(ReloadError::Stopped)), "{outcome:?}");
    }
    for call in calls {
        match soon("a call", call).await.expect("no panic") {
            Ok(_) | Err(CallError::Stopped | CallError::WorkerDied { .. }) => {}
            Err(CallError::NoWorkers { .. }) if matches!(amid, Amid::Scale) => {}
            Err(error) => panic!("{amid:?}: {error}"),
        }
    }
    assert_eq!(runs_in(home.path()), Vec::<String>::new(), "{amid:?}");
    assert_eq!(marked(&word), Vec::<String>::new(), "{amid:?}: processes are left");
    assert_eq!(soon("stats", pool.status()).await.health, PoolHealth::Stopped);
    took
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_stops_in_the_middle_of_everything_and_leaves_nothing() {
    for amid in [Amid::Start, Amid::WarmUp, Amid::Recycling, Amid::Reload, Amid::Scale, Amid::Storm] {
        let mut worst = Duration::ZERO;
        for round in 0..rounds(20).max(2) {
            worst = worst.max(stop_amid(amid, round).await);
        }
        println!("stop amid {amid:?}: at most {worst:?}");
    }
}
