//! Workers are killed again and again under load: every call has one answer, and the host's memory does not grow.
//!
//! These tests measure the whole process, so they run one after another. `SNAKEPIT_STORM=60` sets the length of the
//! load in seconds; the default is 15.
//!
//! About `crates/core/src/supervisor/worker_end.rs` and `crates/core/src/supervisor/worker_task.rs`.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use snakepit::policy::Restarts;
use snakepit::{CallError, Pool, Snakepit, Value, args};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::support::{
    self, Pit, kill, lines, number_from_env, percentile, pids, rounds, soon, until, worker,
};

/// Held by the test that is being measured.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Restarts that replace dead workers without ever giving up.
fn tireless() -> Restarts {
    Restarts::default()
        .failures(1_000_000)
        .first_pause(Duration::from_millis(1))
        .longest_pause(Duration::from_millis(10))
}

/// The resources that the host holds.
#[derive(Clone, Copy, Debug)]
struct Holdings {
    descriptors: usize,
    tasks: usize,
    kib: usize,
}

impl Holdings {
    fn now() -> Self {
        let descriptors = std::fs::read_dir("/proc/self/fd").expect("descriptors").count();
        let status = std::fs::read_to_string("/proc/self/status").expect("a status");
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("memory");
        let kib = rss.trim().trim_end_matches(" kB").parse().expect("a number");
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        Self { descriptors, tasks, kib }
    }

    /// Returns the median of each resource.
    fn median(of: &[Self]) -> Self {
        let median = |part: fn(&Self) -> usize| {
            let mut parts: Vec<_> = of.iter().map(part).collect();
            parts.sort_unstable();
            percentile(&parts, 50)
        };
        Self {
            descriptors: median(|it| it.descriptors),
            tasks: median(|it| it.tasks),
            kib: median(|it| it.kib),
        }
    }
}

/// Callers that record each call in a file.
struct Callers {
    stop: Arc<AtomicBool>,
    made: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<Vec<bool>>>,
}

impl Callers {
    fn start(pit: &Snakepit, path: &str, callers: usize) -> Self {
        let (stop, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let caller = |caller| {
            let (pit, stop, made, path) =
                (pit.clone(), Arc::clone(&stop), Arc::clone(&made), path.to_owned());
            tokio::spawn(async move {
                // Whether each call was answered; the others died with their worker. Allocated in advance, so that it
                // does not grow.
                let mut answered = Vec::with_capacity(1 << 20);
                while !stop.load(Ordering::Relaxed) {
                    let key = format!("{caller}-{}", answered.len());
                    let (path, short) = (path.as_str(), args! { path: path.as_str(), key: key.as_str() });
                    let call = match answered.len() % 4 {
                        0 => pit.call::<String>(
                            "mark_and_sleep",
                            args! { path: path, key: key.as_str(), seconds: 0.02 },
                        ),
                        _ => pit.call::<String>("mark", short),
                    };
                    made.fetch_add(1, Ordering::Relaxed);
                    match soon("a call", call).await {
                        Ok(value) => {
                            assert_eq!(value, key);
                            answered.push(true);
                        }
                        Err(CallError::WorkerDied { .. }) => answered.push(false),
                        Err(error) => panic!("{key}: {error}"),
                    }
                }
                answered
            })
        };
        let tasks = (0..callers).map(caller).collect();
        Self { stop, made, tasks }
    }

    /// Returns how many calls were answered, and how many died. Checks that each was one of both, and was run at most
    /// once.
    async fn end(self, path: &str) -> (usize, usize) {
        self.stop.store(true, Ordering::Relaxed);
        let mut outcomes = Vec::new();
        for caller in self.tasks {
            outcomes.push(soon("a caller", caller).await.expect("every call has its answer"));
        }
        let all = lines(path);
        let marks: HashSet<&str> = all.iter().map(String::as_str).collect();
        assert_eq!(marks.len(), all.len(), "a call was run twice");
        let (mut good, mut bad) = (0, 0);
        for (caller, answers) in outcomes.iter().enumerate() {
            for (n, answered) in answers.iter().enumerate() {
                *(if *answered { &mut good } else { &mut bad }) += 1;
                let run = marks.contains(format!("{caller}-{n}").as_str());
                assert!(run || !answered, "{caller}-{n} was answered and never run");
            }
        }
        assert!(marks.len() <= good + bad, "more was run than called");
        let made = self.made.load(Ordering::Relaxed) as usize;
        assert_eq!(good + bad, made, "each call has one answer");
        (good, bad)
    }
}

/// Returns the length of the storm.
fn length() -> Duration {
    let usual = if support::is_full() { 60 } else { 5 };
    Duration::from_secs(number_from_env("SNAKEPIT_STORM").unwrap_or(usual))
}

async fn settled(pit: &Snakepit, pool: &Pool) {
    soon("ready", pool.await_ready(support::SOON)).await.expect("ready");
    let run = pit.run().expect("a run");
    until("all is quiet", || {
        run.workers().len() == pool.workers().len() && pool.queued() + pool.in_flight() == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_all_workers_four_times_a_second_loses_only_their_calls() {
    let _alone = ALONE.lock().await;
    let pit = Pit::start(worker("hostile.py").workers(4).restarts(tireless()).quarantine(None)).await;
    let pool = pit.pools()[0].clone();
    let path = pit.file("marks");
    settled(&pit, &pool).await;
    let before = Holdings::now();
    let callers = Callers::start(&pit, &path, 12);
    let (began, length) = (Instant::now(), length());
    let mut kills = 0;
    let mut thirds: [Vec<Holdings>; 3] = Default::default();
    while began.elapsed() < length {
        // Time itself is tested here.
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let third = (began.elapsed().as_secs_f64() / length.as_secs_f64() * 3.0) as usize;
            thirds[third.min(2)].push(Holdings::now());
        }
        let serving = pids(&pool);
        kills += serving.len();
        serving.into_iter().for_each(kill);
    }
    let (answered, died) = callers.end(&path).await;
    let [first, second, third] = thirds.map(|third| Holdings::median(&third));
    settled(&pit, &pool).await;
    until("the tasks are gone", || Holdings::now().tasks <= before.tasks).await;
    let after = Holdings::now();
    println!("{kills} kills in {length:?}: {answered} answered, {died} died with their worker");
    println!("before {before:?}\n  1/3 {first:?}\n  2/3 {second:?}\n  3/3 {third:?}\nafter {after:?}");
    assert!(died <= kills, "{died} calls failed of {kills} deaths");
    assert!(answered > kills, "it served meanwhile");
    for (earlier, later) in [(first, second), (second, third)] {
        assert!(later.descriptors <= earlier.descriptors + 8, "{earlier:?} → {later:?}");
        assert!(later.tasks <= earlier.tasks + 12, "{earlier:?} → {later:?}");
        assert!(later.kib <= earlier.kib + (8 << 10), "{earlier:?} → {later:?}");
    }
    assert!(after.descriptors <= before.descriptors + 2, "{before:?} → {after:?}");
    assert_eq!(pids(&pool).len(), 4);
    pit.end().await;
}

/// An error that arrives earlier than this must know how the worker died.
const CAUSE_PATIENCE: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread")]
async fn killing_all_workers_at_once_loses_only_their_calls() {
    const WORKERS: usize = 4;
    let _alone = ALONE.lock().await;
    let pit = Pit::start(worker("hostile.py").workers(WORKERS).restarts(tireless()).quarantine(None)).await;
    let pool = pit.pools()[0].clone();
    let mut times = Vec::new();
    for round in 0..rounds(25) {
        soon("ready", pool.await_ready(support::SOON)).await.expect("ready");
        let path = pit.file(&format!("started-{round}"));
        let sleeper =
            || tokio::spawn(pit.call::<Value>("sleepy", args! { path: path.as_str() }).into_future());
        let calls: Vec<_> = (0..WORKERS).map(|_| sleeper()).collect();
        until("all are busy", || lines(&path).len() == WORKERS).await;
        let queued: Vec<_> = (0..WORKERS)
            .map(|n| tokio::spawn(pit.call::<usize>("echo", args! { value: n }).into_future()))
            .collect();
        until("others wait", || pool.queued() == WORKERS).await;
        let serving = pids(&pool);
        assert_eq!(serving.len(), WORKERS);
        let killed = Instant::now();
        serving.into_iter().for_each(kill);
        for call in calls {
            let error = soon("the error", call).await.expect("no panic").expect_err("a death");
            let took = killed.elapsed();
            times.push(took);
            assert!(matches!(error, CallError::WorkerDied { .. }), "{error}");
            // The caller does not wait for the cause: if the keeper is late, the error says that the socket closed.
            let is_known = error.to_string().contains("SIGKILL");
            assert!(is_known || took >= CAUSE_PATIENCE, "{error} after {took:?}");
        }
        for (n, call) in queued.into_iter().enumerate() {
            let echoed = soon("a call that waited", call).await.expect("no panic").expect("served");
            assert_eq!(echoed, n);
        }
    }
    times.sort_unstable();
    let (half, most) = (percentile(&times, 50), percentile(&times, 99));
    println!("all killed → error: p50 {half:?}, p99 {most:?}");
    assert!(half < Duration::from_secs(1), "{times:?}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_serves_again_after_a_death_about_as_soon_as_after_a_fresh_start() {
    let _alone = ALONE.lock().await;
    let pit = Pit::start(worker("hostile.py").workers(1).restarts(tireless()).quarantine(None)).await;
    let pool = pit.pools()[0].clone();
    let (mut fresh, mut again) = (Vec::new(), Vec::new());
    for _ in 0..rounds(40).max(4) {
        pool.scale(0);
        until("nobody is left", || pit.run().expect("a run").workers().is_empty()).await;
        let began = Instant::now();
        pool.scale(1);
        let pid = soon("a call", pit.call::<u32>("pid", ())).await.expect("served");
        fresh.push(began.elapsed());
        let began = Instant::now();
        kill(pid);
        // A call that the dead worker got and never began is served by the next worker.
        let next = soon("a call", pit.call::<u32>("pid", ())).await;
        again.push(began.elapsed());
        assert_ne!(next.expect("served"), pid);
    }
    fresh.sort_unstable();
    again.sort_unstable();
    for percent in [50, 90] {
        let (start, recovery) = (percentile(&fresh, percent), percentile(&again, percent));
        let ratio = recovery.as_secs_f64() / start.as_secs_f64();
        println!("p{percent}: fresh start → answer {start:?}, death → answer {recovery:?}: {ratio:.2} ×");
    }
    // The fastest of each: load on the machine affects all the others, while a pause would affect the fastest, too.
    let ratio = again[0].as_secs_f64() / fresh[0].as_secs_f64();
    assert!(ratio < 3.0, "{ratio}: fresh {fresh:?}, after a death {again:?}");
    pit.end().await;
}
