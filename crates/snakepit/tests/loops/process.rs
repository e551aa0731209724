//! A service as a separate process: the example `loops`, which works until a signal ends it.
//!
//! About `crates/loops/src/loop_control/signals.rs`, `crates/loops/src/health/watchdog.rs` and
//! `crates/engine/src/lifecycle/coordinator.rs`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use snakepit::lifecycle::{ShutdownCoordinator, Stage};
use snakepit::loops::{
    HandlerFailure, IfStuck, LoopGroup, MainLoop, RunOptions, Runnable, SHUTDOWN_TIMEOUT, Watchdog,
};
use snakepit::mailbox::{Mailbox, SendOptions, SqliteMailbox, TypedMessage};
use tempfile::TempDir;

use crate::support::{SOON, runs_in, signal};

fn example() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let path = test.ancestors().nth(2).expect("deps/ is in the build's directory").join("examples/loops");
    assert!(path.exists(), "{} is not built: cargo build -p snakepit --examples", path.display());
    path
}

/// A process that is killed if the test fails before its end.
struct Service {
    process: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    dir: TempDir,
}

impl Service {
    #[expect(clippy::disallowed_methods, reason = "the service is a host of its own")]
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut process = Command::new(example())
            .arg(dir.path().join("mail.db"))
            .env("SNAKEPIT_STATE_DIR", dir.path().join("state"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let stdout = process.stdout.take().expect("a pipe");
        let mut service = Self { process, lines: BufReader::new(stdout).lines(), dir };
        service.says("works");
        service
    }

    fn says(&mut self, word: &str) {
        let line = self.lines.find(|line| line.as_ref().is_ok_and(|line| line.contains(word)));
        assert!(line.is_some(), "it ended without saying {word}");
    }

    fn mailbox(&self, queue: &str) -> Arc<dyn Mailbox> {
        Arc::new(SqliteMailbox::open_named(self.dir.path().join("mail.db"), queue).expect("opened"))
    }

    fn signal(&self, which: Signal) {
        signal(self.process.id(), which);
    }

    fn status(&mut self) -> i32 {
        // The end of its output is the event; the output has no other writer.
        for line in self.lines.by_ref() {
            drop(line);
        }
        self.process.wait().expect("waited").code().unwrap_or(-1)
    }

    fn runs(&self) -> Vec<String> {
        runs_in(Path::new(&self.dir.path().join("state")))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn until_in_flight(mailbox: &Arc<dyn Mailbox>, wanted: u64) {
    let deadline = tokio::time::Instant::now() + SOON;
    while mailbox.count().await.expect("counted").in_flight != wanted {
        assert!(tokio::time::Instant::now() < deadline, "not {wanted} in flight");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn nap(mailbox: &Arc<dyn Mailbox>, seconds: f64) {
    let body = json!({ "seconds": seconds }).to_string().into_bytes();
    mailbox.send(body, SendOptions::new().reply_to("replies")).await.expect("sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_an_idle_service_with_0() {
    let mut service = Service::start();
    service.signal(Signal::TERM);
    assert_eq!(service.status(), 0);
    assert!(service.runs().is_empty(), "{:?}", service.runs());
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_lets_what_is_in_flight_complete_and_ends_with_0() {
    let mut service = Service::start();
    let (requests, replies) = (service.mailbox("requests"), service.mailbox("replies"));
    nap(&requests, 1.0).await;
    until_in_flight(&requests, 1).await;
    service.signal(Signal::TERM);
    assert_eq!(service.status(), 0);
    assert_eq!(requests.count().await.expect("counted"), snakepit::mailbox::MessageCounts::default());
    assert_eq!(replies.count().await.expect("counted").visible, 1);
    assert!(service.runs().is_empty(), "{:?}", service.runs());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_sigterm_cancels_what_is_in_flight_gives_it_back_and_ends_with_143() {
    let mut service = Service::start();
    let requests = service.mailbox("requests");
    nap(&requests, 600.0).await;
    until_in_flight(&requests, 1).await;
    service.signal(Signal::TERM);
    service.says("draining");
    service.signal(Signal::TERM);
    assert_eq!(service.status(), 128 + 15);
    assert_eq!(requests.count().await.expect("counted").visible, 1);
    assert!(service.runs().is_empty(), "{:?}", service.runs());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_killed_in_the_middle_loses_nothing() {
    let mut service = Service::start();
    let requests = service.mailbox("requests");
    nap(&requests, 600.0).await;
    until_in_flight(&requests, 1).await;
    service.signal(Signal::KILL);
    assert_eq!(service.status(), -1);
    let count = requests.count().await.expect("counted");
    assert_eq!(count.visible + count.in_flight, 1, "{count:?}");
}

/// Set in the process that the test below starts.
const CHILD: &str = "SNAKEPIT_TEST_BLOCKED_HOST";

#[tokio::test]
#[ignore = "a process of its own, started by the test below"]
async fn a_host_whose_only_thread_is_blocked() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let mailbox = Arc::new(snakepit::mailbox::MemoryMailbox::new("main"));
    mailbox.send(b"1".to_vec(), SendOptions::new()).await.expect("sent");
    let main = MainLoop::new("blocked", mailbox, |_: TypedMessage<i64>| async {
        while std::env::var_os(CHILD).is_some() {
            std::thread::park();
        }
        Ok::<(), HandlerFailure>(())
    });
    let then = IfStuck::RestartThenExit { status: 70, grace: Duration::from_millis(200) };
    let watchdog = Watchdog::new().message_limit(Duration::from_millis(100)).then(then);
    let group = LoopGroup::new("group").with(Arc::new(main)).watchdog(watchdog);
    let _ = group.run(RunOptions::new()).await;
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the host is a process of its own")]
fn a_process_whose_runtime_is_blocked_is_ended_by_the_watchdog() {
    let test = std::env::current_exe().expect("a test has a path");
    let ended = Command::new(test)
        .args(["--exact", "process::a_host_whose_only_thread_is_blocked", "--ignored"])
        .env(CHILD, "1")
        .stdout(Stdio::null())
        .status()
        .expect("it starts");
    assert_eq!(ended.code(), Some(70));
}

/// Set in the process that the test below starts.
const ONE_LOOP: &str = "SNAKEPIT_TEST_ONE_LOOP";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a process of its own, started by the test below"]
async fn a_host_of_one_loop() {
    if std::env::var_os(ONE_LOOP).is_none() {
        return;
    }
    let mailbox = Arc::new(snakepit::mailbox::MemoryMailbox::new("main"));
    mailbox.send(b"1".to_vec(), SendOptions::new()).await.expect("sent");
    let handler = |_: TypedMessage<i64>| async {
        println!("\nhandling");
        std::future::pending::<Result<(), HandlerFailure>>().await
    };
    let main = Arc::new(MainLoop::new("main", mailbox.clone(), handler));
    let coordinator = ShutdownCoordinator::install().expect("installed");
    snakepit::loops::register_loop(&coordinator, main.clone(), SHUTDOWN_TIMEOUT);
    tokio::spawn(async move {
        coordinator.reached(Stage::Draining { signal: None }).await;
        println!("\ndraining");
    });
    main.run(RunOptions::new()).await.expect("no error");
    println!("\n{} given back", mailbox.count().await.expect("counted").visible);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the host is a process of its own")]
fn a_coordinator_with_one_loop_answers_the_second_signal() {
    let test = std::env::current_exe().expect("a test has a path");
    let mut process = Command::new(test)
        .args(["--exact", "process::a_host_of_one_loop", "--ignored", "--nocapture"])
        .env(ONE_LOOP, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
    let mut service = Service { process, lines, dir: tempfile::tempdir().expect("a directory") };
    service.says("handling");
    service.signal(Signal::TERM);
    service.says("draining");
    service.signal(Signal::TERM);
    service.says("1 given back");
    assert_eq!(service.status(), 0);
}
