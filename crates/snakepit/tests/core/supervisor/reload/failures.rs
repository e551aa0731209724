//! A reload replaces all workers or none, and does not blame new code for deaths that others caused.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use snakepit::adapter::PythonWorker;
use snakepit::pool::ReloadError;
use snakepit::telemetry::Event;
use snakepit::{Pool, PoolOptions};

use crate::support::{Pit, heard, kill, lines, soon, until};

/// A worker file whose starts are counted in another file.
struct Code(tempfile::TempDir);

impl Code {
    fn new() -> Self {
        let code = Self(tempfile::tempdir().expect("a directory"));
        code.write("one", "");
        code
    }

    fn starts(&self) -> String {
        self.0.path().join("starts").to_string_lossy().into_owned()
    }

    /// Writes a version of the file. `more` runs at each start, and finds in `starts` the number of the start, from 1.
    fn write(&self, version: &str, more: &str) {
        let _ = std::fs::remove_file(self.starts());
        let text = format!(
            "import os, signal, threading, time\nimport snakepit\n\nversion_is = {version:?}\n\
             with open({:?}, 'a+') as file:\n    file.write(str(os.getpid()) + '\\n')\n    file.flush()\n    \
             file.seek(0)\n    starts = len(file.readlines())\n\n\
             def dies_after(seconds):\n    timer = threading.Timer(seconds, os._exit, (7,))\n    \
             timer.daemon = True\n    timer.start()\n\n\
             @snakepit.command\ndef version():\n    return version_is\n\n{more}",
            self.starts()
        );
        let path: PathBuf = self.0.path().join("worker.py");
        let mut file = std::fs::File::create(path).expect("a file");
        std::io::Write::write_all(&mut file, text.as_bytes()).expect("written");
        // Two versions with the same second and size are the same to Python's compiled files.
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_hours(24)).expect("a time");
    }

    fn pool(&self) -> PoolOptions {
        snakepit::python(PythonWorker::new(self.0.path().join("worker.py"))).name("code")
    }
}

fn names(pool: &Pool) -> BTreeSet<String> {
    pool.workers().into_iter().map(|worker| worker.id).collect()
}

/// Waits until all workers are at rest: as many as there should be serve, and no other worker is left.
async fn generations(pit: &Pit, pool: &Pool, workers: usize) -> BTreeSet<u64> {
    let run = pit.run().expect("a run").clone();
    until("all is quiet", || run.workers().len() == workers && names(pool).len() == workers).await;
    let at_rest = async {
        loop {
            let stats = pool.status().await;
            if stats.workers.len() == workers {
                return stats.workers.into_iter().map(|worker| worker.info.generation).collect();
            }
            tokio::task::yield_now().await;
        }
    };
    soon("all others are gone", at_rest).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_that_fails_half_way_leaves_all_workers_as_they_were() {
    let code = Code::new();
    let pit = Pit::start(code.pool().workers(3)).await;
    let pool = pit.pools()[0].clone();
    let before = names(&pool);
    code.write("two", "if starts > 1:\n    raise RuntimeError('the port is taken')\n");
    let error = soon("the reload", pool.reload()).await.expect_err("the second one does not start");
    assert!(matches!(error, ReloadError::Aborted { .. }), "{error}");
    assert!(error.to_string().contains("the port is taken"), "{error}");
    assert!(error.to_string().contains("its old workers go on"), "{error}");
    assert_eq!(names(&pool), before);
    assert_eq!(generations(&pit, &pool, 3).await, BTreeSet::from([1]));
    for _ in 0..12 {
        let version: String = soon("a call", pit.call("version", ())).await.expect("served");
        assert_eq!(version, "one");
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_to_code_that_dies_soon_after_its_start_fails() {
    let code = Code::new();
    let pit = Pit::start(code.pool().workers(2)).await;
    let pool = pit.pools()[0].clone();
    let before = names(&pool);
    code.write("two", "dies_after(0.3)\n");
    let error = soon("the reload", pool.reload()).await.expect_err("its workers die");
    assert!(error.to_string().contains("status 7"), "{error}");
    assert_eq!(names(&pool), before, "the old ones serve");
    assert_eq!(generations(&pit, &pool, 2).await, BTreeSet::from([1]));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_worker_that_somebody_kills_is_started_again_and_the_reload_goes_on() {
    let code = Code::new();
    let pit = Pit::start(code.pool().workers(3)).await;
    let pool = pit.pools()[0].clone();
    let mut events = pool.events();
    code.write("two", "");
    let reload = tokio::spawn({
        let pool = pool.clone();
        async move { pool.reload().await }
    });
    // The first new worker, as soon as it serves.
    heard(&mut events, |event| matches!(event, Event::WorkerReady { .. }).then_some(())).await;
    kill(lines(&code.starts())[0].parse().expect("a pid"));
    let reloaded = soon("the reload", reload).await.expect("no panic").expect("all are new");
    assert_eq!((reloaded.replaced, reloaded.generation), (3, 2));
    assert_eq!(generations(&pit, &pool, 3).await, BTreeSet::from([2]));
    let version: String = soon("a call", pit.call("version", ())).await.expect("served");
    assert_eq!(version, "two");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_to_code_that_keeps_killing_itself_fails() {
    let code = Code::new();
    let pit = Pit::start(code.pool().workers(2)).await;
    let pool = pit.pools()[0].clone();
    let before = names(&pool);
    code.write("two", "os.kill(os.getpid(), signal.SIGKILL)\n");
    let error = soon("the reload", pool.reload()).await.expect_err("it never starts");
    assert!(error.to_string().contains("signal 9"), "{error}");
    assert!(lines(&code.starts()).len() > 1, "it was tried again");
    assert_eq!(names(&pool), before);
    pit.end().await;
}
