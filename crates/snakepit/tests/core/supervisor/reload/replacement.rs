//! Workers are replaced while the pool serves: recycled on request, or reloaded with new code or settings.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use snakepit::adapter::PythonWorker;
use snakepit::pool::ReloadError;
use snakepit::{Pool, PoolOptions, Snakepit, args};
use tokio::task::JoinHandle;

use crate::support::{self, Pit, soon, until, worker};

/// Returns the names of the workers that serve.
fn names(pool: &Pool) -> BTreeSet<String> {
    pool.workers().into_iter().map(|worker| worker.id).collect()
}

/// Callers that call without a pause until they are stopped. Every call must succeed.
struct Load {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    callers: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(pit: &Snakepit, callers: usize) -> Self {
        let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let caller = |_| {
            let (pit, stop, served) = (pit.clone(), Arc::clone(&stop), Arc::clone(&served));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let answer = pit.call::<u32>("echo", args! { value: 7 }).await;
                    assert_eq!(answer.expect("no call fails"), 7);
                    served.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let callers = (0..callers).map(caller).collect();
        Self { stop, served, callers }
    }

    async fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for caller in self.callers {
            soon("a caller", caller).await.expect("no panic");
        }
        self.served.load(Ordering::Relaxed)
    }
}

/// Records the lowest number of serving workers while it watches.
struct Watch {
    stop: Arc<AtomicBool>,
    task: JoinHandle<(usize, usize)>,
}

impl Watch {
    fn start(pool: &Pool) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (pool, stopped) = (pool.clone(), Arc::clone(&stop));
        let least = Arc::new(AtomicUsize::new(usize::MAX));
        let task = tokio::spawn(async move {
            let mut most = 0;
            while !stopped.load(Ordering::Relaxed) {
                let now = pool.workers().len();
                least.fetch_min(now, Ordering::Relaxed);
                most = most.max(now);
                tokio::task::yield_now().await;
            }
            (least.load(Ordering::Relaxed), most)
        });
        Self { stop, task }
    }

    async fn end(self) -> (usize, usize) {
        self.stop.store(true, Ordering::Relaxed);
        soon("the watch", self.task).await.expect("no panic")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_recycled_serves_until_its_replacement_does() {
    let pit = Pit::start(worker("hostile.py").workers(2)).await;
    let pool = pit.pools()[0].clone();
    let before = names(&pool);
    let old = before.first().expect("a worker").clone();
    let (load, watch) = (Load::start(&pit, 4), Watch::start(&pool));
    assert!(pool.recycle(&old).await);
    until("it has left", || !names(&pool).contains(&old)).await;
    assert_eq!(watch.end().await.0, 2, "capacity does not dip");
    assert!(load.end().await > 0);
    assert!(!pool.recycle("nobody").await);
    assert_eq!(names(&pool).intersection(&before).count(), 1, "the other one stays");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_workers_are_recycled_a_few_at_a_time() {
    let pit = Pit::start(worker("hostile.py").workers(4).replace_at_once(2)).await;
    let pool = pit.pools()[0].clone();
    let before = names(&pool);
    let (load, watch) = (Load::start(&pit, 4), Watch::start(&pool));
    assert_eq!(pool.recycle_all().await, 4);
    until("all are new", || names(&pool).len() == 4 && names(&pool).is_disjoint(&before)).await;
    let (least, most) = watch.end().await;
    assert!(least == 4 && most <= 6, "between {least} and {most} served");
    assert!(load.end().await > 0);
    pit.end().await;
}

/// A worker file that answers with the version of its code.
struct Code {
    home: tempfile::TempDir,
}

impl Code {
    fn new(version: &str) -> Self {
        let code = Self { home: tempfile::tempdir().expect("a directory") };
        code.write(version, "");
        code
    }

    fn write(&self, version: &str, more: &str) {
        let text = format!(
            "import snakepit\n\n@snakepit.command\ndef version():\n    return {version:?}\n\n\
             @snakepit.command\ndef echo(value):\n    return value\n{more}"
        );
        let mut file = std::fs::File::create(self.home.path().join("worker.py")).expect("a file");
        std::io::Write::write_all(&mut file, text.as_bytes()).expect("written");
        // Two versions with the same second and size are the same to Python's compiled files.
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_hours(24)).expect("a time");
    }

    fn python(&self) -> PythonWorker {
        PythonWorker::new(self.home.path().join("worker.py"))
    }

    fn pool(&self) -> PoolOptions {
        snakepit::python(self.python()).name("code")
    }
}

async fn versions(pit: &Snakepit, calls: usize) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    for _ in 0..calls {
        seen.insert(pit.call::<String>("version", ()).await.expect("an answer"));
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_brings_new_code_and_never_fewer_workers() {
    let code = Code::new("one");
    let pit = Pit::start(code.pool().workers(3)).await;
    let pool = pit.pools()[0].clone();
    let before = names(&pool);
    let (load, watch) = (Load::start(&pit, 6), Watch::start(&pool));
    code.write("two", "");
    let reloaded = soon("the reload", pool.reload()).await.expect("reloaded");
    assert_eq!((reloaded.replaced, reloaded.generation), (3, 2));
    assert!(names(&pool).is_disjoint(&before));
    let (least, most) = watch.end().await;
    assert!(least == 3 && most <= 4, "between {least} and {most} served");
    assert!(load.end().await > 0);
    assert_eq!(versions(&pit, 20).await, BTreeSet::from(["two".into()]));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_of_code_that_does_not_start_keeps_the_old_workers_and_says_why() {
    let code = Code::new("one");
    let pit = Pit::start(code.pool().workers(3)).await;
    let pool = pit.pools()[0].clone();
    let before = names(&pool);
    let load = Load::start(&pit, 6);
    let broken = [
        ("raise RuntimeError('no luck at import')\n", "no luck at import"),
        ("this is no Python\n", "SyntaxError"),
        ("import sys\nsys.exit(3)\n", "3"),
        ("@snakepit.health\ndef health():\n    raise ValueError('not well')\n", "not well"),
        ("@snakepit.health\ndef health():\n    return False\n", "not healthy"),
    ];
    for (more, reason) in broken {
        code.write("two", more);
        let error = soon("the reload", pool.reload()).await.expect_err("it cannot start");
        assert!(matches!(error, ReloadError::Aborted { .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
        assert_eq!(names(&pool), before);
    }
    code.write("three", "@snakepit.health\ndef health():\n    return True\n");
    soon("the reload", pool.reload()).await.expect("reloaded");
    assert!(load.end().await > 0);
    assert_eq!(versions(&pit, 20).await, BTreeSet::from(["three".into()]));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_with_new_settings_changes_them_and_a_failed_one_changes_nothing() {
    let code = Code::new("one");
    let pit = Pit::start(code.pool().workers(1)).await;
    let pool = pit.pools()[0].clone();
    let more = snakepit::python(code.python().env("WHO", "new")).name("code").workers(3);
    soon("the reload", pool.reload_as(more.max_frame(1 << 16))).await.expect("reloaded");
    let long = args! { text: "x".repeat(1 << 17) };
    let error = soon("the call", pool.call::<String>("version", long)).await.expect_err("too long");
    assert!(
        error.source().is_some_and(|source| source.to_string().contains("max_frame is 65536")),
        "{error:?}"
    );
    soon("ready", pool.await_ready(support::SOON)).await.expect("ready");
    assert_eq!(names(&pool).len(), 3);
    let nowhere = snakepit::python("/nonexistent/worker.py").name("code").workers(9);
    let error = soon("the reload", pool.reload_as(nowhere)).await.expect_err("there is no such file");
    assert!(error.to_string().contains("/nonexistent/worker.py"), "{error}");
    let slow = code.pool().workers(5).worker_start_timeout(Duration::ZERO);
    let error = soon("the reload", pool.reload_as(slow)).await.expect_err("no time to start");
    assert!(error.to_string().contains("worker_start_timeout"), "{error}");
    soon("ready", pool.await_ready(support::SOON)).await.expect("ready");
    assert_eq!(names(&pool).len(), 3);
    let other = code.pool().name("other");
    let error = pool.reload_as(other).await.expect_err("another name");
    assert!(matches!(error, ReloadError::OtherName { .. }), "{error}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_reload_at_a_time_and_a_stop_ends_it() {
    let code = Code::new("one");
    let pit = Pit::start(code.pool().workers(2)).await;
    let pool = pit.pools()[0].clone();
    code.write("two", "import time\ntime.sleep(60)\n");
    let first = tokio::spawn({
        let pool = pool.clone();
        async move { pool.reload().await }
    });
    until("the new one starts", || pit.run().expect("a run").workers().len() == 3).await;
    let error = soon("the second", pool.reload()).await.expect_err("one is under way");
    assert!(matches!(error, ReloadError::UnderWay { .. }), "{error}");
    pit.stop_within(Duration::ZERO).await;
    let ended = soon("the first", first).await.expect("no panic").expect_err("stopped");
    assert!(matches!(ended, ReloadError::Stopped), "{ended}");
    pit.end().await;
}
