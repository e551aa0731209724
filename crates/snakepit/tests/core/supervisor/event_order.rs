//! Decisions that must hold in any order of events: crossing requests, settings that change back, adapters that panic.
//!
//! About `crates/core/src/supervisor/main_loop.rs`, `crates/core/src/supervisor/worker_task.rs` and
//! `crates/core/src/supervisor/worker_end.rs`.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use snakepit::adapter::{
    Adapter, Handle, Introduction, Mock, ProtocolFault, PythonWorker, Reason, Spawner, StartError,
};
use snakepit::call::Call;
use snakepit::policy::{Recycling, Restarts, Taint};
use snakepit::pool::{ReloadError, WorkerDuty};
use snakepit::telemetry::Event;
use snakepit::value::Encoded;
use snakepit::{PoolOptions, Snakepit, args, custody};
use tokio::sync::Notify;

use crate::support::{self, Pit, jitter, kill, pids, python, rounds, soon, until, worker};

/// Holds up the next thread that passes.
#[derive(Default)]
struct Gate {
    catches: AtomicBool,
    caught: AtomicBool,
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        if self.catches.swap(false, Ordering::SeqCst) {
            self.caught.store(true, Ordering::SeqCst);
            let open = self.open.lock().expect("a gate");
            drop(self.opened.wait_while(open, |open| !*open).expect("a gate"));
        }
    }

    fn shut(&self) {
        self.catches.store(true, Ordering::SeqCst);
    }

    async fn catch(&self) {
        until("somebody is caught", || self.caught.load(Ordering::SeqCst)).await;
    }

    fn open(&self) {
        *self.open.lock().expect("a gate") = true;
        self.opened.notify_all();
    }
}

/// Workers without processes, which follow the orders of the test.
#[derive(Default)]
struct Whims {
    /// Holds up starts.
    start: Gate,
    /// Holds up the threads that look at a worker's process, except the task that manages the worker.
    look: Gate,
    tender: Mutex<Option<tokio::task::Id>>,
    ended: AtomicUsize,
    breaks_in_calls: AtomicBool,
    panics_at_start: AtomicBool,
    panics_at_end: AtomicBool,
    starts: AtomicUsize,
    /// The duration of a start, in microseconds.
    start_micros: AtomicUsize,
}

struct Whim {
    whims: Arc<Whims>,
    /// The call that broke it.
    lost: Mutex<Option<Call>>,
    breaks: Notify,
    introduction: Introduction,
}

struct WhimAdapter(Arc<Whims>);

impl Adapter for WhimAdapter {
    fn start_worker(&self, _spawner: Spawner) -> BoxFuture<'_, Result<Arc<dyn Handle>, StartError>> {
        let whims = Arc::clone(&self.0);
        Box::pin(async move {
            whims.starts.fetch_add(1, Ordering::Relaxed);
            assert!(!whims.panics_at_start.load(Ordering::Relaxed), "a whim at the start");
            let micros = whims.start_micros.load(Ordering::Relaxed) as u64;
            tokio::time::sleep(Duration::from_micros(micros)).await;
            tokio::task::block_in_place(|| whims.start.pass());
            let introduction = Introduction::new(vec!["any".into()]);
            Ok(Arc::new(Whim { whims, introduction, lost: Mutex::default(), breaks: Notify::new() }) as _)
        })
    }

    fn starts_processes(&self) -> bool {
        false
    }
}

impl Handle for Whim {
    fn process(&self) -> Option<&custody::WorkerProcess> {
        let tender = *self.whims.tender.lock().expect("a task");
        if tender.is_some() && tender != tokio::task::try_id() {
            // The other tasks of a thread that is held up move to another thread.
            tokio::task::block_in_place(|| self.whims.look.pass());
        }
        None
    }

    fn introduction(&self) -> &Introduction {
        &self.introduction
    }

    fn execute(self: Arc<Self>, call: Call) {
        if self.whims.breaks_in_calls.load(Ordering::Relaxed) {
            *self.lost.lock().expect("a call") = Some(call);
            return self.breaks.notify_one();
        }
        call.serve(async { Ok(Encoded::encode(&1).expect("a number")) });
    }

    fn broken(&self) -> BoxFuture<'_, ProtocolFault> {
        *self.whims.tender.lock().expect("a task") = tokio::task::try_id();
        Box::pin(async {
            self.breaks.notified().await;
            "a whim in a call".into()
        })
    }

    fn terminate(&self, _reason: Reason) -> BoxFuture<'_, ()> {
        self.whims.ended.fetch_add(1, Ordering::SeqCst);
        assert!(!self.whims.panics_at_end.load(Ordering::Relaxed), "a whim at the end");
        let lost = self.lost.lock().expect("a call").take();
        Box::pin(async move {
            if lost.is_some() {
                // It takes its time after that.
                drop(lost);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
    }
}

fn whimsical(whims: &Arc<Whims>) -> PoolOptions {
    // The same call is lost again and again, and must not be refused for that.
    PoolOptions::new("whims", WhimAdapter(Arc::clone(whims))).quarantine(None)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_an_adapter_at_the_start_counts_as_a_failed_worker() {
    let whims = Arc::new(Whims::default());
    let restarts = Restarts::default().failures(4).longest_pause(Duration::from_millis(200));
    let pit = Snakepit::builder().pool(whimsical(&whims).workers(2).restarts(restarts));
    let pit = pit.start().await.expect("an engine");
    let pool = pit.pools()[0].clone();
    let mut events = pool.events();
    whims.panics_at_start.store(true, Ordering::Relaxed);
    let before = whims.starts.load(Ordering::Relaxed);
    pool.scale(3);
    let degraded = async {
        loop {
            if let Event::PoolDegraded { reason, .. } = events.next().await.expect("the pool lives") {
                return reason;
            }
        }
    };
    let reason = soon("the pool is degraded", degraded).await;
    assert!(reason.contains("a whim at the start"), "{reason}");
    let starts = whims.starts.load(Ordering::Relaxed) - before;
    assert!(starts < 20, "{starts} starts");
    whims.panics_at_start.store(false, Ordering::Relaxed);
    soon("ready", pool.await_ready(support::SOON)).await.expect("ready");
    assert_eq!(pool.workers().len(), 3);
    soon("the stop", pit.stop()).await;
    whims.panics_at_start.store(true, Ordering::Relaxed);
    let error = Snakepit::builder().pool(whimsical(&whims).workers(2)).start();
    let error = soon("the start", error).await.expect_err("it panics");
    assert!(support::chain(&error).contains("a whim at the start"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_an_adapter_at_the_end_costs_no_capacity() {
    let whims = Arc::new(Whims::default());
    let pit = Snakepit::builder().pool(whimsical(&whims).workers(2)).start().await.expect("an engine");
    let pool = pit.pools()[0].clone();
    whims.panics_at_end.store(true, Ordering::Relaxed);
    assert_eq!(soon("recycling", pool.recycle_all()).await, 2);
    let at_rest = async {
        loop {
            let stats = pool.status().await;
            let serve = stats.workers.iter().filter(|worker| worker.duty == WorkerDuty::Serving).count();
            if (serve, stats.starting, stats.workers.len(), pool.workers().len()) == (2, 0, 2, 2) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    soon("two others serve", at_rest).await;
    whims.panics_at_end.store(false, Ordering::Relaxed);
    assert!(soon("a call", pit.call::<snakepit::Value>("any", ())).await.is_ok());
    soon("the stop", pit.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_races_starts_and_ends_and_comes_to_its_end() {
    let whims = Arc::new(Whims::default());
    for round in 0..rounds(3000) {
        whims.start_micros.store(jitter(round, 200).as_micros() as usize, Ordering::Relaxed);
        let pool = whimsical(&whims).workers(2).replace_at_once(2);
        let pit = Snakepit::builder().pool(pool).start_in_background().await.expect("an engine");
        let pool = pit.pools()[0].clone();
        if round % 3 > 0 {
            soon("ready", pool.await_ready(support::SOON)).await.expect("ready");
            pool.recycle_all().await;
        }
        pool.scale(1 + round % 5);
        tokio::time::sleep(jitter(round * 3, 300)).await;
        let what = format!("the stop of round {round}");
        soon(&what, pit.stop_within(Duration::ZERO)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_call_does_not_count_as_served() {
    let whims = Arc::new(Whims::default());
    whims.breaks_in_calls.store(true, Ordering::Relaxed);
    let restarts = Restarts::default().failures(0).longest_pause(Duration::from_millis(50));
    let pool = whimsical(&whims).workers(1).restarts(restarts);
    let pit = Snakepit::builder().pool(pool).start().await.expect("an engine");
    let mut events = pit.pools()[0].events();
    for _ in 0..8 {
        let lost = soon("a call", pit.call::<snakepit::Value>("any", ())).await.expect_err("it breaks");
        assert!(lost.autopsy().is_some(), "{lost}");
    }
    let mut degraded = false;
    while let Ok(Some(event)) = tokio::time::timeout(Duration::ZERO, events.next()).await {
        degraded |= matches!(event, Event::PoolDegraded { .. });
        assert!(!matches!(event, Event::PoolRecovered { .. }), "nobody has served");
    }
    assert!(degraded);
    soon("the stop", pit.stop()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_that_becomes_ready_during_a_stop_is_ended() {
    let whims = Arc::new(Whims::default());
    let pool = whimsical(&whims).workers(1).recycling(Recycling::default().max_rss(1 << 40));
    let pit = Snakepit::builder().pool(pool).start().await.expect("an engine");
    // The supervisor's look at the memory of one worker, and the start of another one, take long.
    whims.look.shut();
    whims.look.catch().await;
    whims.start.shut();
    pit.pools()[0].scale(2);
    whims.start.catch().await;
    let stop = tokio::spawn({
        let pit = pit.clone();
        async move { pit.stop_within(Duration::ZERO).await }
    });
    until("the first one has ended", || whims.ended.load(Ordering::SeqCst) == 1).await;
    // The supervisor learns the result of the look, and some time later that the second worker is ready.
    for gate in [&whims.look, &whims.start] {
        tokio::time::sleep(Duration::from_millis(50)).await;
        gate.open();
    }
    soon("the stop", stop).await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread")]
async fn await_ready_waits_for_the_size_last_asked_for() {
    let mock = Mock::new().command("one", |_| async { Ok(1.into()) });
    let pit = Snakepit::builder().pool(snakepit::mock(mock).workers(2)).start().await.expect("an engine");
    let pool = pit.pools()[0].clone();
    for round in 0..rounds(2000) {
        let (first, last) = (1 + round % 3, 1 + round % 5);
        pool.scale(first);
        pool.scale(last);
        soon("ready", pool.await_ready(support::SOON)).await.expect("ready");
        let serve = pool.workers().len();
        assert!(serve >= last, "round {round}: {serve} serve; {first} were asked for, then {last}");
        until("those that are too many have left", || pool.workers().len() == last).await;
    }
    soon("the stop", pit.stop()).await;
}

/// A worker file whose code can change.
struct Code(tempfile::TempDir);

impl Code {
    fn new() -> Self {
        let code = Self(tempfile::tempdir().expect("a directory"));
        code.write("");
        code
    }

    fn write(&self, more: &str) {
        let text = format!(
            "import os\nimport snakepit\n\n@snakepit.command\ndef pid():\n    return os.getpid()\n{more}"
        );
        std::fs::write(self.0.path().join("worker.py"), text).expect("a file");
    }

    fn pool(&self) -> PoolOptions {
        snakepit::python(PythonWorker::new(self.0.path().join("worker.py"))).name("code")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_that_fails_gives_back_the_size_that_was_set_by_hand() {
    let code = Code::new();
    let pit = Pit::start(code.pool().workers(1)).await;
    let pool = pit.pools()[0].clone();
    pool.scale(3);
    soon("ready", pool.await_ready(support::SOON)).await.expect("ready");
    code.write("raise RuntimeError('not today')\n");
    let error =
        soon("the reload", pool.reload_as(code.pool().workers(4))).await.expect_err("it does not start");
    assert!(matches!(error, ReloadError::Aborted { .. }), "{error}");
    assert_eq!(soon("stats", pool.status()).await.target, 3);
    assert_eq!(pool.workers().len(), 3);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_in_its_health_hook_is_told_as_dead() {
    let code = Code::new();
    let pit = Pit::start(code.pool().workers(1)).await;
    let pool = pit.pools()[0].clone();
    code.write("@snakepit.health\ndef health():\n    os._exit(7)\n");
    let error = soon("the reload", pool.reload()).await.expect_err("it dies");
    assert!(error.to_string().contains("status 7"), "{error}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_brings_other_devices_and_another_policy() {
    let pool = |devices: [&'static str; 2]| worker("moody.py").workers(2).devices(devices);
    let pit = Pit::start(pool(["cuda:0", "cuda:1"])).await;
    let running = pit.pools()[0].clone();
    let devices = || -> BTreeSet<_> { running.workers().into_iter().filter_map(|it| it.device).collect() };
    let taint = Taint::default().lasts(Duration::from_secs(1));
    let restarts = Restarts::default().failures(0).longest_pause(Duration::from_millis(50));
    let other = pool(["cuda:1", "cuda:2"]).taint(taint).restarts(restarts);
    soon("the reload", running.reload_as(other)).await.expect("reloaded");
    assert_eq!(devices(), BTreeSet::from(["cuda:1".into(), "cuda:2".into()]));
    // The budget is now twice the number of workers, and the pause is short.
    let mut events = running.events();
    let degraded = async {
        loop {
            pids(&running).into_iter().for_each(kill);
            while let Ok(event) = tokio::time::timeout(Duration::from_millis(20), events.next()).await {
                if matches!(event.expect("the pool lives"), Event::PoolDegraded { .. }) {
                    return;
                }
            }
        }
    };
    soon("the pool is degraded", degraded).await;
    let began = std::time::Instant::now();
    soon("ready", running.await_ready(support::SOON)).await.expect("ready");
    println!("degraded by the new policy, and ready again after {:?}", began.elapsed());
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_past_failure_is_not_reported_as_current_trouble() {
    let pit = Pit::start(snakepit::python(python("hostile.py")).workers(1)).await;
    let pool = pit.pools()[0].clone();
    let pid = pit.call::<u32>("pid", ()).await.expect("a pid");
    kill(pid);
    until("another one serves", || pids(&pool).first().is_some_and(|it| *it != pid)).await;
    soon("ready", pool.await_ready(support::SOON)).await.expect("ready");
    pool.scale(3);
    let mut seen = BTreeSet::new();
    until("all serve", || {
        seen.extend(support::trouble(&pool));
        pool.workers().len() == 3
    })
    .await;
    assert!(seen.is_empty(), "nothing is wrong: {seen:?}");
    let echoed = soon("a call", pit.call::<u32>("echo", args! { value: 1 })).await;
    assert_eq!(echoed.expect("served"), 1);
    pit.end().await;
}
