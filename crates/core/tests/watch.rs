//! Watches over real workers, driven look by look.
#![cfg(target_os = "linux")]

use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Interval};

use snakepit::adapter::{Mock, PythonWorker, Reason};
use snakepit::call::{CallId, OomVerdict};
use snakepit::custody::CustodyOptions;
use snakepit::{CallError, PoolOptions, Snakepit, Value, args};
use snakepit_core::pool::WatchedWorker;
use snakepit_policy::Liveness;

/// Far above what a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often the tests look; often enough for them to be short, and seldom enough for ticks to be counted.
const ROUND: Duration = Duration::from_millis(550);

struct Scene {
    pit: Snakepit,
    worker: WatchedWorker,
    /// Hears from the worker's code that it has begun.
    begun: mpsc::UnboundedReceiver<()>,
    rounds: Interval,
    _home: TempDir,
}

impl Scene {
    async fn open(concurrency: usize) -> Self {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../snakepit/tests/workers/liveness.py");
        Self::of(snakepit::python(PythonWorker::new(file)).workers(1).concurrency(concurrency)).await
    }

    async fn of(pool: PoolOptions) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let custody = CustodyOptions::default().state_dir(home.path());
        let (tell, begun) = mpsc::unbounded_channel();
        let tool = move |(): (), _| std::future::ready(tell.send(()));
        let builder = Snakepit::builder().pool(pool).tool("begun", tool).custody(custody);
        let pit = builder.start().await.expect("an engine");
        let worker = WatchedWorker::first_of(&pit.pools()[0]).expect("a worker");
        let rounds = tokio::time::interval(ROUND);
        Self { pit, worker, begun, rounds, _home: home }
    }

    /// Begins a call, and waits until the worker says that it is under way.
    async fn begin(&mut self, command: &str, seconds: f64) -> JoinHandle<Result<Value, CallError>> {
        let call = tokio::spawn(self.pit.call::<Value>(command, args! { seconds: seconds }).into_future());
        let begun = tokio::time::timeout(PATIENCE, self.begun.recv()).await;
        assert_eq!(begun.ok().flatten(), Some(()), "{command} never began");
        call
    }

    /// One round of the crew.
    async fn look(&mut self) -> Liveness {
        // A whole round from now on, however long the last thing took.
        self.rounds.reset();
        self.rounds.tick().await;
        self.worker.look().await
    }

    /// Looks until it is judged so.
    async fn until(&mut self, what: &str, is: impl Fn(Liveness) -> bool) -> Liveness {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let liveness = self.look().await;
            if is(liveness) {
                return liveness;
            }
            assert!(Instant::now() < deadline, "never {what}, but {liveness:?}");
        }
    }

    /// Whether a worker that is at a long call answers when it is asked.
    async fn beats_on(&mut self) {
        self.until("asked", |_| true).await;
        let before = self.worker.handle().beats().expect("a worker that beats");
        let deadline = Instant::now() + PATIENCE;
        while self.worker.handle().beats() == Some(before) {
            assert!(Instant::now() < deadline, "it never beat");
            self.look().await;
        }
    }

    fn signal(&self, signal: Signal) {
        let process = self.worker.handle().process().expect("a process");
        process.signal_main(signal.as_raw()).expect("a signal");
    }

    async fn close(self) {
        self.pit.stop_within(Duration::ZERO).await;
    }
}

fn is_stuck(liveness: Liveness) -> bool {
    matches!(liveness, Liveness::Stuck { .. })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_worker_is_never_asked_for_a_heartbeat() {
    let mut scene = Scene::open(1).await;
    for _ in 0..3 {
        assert_eq!(scene.look().await, Liveness::Idle);
    }
    let _: Value = scene.pit.call("echo", args! { value: 1 }).await.expect("an answer");
    assert_eq!(scene.look().await, Liveness::Idle);
    assert_eq!(scene.worker.handle().beats(), Some(0));
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_sleeps_in_python_is_waiting_and_sends_heartbeats() {
    for concurrency in [1, 3] {
        let mut scene = Scene::open(concurrency).await;
        let call = scene.begin("sleep", 600.0).await;
        scene.beats_on().await;
        for _ in 0..4 {
            assert_eq!(scene.look().await, Liveness::Waiting, "concurrency {concurrency}");
        }
        assert!(scene.worker.handle().beats().is_some_and(|beats| beats >= 3), "asked again and again");
        call.abort();
        scene.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_in_a_python_loop_is_busy_and_sends_heartbeats() {
    let mut scene = Scene::open(1).await;
    let call = scene.begin("spin", 600.0).await;
    scene.beats_on().await;
    for _ in 0..3 {
        assert_eq!(scene.look().await, Liveness::Busy);
    }
    call.abort();
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_sleeps_with_the_gil_held_is_stuck_until_it_wakes() {
    let mut scene = Scene::open(1).await;
    let call = scene.begin("hold_the_gil", 10.0).await;
    let began = Instant::now();
    let stuck = scene.until("stuck", is_stuck).await;
    let Liveness::Stuck { since } = stuck else { unreachable!() };
    assert!(since <= Instant::now() && since + PATIENCE > began, "{stuck:?}");
    // A look may see it move: on a machine with much to do, a thread that waits for the GIL costs more than a trace.
    scene.until("still stuck", is_stuck).await;
    assert!(!call.is_finished(), "while it holds the GIL");
    let answer = tokio::time::timeout(PATIENCE, call).await.expect("in time").expect("no panic");
    assert!(answer.is_ok(), "judged, not killed: {answer:?}");
    assert_eq!(scene.look().await, Liveness::Idle);
    // The question that waited all the time is answered now, and another call starts afresh.
    let call = scene.begin("sleep", 600.0).await;
    scene.beats_on().await;
    assert_eq!(scene.look().await, Liveness::Waiting);
    call.abort();
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_computes_in_c_with_the_gil_held_is_busy_without_heartbeats() {
    let mut scene = Scene::open(1).await;
    let call = scene.begin("big_power", 4.0).await;
    let mut looks = Vec::new();
    while !call.is_finished() {
        looks.push((scene.look().await, scene.worker.handle().beats()));
    }
    call.await.expect("no panic").expect("an answer");
    // It may have been asked, and have answered, before it began to compute: finding out for how long takes a while, too.
    let before = looks.first().and_then(|(_, beats)| *beats);
    let silent: Vec<_> = looks.iter().filter(|(_, beats)| *beats == before).collect();
    assert!(silent.len() >= 4, "it takes a while: {looks:?}");
    // The first look has nothing to compare with.
    assert!(silent.iter().skip(1).all(|(liveness, _)| *liveness == Liveness::Busy), "{looks:?}");
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_seen_to_be_stopped_and_to_continue() {
    let mut scene = Scene::open(1).await;
    scene.signal(Signal::STOP);
    scene.until("stopped", |it| matches!(it, Liveness::Stopped { .. })).await;
    scene.signal(Signal::CONT);
    scene.until("idle again", |it| it == Liveness::Idle).await;

    let call = scene.begin("sleep", 600.0).await;
    scene.until("waiting", |it| it == Liveness::Waiting).await;
    scene.signal(Signal::STOP);
    let first = scene.until("stopped in a call", |it| matches!(it, Liveness::Stopped { .. })).await;
    assert_eq!(scene.look().await, first, "since the same moment");
    scene.signal(Signal::CONT);
    scene.until("waiting again", |it| it == Liveness::Waiting).await;
    scene.beats_on().await;
    call.abort();
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_worker_is_seen_as_dead_with_its_last_known_memory() {
    let mut scene = Scene::open(1).await;
    scene.look().await;
    scene.signal(Signal::KILL);
    scene.until("dead", |it| it == Liveness::Dead).await;
    assert!(scene.worker.first_look().rss.is_some_and(|rss| rss > 1 << 20));
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_at_work_are_the_first_ones_sent_up_to_the_concurrency() {
    for concurrency in [1, 2] {
        let mut scene = Scene::open(concurrency).await;
        assert_eq!(scene.worker.handle().at_work(), []);
        let began = Instant::now();
        let mut calls = vec![scene.begin("sleep", 600.0).await];
        if concurrency > 1 {
            calls.push(scene.begin("spin", 600.0).await);
        }
        let at_work = scene.worker.handle().at_work();
        let commands: Vec<&str> = at_work.iter().map(|it| &*it.command).collect();
        assert_eq!(commands, ["sleep", "spin"][..concurrency]);
        assert!(at_work.iter().all(|it| it.since >= began && it.since <= Instant::now()));
        assert!(at_work.is_sorted_by_key(|it| it.since));
        calls.iter().for_each(JoinHandle::abort);
        scene.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_autopsy_of_a_worker_that_the_pool_ends_has_its_stack() {
    for (reason, said) in [
        (Reason::Stuck(Duration::from_mins(1)), "no sign of life for 60s"),
        (Reason::CancelIgnored(CallId::new(7)), "call 7 was cancelled"),
    ] {
        let mut scene = Scene::open(1).await;
        let call = scene.begin("hang_in_c", 600.0).await;
        scene.worker.end(reason);
        let answer = tokio::time::timeout(PATIENCE, call).await.expect("in time").expect("no panic");
        let error = answer.expect_err("its worker was ended");
        let autopsy = error.autopsy().expect("an autopsy");
        assert!(autopsy.fault.as_ref().is_some_and(|it| it.contains(said)), "{autopsy}");
        assert_eq!(autopsy.oom, OomVerdict::No);
        let stack = autopsy.stack.as_ref().expect("a stack");
        assert!(stack.contains("in hang_in_c") && !stack.contains("_answer_beats"), "{stack}");
        assert!(error.to_string().contains("in hang_in_c"), "{error}");
        scene.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_liveness_of_a_worker_without_a_process_follows_from_its_calls() {
    let mock = Mock::new().command("wait", |_| std::future::pending());
    let mut scene = Scene::of(snakepit::mock(mock).workers(1)).await;
    assert_eq!(scene.look().await, Liveness::Idle);
    let call = tokio::spawn(scene.pit.call::<Value>("wait", args! {}).into_future());
    scene.until("waiting", |it| it == Liveness::Waiting).await;
    call.abort();
    scene.close().await;
}
