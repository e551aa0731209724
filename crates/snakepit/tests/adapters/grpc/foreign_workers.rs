//! Faulty workers, and workers written from spec/snakepit.proto alone.
//!
//! About `crates/adapters/src/grpc/handle.rs`, `crates/adapters/src/grpc/codec.rs` and
//! `crates/adapters/src/grpc/channel.rs`.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use futures_util::StreamExt;
use snakepit::adapter::{GrpcWorker, PythonWorker};
use snakepit::call::RemoteErrorKind;
use snakepit::policy::{Stuck, WhenStuck};
use snakepit::pool::CancelGrace;
use snakepit::{CallError, PoolOptions, Snakepit, Value, args};

use super::{file, python};
use crate::support::{Pit, SOON, chain, config, lines, pids, runs, runs_in, soon, until};

/// Returns the output of a Python script, in a process outside any pool.
#[expect(clippy::disallowed_methods, reason = "it is over when this returns")]
fn printed(python: &Path, script: &str, arg: &OsStr) -> String {
    let asked = Command::new(python).args(["-c", script]).arg(arg).output().expect("python");
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    String::from_utf8_lossy(&asked.stdout).trim().to_owned()
}

/// Asks gRPC's health service directly, as any process could that may enter the directory.
pub(super) fn check_health(python: &Path, socket: &Path) -> String {
    let script = r#"
import sys, grpc
channel = grpc.insecure_channel("unix:" + sys.argv[1])
answer = channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=20)
print(answer[1])
"#;
    printed(python, script, socket.as_os_str())
}

/// Returns the first answer of the health service to a watching client, and its answer about a service that does not
/// exist.
pub(super) fn watch_health(python: &Path, socket: &Path) -> String {
    let script = r#"
import sys, grpc
channel = grpc.insecure_channel("unix:" + sys.argv[1])
watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=20)
print(next(watch)[1])
watch.cancel()
try:
    channel.unary_unary("/grpc.health.v1.Health/Check")(b"\n\x05other", timeout=20)
except grpc.RpcError as error:
    print(error.code().name)
"#;
    printed(python, script, socket.as_os_str())
}

/// Returns the error of a pool whose workers do not start.
async fn does_not_start(pool: PoolOptions) -> String {
    let home = tempfile::tempdir().expect("a directory");
    let pool = pool.workers(1);
    let started = soon("a start", Snakepit::builder().pool(pool).custody(config(&home)).start()).await;
    let Err(error) = started else { panic!("it starts") };
    assert!(runs_in(home.path()).is_empty());
    chain(&error)
}

fn stranger() -> GrpcWorker {
    let stranger = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/grpc/stranger.py");
    GrpcWorker::command([python(), stranger])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_third_party_worker_is_called_in_json() {
    for worker in [stranger(), stranger().tcp()] {
        let pit = Pit::start(snakepit::grpc(worker).workers(1)).await;
        let greeting: String = pit.call("greet", args! { name: "Ada" }).await.expect("a greeting");
        assert_eq!(greeting, "Hello, Ada, from a stranger!");
        let rows: Value = serde_json::from_str(r#"[{"price": 1}, {"price": 2.5}]"#).expect("rows");
        let total: f64 = pit.call("total", args! { rows: rows }).await.expect("a total");
        assert!((total - 3.5).abs() < f64::EPSILON);
        let error = pit.call::<Value>("total", args! { rows: 3 }).await.expect_err("no rows");
        assert_eq!(error.remote().expect("remote").type_name.as_deref(), Some("TypeError"));
        let error = pit.call::<Value>("none", args! {}).await.expect_err("no such command");
        assert_eq!(error.remote().expect("remote").kind, RemoteErrorKind::UnknownCommand);
        let error = pit.call::<Value>("greet", args! { name: Value::Bytes(vec![1].into()) }).await;
        let error = chain(&error.expect_err("bytes are no JSON"));
        assert!(error.contains("name: a byte string has no form in JSON"), "{error}");
        let health: Value = pit.call("snakepit.health", args! {}).await.expect("well");
        assert_eq!(health, Value::Nil);
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_integers_are_floats_gets_no_integer_beyond_their_precision() {
    let pit = Pit::start(plain("floats")).await;
    let echoed: Value = pit.call("echo", args! { n: (1i64 << 53) - 1 }).await.expect("an echo");
    assert_eq!(echoed.get("n"), Some(&Value::from((1i64 << 53) - 1)));
    let error = chain(&pit.call::<Value>("echo", args! { n: 1i64 << 53 }).await.expect_err("too large"));
    assert!(error.contains("n: this worker reads integers up to 2^53"), "{error}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_would_cost_far_more_than_its_length_fails_its_call_alone() {
    let pit = Pit::start(plain("well")).await;
    let before = peak();
    let error = chain(&pit.call::<Value>("telemetry", args! {}).await.expect_err("40 MB of empty reports"));
    assert!(error.contains("more than 10,000 reports of telemetry"), "{error}");
    let more = peak() - before;
    assert!(more < 200 << 10, "{more} KiB more for a reply of 40 MB");
    let echoed: Value = pit.call("echo", args! { n: 1 }).await.expect("an echo");
    assert_eq!(echoed.get("n"), Some(&Value::from(1)));
    pit.end().await;
}

/// Returns the highest memory use of this process so far, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its peak");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Returns a worker that uses nothing of the SDK but the messages.
fn plain(how: &str) -> PoolOptions {
    snakepit::grpc(GrpcWorker::command([python(), file("grpc_stranger.py"), how.into()])).workers(1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_third_party_worker_that_hangs_after_a_timeout_is_replaced() {
    let short = Duration::from_millis(200);
    let grace = CancelGrace::each(short);
    let pit = Pit::start(plain("one").cancel_grace(grace)).await;
    let (path, before) = (pit.file("begun"), pids(&pit.pools()[0]));
    let call = pit.call::<Value>("hang", args! { path: &path }).timeout(Duration::from_millis(500));
    let error = soon("the call", call).await.expect_err("too late");
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    let after = soon("the next", pit.call::<u32>("pid", args! {})).await.expect("another worker");
    assert_ne!(before, [after]);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_third_party_worker_that_hangs_is_replaced_if_the_policy_says_so() {
    let stuck = Stuck::default().after(Duration::from_secs(1)).then(WhenStuck::Replace);
    let pit = Pit::start(plain("one").stuck(stuck)).await;
    let path = pit.file("begun");
    let error =
        soon("the call", pit.call::<Value>("hang", args! { path: &path })).await.expect_err("replaced");
    assert!(error.to_string().contains("no sign of life"), "{error}");
    soon("the next", pit.call::<u32>("pid", args! {})).await.expect("another worker");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deadlines_and_cancels_use_the_mechanisms_of_grpc() {
    let patient = CancelGrace::default().ask(SOON);
    let pit = Pit::start(plain("well").cancel_grace(patient)).await;
    let worker = pit.pools()[0].workers()[0].id.clone();
    let left: f64 = pit.call("remaining", args! {}).timeout(Duration::from_secs(100)).await.expect("a time");
    assert!((50.0..=100.0).contains(&left), "{left}");
    let path = pit.file("late");
    let call = pit.call::<Value>("wait", args! { path: &path }).timeout(Duration::from_millis(300));
    let error = soon("the end of its time", call).await.expect_err("too late");
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    until("it sees the end of its time", || lines(&path) == ["started", "cancelled"]).await;
    let path = pit.file("dropped");
    let call = tokio::spawn(pit.call::<Value>("wait", args! { path: &path }).into_future());
    until("it has begun", || lines(&path) == ["started"]).await;
    call.abort();
    until("it sees the cancel", || lines(&path) == ["started", "cancelled"]).await;
    let path = pit.file("stream");
    let args = args! { n: 1_000_000, size: 1000, path: &path };
    let mut stream = pit.stream::<(u32, String)>("count", args).credit(4).open().expect("a stream");
    for number in 0..10 {
        let item = soon("an item", stream.next()).await.expect("an item").expect("an item");
        assert_eq!(item.0, number);
    }
    drop(stream);
    until("it sees that nobody reads", || lines(&path).iter().any(|line| line == "over")).await;
    let echoed: Value = soon("a call", pit.call("echo", args! { a: 1 })).await.expect("it serves on");
    assert_eq!(echoed["a"].as_i64(), Some(1));
    assert_eq!(pit.pools()[0].workers()[0].id, worker, "nobody had to die for it");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_answer_fails_only_its_call() {
    let pit = Pit::start(plain("well")).await;
    let worker = pit.pools()[0].workers()[0].id.clone();
    for (code, kind) in [
        ("INVALID_ARGUMENT", "bad_argument"),
        ("NOT_FOUND", "unknown_command"),
        ("UNIMPLEMENTED", "refused"),
        ("UNAVAILABLE", "exception"),
        ("INTERNAL", "exception"),
        ("CANCELLED", "cancelled"),
        ("DEADLINE_EXCEEDED", "deadline"),
    ] {
        let error = soon(code, pit.call::<Value>("status", args! { code: code })).await.expect_err(code);
        let remote = error.remote().unwrap_or_else(|| panic!("{code}: {error}"));
        assert_eq!((remote.kind.as_str(), remote.message.as_str()), (kind, "in gRPC's own way"), "{code}");
    }
    for (command, said) in [
        ("empty", "neither a value nor an error"),
        ("no_json", "cannot be read"),
        ("no_encoding", "its encoding 9 is unknown"),
    ] {
        let error = soon(command, pit.call::<Value>(command, args! {})).await.expect_err(command);
        assert!(error.to_string().contains(said), "{command}: {error}");
    }
    let path = pit.file("stream");
    let stream = pit.stream::<Value>("count", args! { n: 5, fails_at: 2, path: &path }).open();
    let items = soon("the stream", stream.expect("a stream").collect::<Vec<_>>()).await;
    let error = items.last().and_then(|item| item.as_ref().err()).expect("an error");
    assert!(items.len() == 3 && error.to_string().contains("no more"), "{items:?}");
    assert_eq!(pit.pools()[0].workers()[0].id, worker, "nobody had to die for it");
    pit.end().await;
    let pit = Pit::start(plain("garbage")).await;
    let error = soon("a call", pit.call::<Value>("echo", args! {})).await.expect_err("no message");
    assert!(error.remote().is_some(), "{error}");
    let path = pit.file("stream");
    let stream = pit.stream::<Value>("count", args! { n: 5, path: &path }).open().expect("a stream");
    let items = soon("the stream", stream.collect::<Vec<_>>()).await;
    assert!(matches!(items.as_slice(), [Err(_)]), "{items:?}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_no_longer_serves_is_replaced() {
    let pit = Pit::start(plain("well")).await;
    let before = pids(&pit.pools()[0]);
    let answer = soon("a call", pit.call::<Value>("stop_serving", args! {})).await;
    assert!(answer.is_err(), "{answer:?}");
    let served = async {
        // The next call may be on its way when the connection breaks.
        while pit.call::<Value>("echo", args! { a: 1 }).await.is_err() {}
    };
    soon("another one serves", served).await;
    assert_ne!(pids(&pit.pools()[0]), before);
    until("it is gone", || !runs(before[0])).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unsupported_protocol_version_is_reported() {
    for (how, said) in [
        ("newer", "it speaks protocol 2, and this engine speaks 1"),
        ("refuses", "it does not answer Hello: FailedPrecondition: I do not serve protocol 1"),
        ("encoding", "the encoding 7, which is unknown"),
        ("nothing", "does not know snakepit.v1.Worker/Hello"),
    ] {
        let error = does_not_start(plain(how)).await;
        assert!(error.contains(said), "{how}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_no_grpc_server_is_reported_and_ended() {
    for (mode, said) in [
        ("garbage", "before it was ready"),
        ("http", "before it was ready"),
        ("closes", "before it was ready"),
    ] {
        let worker = GrpcWorker::command([python(), file("grpc_odd.py"), mode.into()]);
        let error = does_not_start(snakepit::grpc(worker)).await;
        assert!(error.contains(said), "{mode}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_the_secret_is_refused() {
    let ours = GrpcWorker::python(PythonWorker::new(file("over_grpc.py")).interpreter(python()));
    for worker in [ours, stranger()] {
        let pit = Pit::start(snakepit::grpc(worker.tcp()).workers(1)).await;
        let pid = pids(&pit.pools()[0])[0];
        assert_eq!(without_the_secret(pid), "UNAUTHENTICATED\nUNAUTHENTICATED");
        assert_eq!(pids(&pit.pools()[0]), [pid]);
        pit.end().await;
    }
}

/// Returns what the worker with this pid, which listens on a port, answers to calls without its secret and with a wrong
/// one.
fn without_the_secret(pid: u32) -> String {
    let script = r#"
import os, sys, grpc
listening = {}
for table in ("/proc/net/tcp", "/proc/net/tcp6"):
    for entry in open(table).readlines()[1:]:
        fields = entry.split()
        if fields[3] == "0A":
            listening[f"socket:[{fields[9]}]"] = int(fields[1].split(":")[1], 16)
fds = f"/proc/{sys.argv[1]}/fd"
port = next(listening[link] for link in (os.readlink(f"{fds}/{fd}") for fd in os.listdir(fds)) if link in listening)
call = grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/snakepit.v1.Worker/Call")
for metadata in ((), (("snakepit-secret", "guessed"),)):
    try:
        call(b"", timeout=20, metadata=metadata)
        print("served")
    except grpc.RpcError as error:
        print(error.code().name)
"#;
    printed(&python(), script, pid.to_string().as_ref())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_code_does_not_load_says_why() {
    let worker = PythonWorker::new(file("raises.py")).interpreter(python());
    let error = does_not_start(snakepit::grpc(worker)).await;
    assert!(error.contains("Traceback") || error.contains("raises.py"), "{error}");
}
