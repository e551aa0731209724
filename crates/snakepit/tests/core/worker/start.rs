//! Workers that do not start: the error arrives at once, says why, and no process is left.
//!
//! About `crates/core/src/supervisor/worker_task.rs` and `crates/adapters/src/python/handle.rs`.

use std::time::{Duration, Instant};

use snakepit::adapter::ProtocolFault;
use snakepit::environment::Environment;
use snakepit::{EngineError, PoolOptions, Snakepit, StartError, Value, args};

use crate::support::{self, chain, config, python, raw, runs_in, soon, worker};

/// Returns why an engine with this pool does not start. Proves that the attempt leaves nothing behind.
async fn refused(pool: PoolOptions) -> EngineError {
    let home = tempfile::tempdir().expect("a directory");
    let started = soon("the start", Snakepit::builder().pool(pool).custody(config(&home)).start()).await;
    let error = started.expect_err("a start that fails");
    let left = runs_in(home.path());
    assert!(left.is_empty(), "runs are left: {left:?}");
    error
}

fn start_error(error: &EngineError) -> &StartError {
    match error {
        EngineError::Start { source, .. } => source,
        error => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_never_becomes_ready_is_killed_and_reported_with_its_last_lines() {
    let began = Instant::now();
    let error = refused(raw("never_ready").worker_start_timeout(Duration::from_secs(2))).await;
    assert!(began.elapsed() >= Duration::from_secs(2));
    let StartError::Timeout { output, .. } = start_error(&error) else { panic!("{error:?}") };
    assert_eq!(output, &["loading a very large model"]);
    assert!(chain(&error).contains("worker_start_timeout"), "{}", chain(&error));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_timeout_shorter_than_the_spawn_leaves_nothing() {
    for micros in [0, 1, 300, 1000, 3000, 10_000] {
        let error = refused(raw("never_ready").worker_start_timeout(Duration::from_micros(micros))).await;
        assert!(matches!(start_error(&error), StartError::Timeout { .. }), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exit_before_ready_fails_at_once_with_its_status() {
    let began = Instant::now();
    let error = refused(raw("exits_at_once")).await;
    println!("exit → error: {:?}", began.elapsed());
    let StartError::Exited { status, .. } = start_error(&error) else { panic!("{error:?}") };
    assert_eq!(*status, snakepit::custody::ExitStatus::Code(0));
    assert!(began.elapsed() < Duration::from_secs(10), "not before {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_before_ready_is_reported_with_signal_and_last_lines() {
    let error = refused(raw("dies_in_start")).await;
    let StartError::Exited { status, output, .. } = start_error(&error) else { panic!("{error:?}") };
    assert_eq!(*status, snakepit::custody::ExitStatus::Signal(9));
    assert_eq!(output, &["no memory for this"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_before_ready_is_a_fault() {
    let error = refused(raw("garbage_at_once")).await;
    let StartError::Protocol { fault, .. } = start_error(&error) else { panic!("{error:?}") };
    let ProtocolFault::BeforeReady(cause) = fault else { panic!("{fault:?}") };
    assert!(matches!(**cause, ProtocolFault::BadHeader(_)), "{fault:?}");
    assert!(fault.to_string().contains("version"), "{fault}");
    let error = refused(raw("another_protocol")).await;
    assert!(chain(&error).contains("protocol 2"), "{}", chain(&error));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_ready_frame_is_a_fault() {
    let home = tempfile::tempdir().expect("a directory");
    let pool = raw("ready_twice").queue_timeout(Duration::from_secs(1));
    // Both frames come together. Whether the first one still counts is a matter of luck, and either result is right.
    match Snakepit::builder().pool(pool).custody(config(&home)).start().await {
        Err(error) => assert!(chain(&error).contains("twice"), "{}", chain(&error)),
        Ok(pit) => {
            let error = soon("the call", pit.call::<Value>("any", args! {})).await.expect_err("a fault");
            assert!(chain(&error).contains("twice"), "{}", chain(&error));
            pit.stop().await;
        }
    }
    assert!(runs_in(home.path()).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_that_raises_on_import_shows_its_traceback() {
    let error = refused(worker("raises.py").workers(1)).await;
    let told = chain(&error);
    assert!(
        told.contains("ZeroDivisionError") && told.contains("raises.py") && told.contains("line 8, in never"),
        "{told}"
    );
    assert!(told.contains("1 / 0"), "{told}");
}

/// Returns a pool whose workers fail at these starts. The starts are counted from 1 in a file.
fn flaky(directory: &tempfile::TempDir, fails: &str) -> PoolOptions {
    let path = directory.path().join("flaky.py");
    let text = format!(
        "import os\nimport snakepit\n\npath = {:?}\nwith open(path, 'a') as file:\n    file.write('.')\n\
         starts = os.path.getsize(path)\nif {fails}:\n    raise RuntimeError('not at this start')\n\n\
         @snakepit.command\ndef echo(value):\n    return value\n",
        directory.path().join("starts").to_string_lossy()
    );
    std::fs::write(&path, text).expect("a file");
    // One after another, so that the count is right.
    snakepit::python(path).start_batch(1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_start_beside_successful_ones_is_repeated() {
    let directory = tempfile::tempdir().expect("a directory");
    let pit = support::Pit::start(flaky(&directory, "starts == 2").workers(3)).await;
    assert_eq!(pit.pools()[0].workers().len(), 3);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_is_given_up_when_the_pool_is_degraded() {
    let directory = tempfile::tempdir().expect("a directory");
    let began = Instant::now();
    let error = refused(flaky(&directory, "starts >= 2").workers(3)).await;
    assert!(chain(&error).contains("not at this start"), "{}", chain(&error));
    println!("given up after {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_in_which_no_worker_becomes_ready_fails_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let error = refused(flaky(&directory, "starts >= 1").workers(1)).await;
    assert!(chain(&error).contains("not at this start"), "{}", chain(&error));
    let starts = std::fs::metadata(directory.path().join("starts")).expect("a file").len();
    assert_eq!(starts, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_file_or_interpreter_is_named() {
    let told = chain(&refused(worker("nowhere.py")).await);
    assert!(told.contains("nowhere.py does not exist"), "{told}");
    let told = chain(&refused(snakepit::python(python("basic.py").interpreter("/no/such/python"))).await);
    assert!(told.contains("/no/such/python does not exist"), "{told}");
    let told = chain(&refused(snakepit::python(python("basic.py").interpreter("snakepit-no-python"))).await);
    assert!(told.contains("snakepit-no-python is not in PATH: install Python 3.9"), "{told}");
    let told = chain(&refused(snakepit::python(python("basic.py").interpreter("3.99"))).await);
    assert!(told.contains("if it is a version, write python = \"3.99\""), "{told}");
    for (version, too_old) in [("3.99", false), ("3.1.99", true), ("2.1", true)] {
        let environment = Environment::new().python(version);
        let told = chain(&refused(snakepit::python(python("basic.py").environment(environment))).await);
        assert!(told.contains(&format!("there is no Python {version} here")), "{told}");
        assert_eq!(told.ends_with("; workers with the SDK need 3.9 or later"), too_old, "{told}");
    }
    let told = chain(&refused(snakepit::python("no_such_module_at_all").workers(1)).await);
    assert!(told.contains("no_such_module_at_all"), "{told}");
    let told = chain(&refused(snakepit::command(["/no/such/program"]).workers(1)).await);
    assert!(told.contains("/no/such/program"), "{told}");
    let told = chain(&refused(snakepit::command(Vec::<String>::new()).name("none").workers(1)).await);
    assert!(told.contains("empty"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interpreter_that_is_no_python_fails_with_what_it_said() {
    let error = refused(snakepit::python(python("basic.py").interpreter("/bin/false")).workers(1)).await;
    assert!(matches!(start_error(&error), StartError::Exited { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_background_start_is_reported_to_waiting_calls() {
    let home = tempfile::tempdir().expect("a directory");
    let pool = worker("raises.py").workers(1).queue_timeout(Duration::from_secs(2));
    let pit = Snakepit::builder().pool(pool).custody(config(&home));
    let pit = pit.start_in_background().await.expect("an engine");
    let error = soon("the call", pit.call::<Value>("any", args! {})).await.expect_err("no worker");
    assert!(error.to_string().contains("ZeroDivisionError"), "{error}");
    let trouble = support::trouble(&pit.pools()[0]);
    assert!(trouble.is_some_and(|trouble| trouble.contains("ZeroDivisionError")));
    pit.stop().await;
    assert!(runs_in(home.path()).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_pools_are_checked() {
    let none = Snakepit::builder().start().await.expect_err("no pool");
    assert!(matches!(none, EngineError::NoPools));
    let twins = Snakepit::builder().pool(raw("serve")).pool(raw("serve")).start().await;
    assert!(matches!(twins, Err(EngineError::SameName(name)) if name == "raw"));
    let bad = Snakepit::builder().pool(raw("serve").name("a/b\nc")).start().await;
    assert!(matches!(bad, Err(EngineError::BadName { .. })), "{bad:?}");
}
