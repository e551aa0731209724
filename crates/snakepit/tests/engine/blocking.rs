//! Engines that are used without `async`.

use std::io::Read;
use std::sync::mpsc;
use std::time::Duration;

use snakepit::adapter::PythonWorker;
use snakepit::lifecycle::Blocking;
use snakepit::{CallError, PoolOptions, Snakepit, args};
use tempfile::TempDir;

use crate::support::{SOON, config, runs_in, worker};

fn start(home: &TempDir, pool: PoolOptions) -> Blocking {
    Snakepit::builder().pool(pool).custody(config(home)).start_blocking().expect("an engine")
}

fn add(pit: &Blocking, a: i64, b: i64) -> Result<i64, CallError> {
    pit.call("add", args! { a: a, b: b })
}

#[test]
fn a_host_without_a_runtime_calls_and_stops() {
    let home = tempfile::tempdir().expect("a directory");
    let pit = start(&home, worker("basic.py").workers(1));
    assert_eq!(add(&pit, 1, 2).expect("an answer"), 3);
    let error = pit.call::<i64>("unknown", ()).expect_err("there is no such command");
    assert!(error.to_string().contains("unknown"), "{error}");
    assert!(pit.stop().is_clean());
    assert!(matches!(add(&pit, 1, 2), Err(CallError::Stopped)));
    assert_eq!(runs_in(home.path()), [""; 0]);
}

#[test]
fn threads_that_call_at_the_same_time_each_get_their_own_answer() {
    let home = tempfile::tempdir().expect("a directory");
    let pit = start(&home, worker("basic.py").workers(2));
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let pit = pit.clone();
            scope.spawn(move || {
                for call in 0..100 {
                    assert_eq!(add(&pit, thread, call).expect("an answer"), thread + call);
                }
            });
        }
    });
    pit.stop();
}

#[test]
fn a_dead_worker_is_replaced_while_nobody_calls() {
    let home = tempfile::tempdir().expect("a directory");
    let starts = home.path().join("starts");
    rustix::fs::mkfifoat(rustix::fs::CWD, &starts, rustix::fs::Mode::RWXU).expect("a FIFO");
    let script = home.path().join("worker.py");
    let source = format!(
        "import os, time, snakepit\n\n\n@snakepit.on_start\ndef say():\n    with open({starts:?}, 'w') as file:\n        \
         file.write(f'{{os.getpid()}}\\n')\n\n\n@snakepit.command\ndef die():\n    time.sleep(0.1)\n    os._exit(3)\n"
    );
    std::fs::write(&script, source).expect("a script");
    let (told, hears) = mpsc::channel();
    std::thread::spawn(move || {
        // Each worker opens the FIFO once. Opening it waits for the next one.
        while let Ok(mut file) = std::fs::File::open(&starts) {
            let mut pid = String::new();
            if file.read_to_string(&mut pid).is_err() || told.send(pid).is_err() {
                return;
            }
        }
    });
    let pit = start(&home, snakepit::python(PythonWorker::new(&script)).workers(1));
    let first = hears.recv_timeout(SOON).expect("the first worker starts");
    // The call takes long enough for the engine's thread to fall asleep.
    let error = pit.call::<()>("die", ()).expect_err("the worker exits");
    assert!(error.worker_died(), "{error}");
    let second = hears.recv_timeout(SOON).expect("another worker starts, although nobody waits");
    assert_ne!(first, second);
    pit.stop();
}

#[test]
fn a_call_with_options_keeps_its_deadline() {
    let home = tempfile::tempdir().expect("a directory");
    let pit = start(&home, worker("asynchronous.py").workers(1));
    let call = pit.engine().call::<f64>("sleep", (30.0,)).timeout(Duration::from_millis(50));
    let error = pit.wait(call).expect_err("it takes longer");
    assert!(error.is_timeout(), "{error}");
    drop(pit);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_beside_a_runtime_uses_the_engine_of_the_runtime() {
    let home = tempfile::tempdir().expect("a directory");
    let builder = Snakepit::builder().pool(worker("basic.py").workers(1)).custody(config(&home));
    let pit = builder.start().await.expect("an engine");
    let blocking = pit.blocking();
    let sum = tokio::task::spawn_blocking(move || add(&blocking, 20, 22)).await.expect("no panic");
    assert_eq!(sum.expect("an answer"), 42);
    pit.stop().await;
}
