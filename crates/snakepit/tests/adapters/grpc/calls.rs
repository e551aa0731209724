//! Calls to Python workers with the SDK over gRPC.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use snakepit::custody::{Containment, CustodyOptions, ExitStatus};
use snakepit::pool::CancelGrace;
use snakepit::value::Blob;
use snakepit::{CallError, Snakepit, Value, args};

use super::{file, pool, python, worker};
use crate::support::{self, Pit, lines, runs, soon, until};

fn sockets(home: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for run in std::fs::read_dir(home.join("runs")).into_iter().flatten().flatten() {
        let dirs = std::fs::read_dir(run.path()).into_iter().flatten().flatten().map(|entry| entry.path());
        found.extend(dirs.filter(|dir| dir.join("s").exists()));
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn values_keep_their_types() {
    let pit = Pit::start(pool()).await;
    let time = "2026-11-15T12:00:00+02:00".parse::<snakepit::value::DateTime>().expect("a time");
    let values: Vec<Value> = vec![
        Value::Nil,
        true.into(),
        i64::MIN.into(),
        u64::MAX.into(),
        Value::Int(i128::MAX),
        1.0.into(),
        "ä".into(),
        Value::Bytes(vec![7; 3].into()),
        Value::DateTime(time),
    ];
    let echoed: Vec<Value> = pit.call("echo", args! { value: &values }).await.expect("an echo");
    assert_eq!(echoed, values);
    let kinds: Vec<String> = pit.call("kinds", args! { value: &values }).await.expect("names");
    assert_eq!(kinds, ["NoneType", "bool", "int", "int", "int", "float", "str", "bytes", "datetime"]);
    // Other adapters send long byte strings beside the value; here they are inside it.
    let long = Blob::from(vec![5; 300_000]);
    let echoed: (Blob, u8) = pit.call("echo", args! { value: (&long, 3) }).await.expect("an echo");
    assert_eq!(echoed, (long, 3));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_async_command_answers_and_an_unknown_one_is_named() {
    let pit = Pit::start(pool()).await;
    let value: i64 = pit.call("later", args! { value: 3 }).await.expect("a value");
    assert_eq!(value, 3);
    let error = pit.call::<Value>("lator", args! {}).await.expect_err("no such command");
    assert_eq!(error.remote().expect("remote").nearest, ["later"]);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exception_arrives_with_type_message_traceback_and_cause() {
    let pit = Pit::start(pool()).await;
    let error = pit.call::<Value>("fail", args! { text: "why" }).await.expect_err("an exception");
    let remote = error.remote().expect("a remote error");
    assert_eq!((remote.type_name.as_deref(), remote.message.as_str()), (Some("ValueError"), "it failed"));
    assert!(remote.traceback.as_deref().is_some_and(|text| text.contains("over_grpc.py")), "{remote:?}");
    let cause = remote.cause.as_deref().expect("a cause");
    assert_eq!((cause.type_name.as_deref(), cause.message.as_str()), (Some("KeyError"), "'why'"));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generator_streams_in_order() {
    let pit = Pit::start(pool()).await;
    let stream = pit.stream::<u32>("count", args! { n: 2000 }).credit(16).open().expect("a stream");
    let items: Vec<u32> = stream.map(|item| item.expect("an item")).collect().await;
    assert_eq!(items, (0..2000).collect::<Vec<_>>());
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_nobody_reads_holds_its_worker_back() {
    let pit = Pit::start(pool().concurrency(2)).await;
    let path = pit.file("made");
    let made = || std::fs::read_to_string(&path).ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let size = 64 * 1024;
    let args = args! { path: &path, size: size };
    let mut stream = pit.stream::<Blob>("flood", args).credit(2).open().expect("a stream");
    soon("an item", stream.next()).await.expect("an item").expect("an item");
    // The other call is served meanwhile, and gives the stream time to run ahead.
    for number in 0..300 {
        let echoed: i64 = pit.call("echo", args! { value: number }).await.expect("an echo");
        assert_eq!(echoed, number);
    }
    // The window of HTTP/2, the items that the SDK has ready, and the buffers of the socket.
    let most = (8 << 20) / size;
    assert!(made() <= most, "{} items of {size} bytes were made, and one was read", made());
    drop(stream);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_sees_the_flag_and_its_worker_serves_on() {
    let patient = CancelGrace::default().ask(support::SOON);
    let pit = Pit::start(pool().cancel_grace(patient)).await;
    let before: u32 = pit.call("pid", args! {}).await.expect("a pid");
    let path = pit.file("watchful");
    let call = tokio::spawn(pit.call::<Value>("watchful", args! { path: &path }).into_future());
    until("the call is under way", || !lines(&path).is_empty()).await;
    call.abort();
    until("it has seen the flag", || lines(&path).last().is_some_and(|line| line == "saw the flag")).await;
    let after: u32 = soon("the next", pit.call("pid", args! {})).await.expect("a pid");
    assert_eq!(after, before);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_ignores_cancels_is_interrupted_and_keeps_its_place_until_then() {
    let grace = CancelGrace::default().ask(Duration::from_millis(50)).raise(support::SOON);
    let pit = Pit::start(pool().cancel_grace(grace)).await;
    let before: u32 = pit.call("pid", args! {}).await.expect("a pid");
    let path = pit.file("busy");
    let call = tokio::spawn(pit.call::<Value>("busy", args! { path: &path }).into_future());
    until("the call is under way", || !lines(&path).is_empty()).await;
    call.abort();
    let after: u32 = soon("the next", pit.call("pid", args! {})).await.expect("a pid");
    assert_eq!(lines(&path), ["started", "Cancelled"], "the next call began when this one was over");
    assert_eq!(after, before);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deadline_is_known_to_the_worker_and_ends_the_call() {
    let patient = CancelGrace::default().ask(support::SOON);
    let pit = Pit::start(pool().cancel_grace(patient)).await;
    let left: f64 = pit.call("remaining", args! {}).timeout(Duration::from_secs(20)).await.expect("a time");
    assert!(left > 0.0 && left <= 20.0, "{left}");
    let path = pit.file("watchful");
    let call = pit.call::<Value>("watchful", args! { path: &path }).timeout(Duration::from_millis(300));
    let error = soon("the end of its time", call).await.expect_err("too late");
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    until("it has seen the flag", || lines(&path).last().is_some_and(|line| line == "saw the flag")).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coroutine_that_is_late_shows_what_it_awaits() {
    let pit = Pit::start(pool()).await;
    let call = pit.call::<Value>("waits_deep_down", args! {}).timeout(Duration::from_millis(500));
    let error = soon("the end of its time", call).await.expect_err("too late");
    let CallError::Timeout { stack: Some(stack), .. } = &error else { panic!("{error}") };
    assert!(stack.starts_with("Task of call ") && stack.contains(": waits_deep_down "), "{stack}");
    assert!(stack.contains("in innermost\n"), "{stack}");
    pit.end_now().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_the_host_answer_fail_stream_and_call_back() {
    let builder = Snakepit::builder()
        .pool(pool())
        .tool("double", |args: Number, _| async move { Ok::<_, String>(args.n * 2) })
        .tool("broken", |(): (), _| async move { Err::<(), _>("it is broken") })
        .tool_stream("range", |args: Number, _| futures_util::stream::iter((0..args.n).map(Ok::<_, String>)));
    let pit = Pit::build(builder).await;
    let doubled: i64 =
        pit.call("ask", args! { tool: "double", args: args_map(&[("n", 21)]) }).await.expect("an answer");
    assert_eq!(doubled, 42);
    let error = pit.call::<Value>("ask", args! { tool: "broken", args: args_map(&[]) }).await;
    let error = error.expect_err("a broken tool");
    assert!(error.remote().expect("remote").message.contains("it is broken"), "{error}");
    let read: Vec<u32> =
        pit.call("read", args! { tool: "range", args: args_map(&[("n", 1000)]) }).await.expect("a stream");
    assert_eq!(read, (0..1000).collect::<Vec<_>>());
    pit.end().await;
}

#[derive(serde::Deserialize)]
struct Number {
    n: i64,
}

fn args_map(entries: &[(&str, i64)]) -> std::collections::BTreeMap<String, i64> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_progress_arrives_before_the_answer() {
    let pit = Pit::start(pool()).await;
    for _ in 0..20 {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let note = Arc::clone(&heard);
        let call = pit.call::<u32>("steps", args! { n: 1 }).on_progress(move |progress| {
            note.lock().expect("unpoisoned").push(progress.fraction);
        });
        assert_eq!(call.await.expect("an answer"), 1);
        assert_eq!(*heard.lock().expect("unpoisoned"), [Some(1.0)]);
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_metadata_and_trace_reach_the_worker() {
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let pit = Pit::start(pool()).await;
    let (session, metadata, parent): (
        Option<String>,
        std::collections::BTreeMap<String, String>,
        Option<String>,
    ) = pit
        .call("who", args! {})
        .session("s1")
        .metadata("user", "ada")
        .traceparent(trace)
        .await
        .expect("an answer");
    assert_eq!(session.as_deref(), Some("s1"));
    assert_eq!(metadata.get("user").map(String::as_str), Some("ada"));
    assert_eq!(parent.as_deref().map(|parent| &parent[..35]), Some(&trace[..35]));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_in_a_call_fails_it_with_an_autopsy_and_is_replaced() {
    let pit = Pit::start(pool()).await;
    let error = pit.call::<Value>("die", args! { status: 7 }).await.expect_err("a death");
    let CallError::WorkerDied { autopsy, .. } = &error else { panic!("{error}") };
    assert_eq!(autopsy.exit.map(|exit| exit.status), Some(ExitStatus::Code(7)));
    assert!(autopsy.output.iter().any(|line| line == "about to die"), "{:?}", autopsy.output);
    let echoed: i64 = soon("a new worker", pit.call("echo", args! { value: 1 })).await.expect("a new worker");
    assert_eq!(echoed, 1);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_socket_is_private_while_it_serves_and_gone_afterwards_and_so_is_the_worker() {
    let goodbye = tempfile::NamedTempFile::new().expect("a file");
    let pool = snakepit::grpc(worker().env("GOODBYE", goodbye.path())).workers(1);
    let pit = Pit::start(pool).await;
    let pid: u32 = pit.call("pid", args! {}).await.expect("a pid");
    let [home] = &sockets(pit.home())[..] else { panic!("{:?}", sockets(pit.home())) };
    let mode = std::fs::metadata(home).expect("a directory").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let home = home.clone();
    pit.end().await;
    assert!(!home.exists());
    assert!(!runs(pid));
    assert_eq!(lines(&goodbye.path().to_string_lossy()), ["goodbye"], "its hooks for the end ran, once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_serves_over_tcp_and_in_a_pid_namespace() {
    let pit = Pit::start(snakepit::grpc(worker().tcp()).workers(1)).await;
    let echoed: i64 = pit.call("echo", args! { value: 1 }).await.expect("an echo");
    assert_eq!(echoed, 1);
    assert!(sockets(pit.home()).is_empty());
    pit.end().await;
    if !support::has_namespaces() {
        return;
    }
    let builder = Snakepit::builder().pool(pool());
    let custody = CustodyOptions::default().containment(Containment::Namespace);
    let pit = Pit::build_with(builder, custody).await;
    let echoed: i64 = pit.call("echo", args! { value: 2 }).await.expect("an echo");
    assert_eq!(echoed, 2);
    pit.end().await;
}

#[cfg(feature = "config")]
#[tokio::test(flavor = "multi_thread")]
async fn a_file_says_whether_it_is_over_tcp_or_over_a_socket() {
    let (worker, python) = (file("over_grpc.py"), python());
    for (over, at_sockets) in [("tcp", 0), ("unix", 1)] {
        let keys = format!("worker = {worker:?}\ninterpreter = {python:?}\nworkers = 1\n");
        let table = format!("[pool.math]\nadapter = \"grpc\"\ngrpc = {{ over = {over:?} }}\n{keys}");
        let config = snakepit::Config::parse(&table, "/snakepit.toml").expect("a configuration");
        let pit = Pit::build(config.builder()).await;
        let echoed: i64 = pit.call("echo", args! { value: 3 }).await.expect("an echo");
        assert_eq!((echoed, sockets(pit.home()).len()), (3, at_sockets));
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_checks_return_the_answer_of_the_hook() {
    let ill = tempfile::tempdir().expect("a directory");
    let ill = ill.path().join("ill");
    let pit = Pit::start(snakepit::grpc(worker().env("ILL", &ill)).workers(1)).await;
    let said: String = pit.call("snakepit.health", args! {}).await.expect("well");
    assert_eq!(said, "well");
    let [home] = &sockets(pit.home())[..] else { panic!("one worker") };
    assert_eq!(super::foreign_workers::check_health(&python(), &home.join("s")), "1", "SERVING");
    assert_eq!(super::foreign_workers::watch_health(&python(), &home.join("s")), "1\nNOT_FOUND");
    std::fs::create_dir_all(&ill).expect("ill");
    assert_eq!(super::foreign_workers::check_health(&python(), &home.join("s")), "2", "NOT_SERVING");
    pit.end().await;
}
