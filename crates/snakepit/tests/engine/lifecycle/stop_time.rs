//! A stop takes as long as `cleanup_on_stop` and `cleanup_on_stop_timeout_ms` allow, however the engine ends.
//!
//! Once calls are drained, all workers share that time from the goodbye to KILL, whatever the workers do. The workers
//! here ignore TERM and the goodbye.
//!
//! About `crates/engine/src/lifecycle/shutdown.rs` and `crates/core/src/worker/stop_window.rs`.

use std::time::{Duration, Instant};

use snakepit::adapter::Mock;
use snakepit::custody::CustodyOptions;
use snakepit::{CallError, PoolOptions, Snakepit, Value, args};

use crate::support::{Pit, lines, pids, python, runs, runs_in, soon, until, worker};

/// What a stop may take beyond the configured time, on a busy machine.
const SLACK: Duration = Duration::from_millis(700);

fn key(millis: u64) -> CustodyOptions {
    CustodyOptions::default().cleanup_on_stop_timeout_ms(millis)
}

fn without_cleanup() -> CustodyOptions {
    CustodyOptions::default().without_cleanup_on_stop().cleanup_on_stop_timeout_ms(20_000)
}

/// Returns workers that ignore TERM and never return from their stop hook.
fn deaf(workers: usize) -> PoolOptions {
    snakepit::python(python("deaf.py").env("DEAF", "1")).name("deaf").workers(workers)
}

/// Returns a worker that records what it receives, and lives on after TERM.
fn notes(path: &str) -> PoolOptions {
    snakepit::python(python("deaf.py").env("NOTES", path)).name("notes").workers(1)
}

#[cfg(any(feature = "stdio", feature = "http"))]
fn program(file: &str, words: &[&str]) -> Vec<String> {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workers").join(file);
    let words = words.iter().map(|word| (*word).to_owned());
    ["python3".to_owned(), file.to_string_lossy().into_owned()].into_iter().chain(words).collect()
}

async fn start(pools: impl IntoIterator<Item = PoolOptions>, custody: CustodyOptions) -> Pit {
    let builder = pools.into_iter().fold(Snakepit::builder(), snakepit::Builder::pool);
    Pit::build_with(builder, custody).await
}

/// Returns a file for notes that outlives the engine.
fn notebook() -> (tempfile::TempDir, String) {
    let home = tempfile::tempdir().expect("a directory");
    let path = home.path().join("notes").to_string_lossy().into_owned();
    (home, path)
}

/// Returns how long a stop without a drain takes. Nothing may be left after it.
async fn stop_of(pit: &Pit) -> Duration {
    let workers: Vec<u32> = pit.pools().iter().flat_map(pids).collect();
    let began = Instant::now();
    soon("the stop", pit.stop_within(Duration::ZERO)).await;
    let took = began.elapsed();
    assert!(workers.into_iter().all(|pid| !runs(pid)), "a worker outlives the stop");
    pit.prove_nothing_is_left();
    took
}

fn assert_takes(took: Duration, millis: u64) {
    let key = Duration::from_millis(millis);
    assert!(took >= key, "killed after {took:?} of {key:?}");
    assert!(took < key + SLACK, "it took {took:?}, and {key:?} are configured");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_ignores_term_is_killed_after_the_configured_time() {
    for millis in [300, 1000, 2500] {
        let pit = start([deaf(1)], key(millis)).await;
        assert_takes(stop_of(&pit).await, millis);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_cleanup_timeout_is_three_seconds() {
    let pit = start([deaf(1)], CustodyOptions::default()).await;
    assert_takes(stop_of(&pit).await, 3000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_ignores_term_in_a_call_gets_the_drain_and_then_the_configured_time() {
    let (_home, path) = notebook();
    let pit = start([deaf(1)], key(500)).await;
    let call = tokio::spawn(pit.call::<Value>("hang", args! { path: path.as_str() }).into_future());
    until("it is under way", || !lines(&path).is_empty()).await;
    let began = Instant::now();
    soon("the stop", pit.stop_within(Duration::from_millis(400))).await;
    assert_takes(began.elapsed(), 400 + 500);
    let error = soon("the call", call).await.expect("no panic").expect_err("cut short");
    assert!(matches!(error, CallError::WorkerDied { .. }), "{error}");
    pit.prove_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_workers_that_ignore_term_in_two_pools_take_as_long_as_one() {
    let pit = start([deaf(5), deaf(3).name("deaf-too")], key(800)).await;
    assert_takes(stop_of(&pit).await, 800);
}

#[test]
fn workers_that_ignore_term_end_together_even_on_a_runtime_with_one_thread() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let pit = start([deaf(4)], key(500)).await;
        assert_takes(stop_of(&pit).await, 500);
    });
}

#[cfg(feature = "stdio")]
#[tokio::test(flavor = "multi_thread")]
async fn a_stdio_worker_that_ignores_term_is_killed_after_the_configured_time() {
    for millis in [300, 1200] {
        let pit = start([snakepit::stdio(program("lines.py", &["deaf"])).workers(2)], key(millis)).await;
        assert_takes(stop_of(&pit).await, millis);
    }
}

#[cfg(feature = "http")]
#[tokio::test(flavor = "multi_thread")]
async fn an_http_worker_that_ignores_term_is_killed_after_the_configured_time() {
    for millis in [300, 1200] {
        let pit = start([snakepit::http(program("http_server.py", &["deaf"])).workers(2)], key(millis)).await;
        assert_takes(stop_of(&pit).await, millis);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mock_ends_at_once_and_does_not_change_the_time_of_a_process() {
    let mock = || snakepit::mock(Mock::new().command("wait", |_| std::future::pending())).workers(2);
    let pit = start([mock(), deaf(1)], key(600)).await;
    let call = tokio::spawn(pit.call::<Value>("wait", args! {}).into_future());
    until("it is under way", || pit.pools()[0].in_flight() == 1).await;
    assert_takes(stop_of(&pit).await, 600);
    assert!(soon("the call", call).await.expect("no panic").is_err());
    let pit = start([mock()], key(20_000)).await;
    let took = stop_of(&pit).await;
    assert!(took < SLACK, "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_exits_when_asked_finishes_its_hook_and_ends_the_stop_at_once() {
    let (_home, path) = notebook();
    let pit = start([worker("basic.py").workers(2), notes(&path)], key(20_000)).await;
    let took = stop_of(&pit).await;
    assert!(took < SLACK * 2, "{took:?}");
    // TERM would have left a line.
    assert_eq!(lines(&path), ["goodbye", "done"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_hook_may_take_half_of_the_configured_time_before_term() {
    let (_home, path) = notebook();
    let slow = |pause: &str| {
        let worker = python("deaf.py").env("NOTES", &path).env("PAUSE", pause);
        snakepit::python(worker).name("slow").workers(1)
    };
    let pit = start([slow("0.5")], key(4000)).await;
    let took = stop_of(&pit).await;
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(lines(&path), ["goodbye", "done"]);
    std::fs::write(&path, "").expect("an empty file");
    // Once, although two parts of the stop would send it: its own end, and the barrier over all.
    let pit = start([slow("1000")], key(800)).await;
    assert_takes(stop_of(&pit).await, 800);
    assert_eq!(lines(&path), ["goodbye", "term"]);
}

#[cfg(feature = "http")]
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_cannot_be_asked_to_exit_gets_term_once_and_then_all_of_the_time() {
    let (_home, path) = notebook();
    let pit =
        start([snakepit::http(program("http_server.py", &["notes", &path])).workers(1)], key(1000)).await;
    let stop = tokio::spawn({
        let pit = (*pit).clone();
        async move { pit.stop_within(Duration::ZERO).await }
    });
    let began = Instant::now();
    until("it hears TERM", || !lines(&path).is_empty()).await;
    assert!(began.elapsed() < Duration::from_millis(450), "TERM came after {:?}", began.elapsed());
    soon("the stop", stop).await.expect("no panic");
    assert_takes(began.elapsed() + Duration::from_millis(50), 1000);
    assert_eq!(lines(&path), ["term"]);
    pit.prove_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_cleanup_on_stop_workers_are_killed_at_once() {
    let (_home, path) = notebook();
    let pit = start([deaf(2), deaf(2).name("deaf-too")], without_cleanup()).await;
    let took = stop_of(&pit).await;
    assert!(took < SLACK, "{took:?}");
    let pit = start([notes(&path)], without_cleanup()).await;
    let took = stop_of(&pit).await;
    assert!(took < SLACK, "{took:?}");
    assert!(!lines(&path).contains(&"term".to_owned()), "{:?}", lines(&path));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_cleanup_on_stop_calls_are_drained_all_the_same() {
    let pit = start([worker("hostile.py").workers(1)], without_cleanup()).await;
    let call = tokio::spawn(pit.call::<f64>("sleep", args! { seconds: 0.5 }).into_future());
    until("it is under way", || pit.pools()[0].in_flight() == 1).await;
    soon("the stop", pit.stop()).await;
    assert!(soon("the call", call).await.expect("no panic").is_ok(), "it could finish");
    pit.prove_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cleanup_timeout_of_zero_kills_at_once() {
    let pit = start([deaf(2)], key(0)).await;
    let took = stop_of(&pit).await;
    assert!(took < SLACK, "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_replaces_the_time_limits_of_a_leaving_worker() {
    let pit = start([deaf(2)], key(500)).await;
    let pool = pit.pools()[0].clone();
    let workers = pids(&pool);
    // With its own settings, it would have 3 s for the goodbye, and 3 s from TERM to KILL.
    pool.scale(1);
    until("one leaves", || pool.workers().len() == 1).await;
    assert!(workers.iter().all(|pid| runs(*pid)));
    assert_takes(stop_of(&pit).await, 500);
    assert!(workers.iter().all(|pid| !runs(*pid)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_the_host_started_in_the_run_gets_the_configured_time() {
    let pit = start([worker("basic.py").workers(1)], key(800)).await;
    let run = pit.run().expect("a run");
    let script = "import signal, time; signal.signal(15, 1); print(1, flush=True); time.sleep(1000)";
    let (mut said, output) = std::io::pipe().expect("a pipe");
    let command = snakepit::custody::Command::new("python3")
        .arg("-c")
        .arg(script)
        .stdout(std::os::fd::OwnedFd::from(output));
    let process = run.spawn(command).expect("a process");
    std::io::Read::read_exact(&mut said, &mut [0; 1]).expect("it is ready");
    assert_takes(stop_of(&pit).await, 800);
    assert!(process.try_wait().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_of_the_run_without_grace_cuts_the_time_short() {
    let pit = start([deaf(2)], key(20_000)).await;
    let stop = tokio::spawn({
        let pit = (*pit).clone();
        async move { pit.stop_within(Duration::ZERO).await }
    });
    soon("its beginning", pit.stopping()).await;
    let run = pit.run().expect("a run").clone();
    let began = Instant::now();
    let killed = tokio::task::spawn_blocking(move || run.stop_within(Duration::ZERO));
    assert!(soon("the kill", killed).await.expect("no panic").is_clean());
    soon("the stop", stop).await.expect("no panic");
    assert!(began.elapsed() < SLACK, "{:?}", began.elapsed());
    pit.prove_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manual_cleanup_uses_the_configured_time() {
    for (custody, takes) in [(key(300), Some(300)), (key(1200), Some(1200)), (without_cleanup(), None)] {
        let pit = start([deaf(2), deaf(1).name("deaf-too")], custody).await;
        let began = Instant::now();
        let stopped = tokio::task::spawn_blocking(Snakepit::cleanup).await.expect("no panic");
        let took = began.elapsed();
        match takes {
            Some(millis) => assert_takes(took, millis),
            None => assert!(took < SLACK, "{took:?}"),
        }
        assert!(stopped.iter().all(|run| run.report.is_clean()), "{stopped:?}");
        assert_eq!(stopped.iter().map(|run| run.report.killed).sum::<usize>(), 3, "{stopped:?}");
        pit.prove_nothing_is_left();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manual_cleanup_gives_each_engine_its_own_time() {
    let short = start([deaf(1)], key(200)).await;
    let long = start([deaf(1)], key(1200)).await;
    let (first, second) = (pids(&short.pools()[0])[0], pids(&long.pools()[0])[0]);
    let began = Instant::now();
    let cleanup = tokio::task::spawn_blocking(Snakepit::cleanup);
    until("the first is killed", || !runs(first)).await;
    assert_takes(began.elapsed(), 200);
    assert!(runs(second), "killed before its time");
    assert_eq!(soon("the cleanup", cleanup).await.expect("no panic").len(), 2);
    assert_takes(began.elapsed(), 1200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_drop_of_the_last_handle_uses_the_configured_time() {
    let pit = start([deaf(2)], key(600)).await;
    let workers = pids(&pit.pools()[0]);
    let began = Instant::now();
    let home = pit.abandon();
    until("they are gone", || runs_in(home.path()).is_empty()).await;
    assert_takes(began.elapsed(), 600);
    assert!(workers.into_iter().all(|pid| !runs(pid)));
}

#[test]
fn a_runtime_that_is_dropped_and_one_of_a_single_thread_use_the_configured_time() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (dropped, driven) = (runtime(), runtime());
    let pit = dropped.block_on(start([deaf(2)], key(600)));
    let began = Instant::now();
    drop(dropped);
    assert_takes(began.elapsed(), 600);
    pit.prove_nothing_is_left();

    let pit = driven.block_on(start([deaf(2)], key(600)));
    let began = Instant::now();
    let home = pit.abandon();
    driven.block_on(until("they are gone", || runs_in(home.path()).is_empty()));
    assert_takes(began.elapsed(), 600);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_uses_the_configured_time() {
    let home = tempfile::tempdir().expect("a directory");
    for (custody, takes) in [(key(400), Some(400)), (without_cleanup(), None)] {
        let custody = custody.state_dir(home.path());
        let builder = Snakepit::builder().pool(deaf(2)).custody(custody);
        let script =
            snakepit::script(builder).without_signals().run(async |_| Ok::<_, CallError>(Instant::now()));
        let ended = Box::pin(soon("the script", script)).await.expect("a script");
        match takes {
            Some(millis) => assert_takes(ended.elapsed(), millis),
            None => assert!(ended.elapsed() < SLACK, "{:?}", ended.elapsed()),
        }
        assert!(runs_in(home.path()).is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn process_group_kill_affects_only_term() {
    for group in [true, false] {
        let (_home, path) = notebook();
        let custody = if group { key(1000) } else { key(1000).without_process_group_kill() };
        let pit = start([deaf(1)], custody).await;
        let child: u32 = pit.call("child", args! { path: path.as_str() }).await.expect("a child");
        assert!(runs(child));
        assert_takes(stop_of(&pit).await, 1000);
        assert!(!runs(child), "KILL covers everything");
        let heard: &[&str] = if group { &["child heard"] } else { &[] };
        assert_eq!(lines(&path), heard, "process_group_kill = {group}");
    }
}

#[cfg(feature = "config")]
#[tokio::test(flavor = "multi_thread")]
async fn a_file_says_how_long_a_stop_takes() {
    let home = tempfile::tempdir().expect("a directory");
    let file = python("deaf.py").file().expect("a file");
    for (keys, takes) in [
        ("cleanup_on_stop_timeout_ms = 400", Some(400)),
        ("cleanup_on_stop_timeout_ms = 1500", Some(1500)),
        ("cleanup_on_stop = false\ncleanup_on_stop_timeout_ms = 20000", None),
    ] {
        let text = format!(
            "[pool.deaf]\nworker = {file:?}\nworkers = 2\nenv = {{ DEAF = \"1\" }}\n\n[custody]\nstate_dir = {:?}\n{keys}\n",
            home.path()
        );
        let config = snakepit::Config::parse(&text, home.path().join("snakepit.toml"));
        let pit = config.expect("a configuration").builder().start().await.expect("an engine");
        let began = Instant::now();
        soon("the stop", pit.stop()).await;
        match takes {
            Some(millis) => assert_takes(began.elapsed(), millis),
            None => assert!(began.elapsed() < SLACK, "{:?}", began.elapsed()),
        }
        assert!(runs_in(home.path()).is_empty());
    }
}
