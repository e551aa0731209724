//! The ready line, read by an adapter that uses only the public API: good and bad lines, in every tier, from scripts with
//! and without `exec`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, FutureExt};
use snakepit::adapter::ready_line::{self, Address, Announcement, Listens};
use snakepit::adapter::{Adapter, Handle, Introduction, Reason, Spawner};
use snakepit::call::Call;
use snakepit::custody::{Command, Containment, CustodyOptions, ExitStatus, WorkerProcess};
use snakepit::value::Encoded;
use snakepit::{EngineError, PoolOptions, Snakepit, StartError, args};

use crate::support::{self, Pit, chain, config, lines, runs, runs_in, soon, until};

/// A shell program whose worker answers each call with its announcement.
struct Announcing(String);

impl Adapter for Announcing {
    fn start_worker(&self, spawner: Spawner) -> BoxFuture<'_, Result<Arc<dyn Handle>, StartError>> {
        async move {
            let command = Command::new("bash").args(["-c", &self.0]);
            let announced = ready_line::start(&spawner, command, Listens::Somewhere).await?;
            let introduction = announced.announcement.introduction();
            let worker = Told { process: announced.process, said: announced.announcement, introduction };
            Ok(Arc::new(worker) as Arc<dyn Handle>)
        }
        .boxed()
    }
}

struct Told {
    process: WorkerProcess,
    said: Announcement,
    introduction: Introduction,
}

impl Handle for Told {
    fn process(&self) -> Option<&WorkerProcess> {
        Some(&self.process)
    }

    fn introduction(&self) -> &Introduction {
        &self.introduction
    }

    fn execute(self: Arc<Self>, call: Call) {
        let address = match &self.said.address {
            Some(Address::Port(port)) => format!("port {port}"),
            Some(Address::Socket(path)) => format!("socket {}", path.display()),
            None => "nowhere".into(),
        };
        let pids = (self.process.pid().as_raw(), self.said.pid.unwrap_or_default());
        call.finish(
            Encoded::encode(&(address, pids))
                .map_err(|error| snakepit::RemoteError::new("bad", error.to_string())),
        );
    }

    fn terminate(&self, _reason: Reason) -> BoxFuture<'_, ()> {
        futures_util::future::ready(()).boxed()
    }
}

fn pool(program: impl Into<String>) -> PoolOptions {
    PoolOptions::new("announcing", Announcing(program.into())).workers(1)
}

type Answer = (String, (i32, u32));

async fn ask(pit: &Pit) -> Answer {
    soon("the call", pit.call::<Answer>("who", args! {})).await.expect("an answer")
}

/// Returns why an engine with this worker does not start. Proves that the attempt leaves nothing behind.
async fn refused_by(pool: PoolOptions) -> EngineError {
    let home = tempfile::tempdir().expect("a directory");
    let started = soon("the start", Snakepit::builder().pool(pool).custody(config(&home)).start()).await;
    let error = started.expect_err("a start that fails");
    assert!(runs_in(home.path()).is_empty());
    error
}

async fn refused(program: &str) -> EngineError {
    refused_by(pool(program)).await
}

async fn fault(program: &str) -> String {
    match refused(program).await {
        EngineError::Start { source: StartError::Protocol { fault, .. }, .. } => fault.to_string(),
        error => panic!("{}", chain(&error)),
    }
}

const READY: &str = r#"echo "{\"status\":\"ready\",\"port\":4711,\"pid\":$$,\"commands\":[\"who\"]}""#;

#[tokio::test(flavor = "multi_thread")]
async fn lines_around_the_ready_line_are_logs() {
    let program = format!(
        "echo loading; echo '{{\"level\":\"info\",\"event\":\"warm\"}}'; echo half >&2; {READY}; printf 'serv'; echo ing; exec sleep 1000"
    );
    let pit = Pit::start(pool(program)).await;
    let (address, (started, announced)) = ask(&pit).await;
    assert_eq!((address.as_str(), started as u32), ("port 4711", announced));
    assert_eq!(pit.pools()[0].commands(), ["who"]);
    let worker = pit.pools()[0].workers()[0].id.clone();
    let shown = || {
        let output = pit.pools()[0].output(&worker).expect("its output");
        output.lines.into_iter().map(|line| line.text).collect::<Vec<_>>()
    };
    until("all lines are read", || shown().len() == 4).await;
    let mut shown = shown();
    shown.sort();
    assert_eq!(shown, ["half", "loading", "serving", r#"{"level":"info","event":"warm"}"#]);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_may_stand_for_the_port() {
    let program = r#"echo '{"status":"ready","socket":"/run/worker.sock"}'; exec sleep 1000"#;
    let pit = Pit::start(pool(program)).await;
    assert_eq!(ask(&pit).await.0, "socket /run/worker.sock");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_almost_ready_fails_at_once_and_says_why() {
    let began = Instant::now();
    for (line, said) in [
        (r#"{"status": "ready", "port": 1"#, "it is not JSON"),
        (r#"{"port": 1, "status": "ready",}"#, "it is not JSON"),
        (r#"{"state":"ready","port":1}"#, "it has no `status`"),
        (r#"{"status":"redy","port":1}"#, r#"its status is "redy", and must be "ready""#),
        (r#"{"status":"ready"}"#, "add `port` or `socket`"),
        (r#"{"status":"ready","port":"http"}"#, "its port is \"http\""),
        (r#"{"status":"ready","port":0}"#, "its port is 0"),
        (r#"{"status":"ready","port":65536}"#, "must be a number from 1 to 65535"),
        (r#"{"status":"ready","port":1,"socket":"/x"}"#, "both `port` and `socket`"),
    ] {
        let fault = fault(&format!("echo '{line}'; exec sleep 1000")).await;
        assert!(fault.contains(said) && fault.contains(line), "{line}: {fault}");
    }
    assert!(began.elapsed() < Duration::from_secs(30), "not before {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ready_line_with_the_pid_of_another_process_is_rejected() {
    let stranger = std::process::id();
    let line = format!(r#"{{"status":"ready","port":1,"pid":{stranger}}}"#);
    let fault = fault(&format!("echo '{line}'; exec sleep 1000")).await;
    assert!(fault.contains(&format!("the pid {stranger}, which is neither")), "{fault}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exit_before_ready_is_reported_with_status_and_last_lines() {
    let error = refused("echo loading; echo 'no such model' >&2; exit 3").await;
    let EngineError::Start { source: StartError::Exited { status, output, .. }, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(*status, ExitStatus::Code(3));
    assert!(output.contains(&"no such model".into()) && output.contains(&"loading".into()), "{output:?}");
    let fault = fault("exec sleep 1000 >&-").await;
    assert!(fault.contains("closed its standard output before it was ready"), "{fault}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_a_ready_line_is_ended_in_time() {
    let late = pool("echo loading; exec sleep 1000").worker_start_timeout(Duration::from_secs(1));
    let error = refused_by(late).await;
    let EngineError::Start { source: StartError::Timeout { output, .. }, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(output, &["loading"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrapper_that_execs_is_the_worker_in_every_tier() {
    let server = r#"import os,json,time; print(json.dumps({"status":"ready","port":1,"pid":os.getpid()}), flush=True); time.sleep(1000)"#;
    for containment in support::possible([Containment::Auto, Containment::Namespace, Containment::Group]) {
        let pool = pool(format!("exec python3 -c '{server}'"));
        let pit = Pit::build_with(
            Snakepit::builder().pool(pool),
            CustodyOptions::default().containment(containment),
        )
        .await;
        let (_, (started, announced)) = ask(&pit).await;
        let same = started as u32 == announced;
        assert_eq!(same, containment != Containment::Namespace, "{containment:?}: {started} and {announced}");
        assert_eq!(pit.pools()[0].workers()[0].pid.map(snakepit::custody::Pid::as_raw), Some(started));
        pit.end().await;
        assert!(!runs(started as u32));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrapper_that_forgets_exec_is_ended_whole_in_every_tier() {
    let server = r#"import os,json,time; print(json.dumps({"status":"ready","port":1,"pid":os.getpid()}), flush=True); time.sleep(1000)"#;
    for containment in support::possible([Containment::Auto, Containment::Namespace, Containment::Group]) {
        let pool = pool(format!("python3 -c '{server}'; echo never"));
        let pit = Pit::build_with(
            Snakepit::builder().pool(pool),
            CustodyOptions::default().containment(containment),
        )
        .await;
        let (_, (started, announced)) = ask(&pit).await;
        assert_ne!(started as u32, announced, "{containment:?}");
        // From our point of view: the only child of the wrapper.
        let children =
            std::fs::read_to_string(format!("/proc/{started}/task/{started}/children")).unwrap_or_default();
        let server: Option<u32> = children.split_whitespace().next().and_then(|pid| pid.parse().ok());
        if containment != Containment::Namespace {
            assert_eq!(server, Some(announced), "{containment:?}");
        }
        pit.end().await;
        assert!(!runs(started as u32) && !server.is_some_and(runs), "{containment:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_namespace_a_pid_of_the_host_is_rejected() {
    if !support::has_namespaces() {
        return;
    }
    let home = tempfile::tempdir().expect("a directory");
    let custody = config(&home).containment(Containment::Namespace);
    let program =
        format!(r#"echo '{{"status":"ready","port":1,"pid":{}}}'; exec sleep 1000"#, std::process::id());
    let started = Snakepit::builder().pool(pool(program)).custody(custody).start();
    let error = soon("the start", started).await.expect_err("a stranger");
    assert!(chain(&error).contains("which is neither"), "{}", chain(&error));
    assert!(runs_in(home.path()).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_and_endless_lines_before_ready_are_logs() {
    let program = format!(
        "yes | head -c 300000; printf '{{'; head -c 3000000 /dev/zero | tr '\\0' x; echo; {READY}; exec sleep 1000"
    );
    let pit = Pit::start(pool(program)).await;
    assert_eq!(ask(&pit).await.0, "port 4711");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ready_line_in_pieces_is_one_line() {
    let home = tempfile::tempdir().expect("a directory");
    let gate = home.path().join("gate").to_string_lossy().into_owned();
    let program = format!(
        r#"printf '{{"status":'; echo x > {gate}.1; until [ -e {gate}.2 ]; do :; done; echo '"ready","port":9}}'; exec sleep 1000"#
    );
    let opener = {
        let gate = gate.clone();
        async move {
            until("the first half is written", || !lines(&format!("{gate}.1")).is_empty()).await;
            std::fs::write(format!("{gate}.2"), "x").expect("written");
        }
    };
    let (pit, ()) = tokio::join!(Pit::start(pool(program)), opener);
    assert_eq!(ask(&pit).await.0, "port 9");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_waits_for_its_end_is_shown_when_the_time_is_over() {
    for (said, shown) in [
        (r#"{"status":"ready","port":1}"#, r#"{"status":"ready","port":1} (without the end of its line)"#),
        ("loading 10 %", "loading 10 %"),
    ] {
        let program = format!("printf '%s' '{said}'; exec sleep 1000");
        let late = pool(program).worker_start_timeout(Duration::from_secs(1));
        let error = refused_by(late).await;
        let EngineError::Start { source: StartError::Timeout { output, .. }, .. } = &error else {
            panic!("{error:?}")
        };
        assert_eq!(output, &[shown]);
    }
}
