//! Those who do not do what they should, and those who know only what the specification says.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use snakepit::{GrpcWorker, Pool, PythonWorker, Snakepit, Value, args};

use super::support::{Pit, chain, config, runs_in, soon};
use super::{file, python};

/// What a script of Python prints, in a process that is none of a pool.
#[expect(clippy::disallowed_methods, reason = "it is over when this returns")]
fn printed(python: &Path, script: &str, arg: &OsStr) -> String {
    let asked = Command::new(python).args(["-c", script]).arg(arg).output().expect("python");
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    String::from_utf8_lossy(&asked.stdout).trim().to_owned()
}

/// Asks gRPC's health service by itself, as anybody could who may enter the directory.
pub(super) fn check_health(python: &Path, socket: &Path) -> String {
    let script = r#"
import sys, grpc
channel = grpc.insecure_channel("unix:" + sys.argv[1])
answer = channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=20)
print(answer[1])
"#;
    printed(python, script, socket.as_os_str())
}

/// The error of a pool whose workers do not start.
async fn does_not_start(pool: Pool) -> String {
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
async fn a_worker_of_a_stranger_is_called_in_json() {
    for worker in [stranger(), stranger().tcp()] {
        let pit = Pit::start(Pool::grpc(worker).workers(1)).await;
        let greeting: String = pit.call("greet", args! { name: "Ada" }).await.expect("a greeting");
        assert_eq!(greeting, "Hello, Ada, from a stranger!");
        let rows: Value = serde_json::from_str(r#"[{"price": 1}, {"price": 2.5}]"#).expect("rows");
        let total: f64 = pit.call("total", args! { rows: rows }).await.expect("a total");
        assert!((total - 3.5).abs() < f64::EPSILON);
        let error = pit.call::<Value>("total", args! { rows: 3 }).await.expect_err("no rows");
        assert_eq!(error.remote().expect("remote").type_name.as_deref(), Some("TypeError"));
        let error = pit.call::<Value>("none", args! {}).await.expect_err("no such command");
        assert_eq!(error.remote().expect("remote").kind, "unknown_command");
        let error = pit.call::<Value>("greet", args! { name: Value::Bytes(vec![1].into()) }).await;
        let error = chain(&error.expect_err("bytes are no JSON"));
        assert!(error.contains("name: a byte string has no form in JSON"), "{error}");
        let health: Value = pit.call("snakepit.health", args! {}).await.expect("well");
        assert_eq!(health, Value::Nil);
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_server_of_grpc_is_told_and_ended() {
    for (mode, said) in [
        ("garbage", "before it was ready"),
        ("http", "before it was ready"),
        ("closes", "before it was ready"),
    ] {
        let worker = GrpcWorker::command([python(), file("grpc_odd.py"), mode.into()]);
        let error = does_not_start(Pool::grpc(worker)).await;
        assert!(error.contains(said), "{mode}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_know_the_secret_is_refused() {
    let worker = GrpcWorker::python(PythonWorker::new(file("over_grpc.py")).interpreter(python())).tcp();
    let pit = Pit::start(Pool::grpc(worker).workers(1)).await;
    let pid: u32 = pit.call("pid", args! {}).await.expect("a pid");
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
    let said = printed(&python(), script, pid.to_string().as_ref());
    assert_eq!(said, "UNAUTHENTICATED\nUNAUTHENTICATED");
    let still: u32 = pit.call("pid", args! {}).await.expect("a pid");
    assert_eq!(still, pid);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_code_does_not_load_says_why() {
    let worker = PythonWorker::new(file("raises.py")).interpreter(python());
    let error = does_not_start(Pool::grpc(worker)).await;
    assert!(error.contains("Traceback") || error.contains("raises.py"), "{error}");
}
