//! Workers that serve HTTP with a server of Python's standard library.
//!
//! About `crates/adapters/src/http/handle.rs`, `crates/adapters/src/http/client.rs` and
//! `crates/adapters/src/http/answer/mod.rs`.

use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use snakepit::adapter::Program;
use snakepit::adapter::http::{HttpMethod, HttpWorker};
use snakepit::custody::{Containment, CustodyOptions, ExitStatus};
use snakepit::pool::CancelGrace;
use snakepit::telemetry::Event;
use snakepit::value::{Args, Blob, Map};
use snakepit::{CallError, PoolOptions, Snakepit, Value, args};

use crate::support::{self, Pit, chain, heard, lines, pids, soon, until};

fn program(words: &[&str]) -> Program {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workers/http_server.py");
    let words = words.iter().map(|word| (*word).to_owned());
    Program::new(["python3".to_owned(), file.to_string_lossy().into_owned()].into_iter().chain(words))
}

fn server() -> PoolOptions {
    snakepit::http(HttpWorker::new(program(&["port"]))).name("server").workers(1)
}

async fn failure(pit: &Pit, command: &str, args: Args) -> CallError {
    soon("the call", pit.call::<Value>(command, args)).await.expect_err("an error")
}

#[tokio::test(flavor = "multi_thread")]
async fn values_go_there_and_back() {
    let pit = Pit::start(server()).await;
    let value = Value::from(Map::from([
        (
            "list",
            Value::from(vec![Value::Nil, true.into(), (-1).into(), 1.5.into(), 2.0.into(), "ä\n\"".into()]),
        ),
        ("large", u64::MAX.into()),
    ]));
    assert_eq!(soon("the call", pit.call::<Value>("echo", &value)).await.expect("the same"), value);
    assert_eq!(pit.call::<Vec<i64>>("echo", args![1, 2]).await.expect("a list"), [1, 2]);
    assert_eq!(pit.call::<String>("text", args! {}).await.expect("a text"), "plain wörds");
    let bytes: Blob = pit.call("bytes", args! {}).await.expect("bytes");
    assert_eq!(&bytes[..], (0..=255).collect::<Vec<u8>>());
    let picture: Blob = pit.call("picture", args! {}).await.expect("bytes");
    assert_eq!(&picture[..], b"x");
    let long = "x\n".repeat(1_500_000);
    assert!(pit.call::<Vec<String>>("echo", args![&long]).await.expect("a list") == [long]);
    assert_eq!(pit.call::<Value>("nothing", args! {}).await.expect("nil"), Value::Nil);
    let error = failure(&pit, "echo", args! { b: Blob::from(vec![1]) }).await;
    assert!(chain(&error).contains("b: a byte string has no form in JSON"), "{}", chain(&error));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_serves_on_a_unix_socket_in_every_tier() {
    for containment in support::possible([Containment::Auto, Containment::Namespace, Containment::Group]) {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("s").to_string_lossy().into_owned();
        let pool = snakepit::http(program(&["socket", &path])).workers(1);
        let pit = Pit::build_with(
            Snakepit::builder().pool(pool),
            CustodyOptions::default().containment(containment),
        )
        .await;
        assert_eq!(soon("the call", pit.call::<Vec<i64>>("echo", args![1])).await.expect("a list"), [1]);
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_carries_the_options_of_the_caller() {
    let worker = HttpWorker::new(program(&["port"])).prefix("api/v1").method(HttpMethod::Put);
    let pit = Pit::start(snakepit::http(worker).workers(1)).await;
    let call = pit
        .call::<Value>("request", args! {})
        .session("s1")
        .metadata("who", "me")
        .timeout(Duration::from_secs(20));
    let request = soon("the call", call).await.expect("the request");
    assert_eq!(
        (request["path"].as_str(), request["method"].as_str()),
        (Some("/api/v1/request"), Some("PUT"))
    );
    let headers = &request["headers"];
    assert_eq!(headers["snakepit-session"].as_str(), Some("s1"));
    assert_eq!(headers["snakepit-metadata-who"].as_str(), Some("me"));
    assert!(headers["snakepit-secret"].as_str().is_some_and(|secret| secret.len() == 32));
    let left: Option<u64> = headers["snakepit-timeout-ms"].as_str().and_then(|ms| ms.parse().ok());
    assert!(left.is_some_and(|ms| (1..=20_000).contains(&ms)), "{request}");
    let error = soon("the call", pit.call::<Value>("echo", args! {}).metadata("a b", "x"))
        .await
        .expect_err("no header");
    assert!(chain(&error).contains("cannot be sent over HTTP"), "{}", chain(&error));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_reused() {
    let pit = Pit::start(server()).await;
    let first: i64 = pit.call("connection", args! {}).await.expect("a connection");
    for _ in 0..20 {
        assert_eq!(pit.call::<i64>("connection", args! {}).await.expect("a connection"), first);
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_kind_type_and_traceback() {
    let pit = Pit::start(server()).await;
    let error = failure(&pit, "raise", args! { message: "no" }).await;
    let remote = error.remote().expect("the worker's own");
    assert_eq!((remote.kind.as_str(), remote.to_string().as_str()), ("exception", "ValueError: no"));
    assert_eq!(remote.traceback.as_deref(), Some("line 1"));
    let error = failure(&pit, "invalid", args! {}).await;
    let remote = error.remote().expect("the worker's own");
    assert_eq!((remote.kind.as_str(), remote.parameter.as_deref()), ("bad_argument", Some("a")));
    for (command, kind, said) in [
        ("no_such", "unknown_command", "Not Found"),
        ("garbage", "bad_value", "cannot be read"),
        ("moved", "bad_value", "302"),
        ("break", "exception", "broke before it had answered"),
    ] {
        let error = failure(&pit, command, args! {}).await;
        let remote = error.remote().unwrap_or_else(|| panic!("{command}: {error}"));
        assert!(remote.kind.as_str() == kind && remote.message.contains(said), "{command}: {remote:?}");
    }
    assert_eq!(pit.call::<Vec<i64>>("echo", args![1]).await.expect("it serves on"), [1]);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_too_long_is_not_kept() {
    let pit = Pit::start(server().max_frame(1 << 20)).await;
    let error = failure(&pit, "large", args! { size: 3_000_000 }).await;
    assert!(error.to_string().contains("longer than max_frame"), "{error}");
    assert_eq!(pit.call::<Vec<i64>>("echo", args![1]).await.expect("it serves on"), [1]);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_events_or_lines() {
    let pit = Pit::start(server()).await;
    for command in ["events", "lines"] {
        let stream =
            pit.stream::<(u32, String)>(command, args! { n: 300 }).credit(8).open().expect("a stream");
        let items: Vec<u32> = stream.map(|item| item.expect("an item").0).collect().await;
        assert_eq!(items, (0..300).collect::<Vec<_>>(), "{command}");
    }
    let stream = pit.stream::<Value>("echo", args! { a: 1 }).open().expect("a stream");
    assert_eq!(stream.collect::<Vec<_>>().await.len(), 1, "a command that does not stream has one value");
    let mut stream = pit.stream::<u32>("failing_events", args! {}).open().expect("a stream");
    assert_eq!(stream.next().await.expect("an item").expect("an item"), 1);
    assert_eq!(stream.next().await.expect("an end").expect_err("an error").to_string(), "Broken: no more");
    let error = failure(&pit, "events", args! { n: 1 }).await;
    assert!(error.to_string().contains("the call must ask for one"), "{error}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_delays_only_its_own_stream() {
    let pit = Pit::start(server().concurrency(2)).await;
    let path = pit.file("events");
    let args = args! { n: 3000, size: 20_000, path: &path };
    let mut stream = pit.stream::<(u32, String)>("events", args).credit(4).open().expect("a stream");
    assert_eq!(soon("an item", stream.next()).await.expect("an item").expect("an item").0, 0);
    let sent = || std::fs::read_to_string(&path).ok().and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
    let mut last = (0, Instant::now());
    until("the worker is held up", || {
        if sent() != last.0 {
            last = (sent(), Instant::now());
        }
        last.1.elapsed() > Duration::from_millis(500)
    })
    .await;
    assert!(sent() < 2000, "it is {} items ahead", sent());
    assert_eq!(soon("another call", pit.call::<Vec<i64>>("echo", args![1])).await.expect("an answer"), [1]);
    let rest: Vec<u32> = stream.map(|item| item.expect("an item").0).collect().await;
    assert_eq!(rest.last(), Some(&2999));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_out_of_time_closes_its_request() {
    let grace = CancelGrace::default().ask(Duration::from_secs(20));
    let pit = Pit::start(server().cancel_grace(grace)).await;
    let (path, before) = (pit.file("said"), pids(&pit.pools()[0]));
    let late = pit.call::<Value>("hang", args! { path: &path }).timeout(Duration::from_millis(300));
    let error = soon("the call", late).await.expect_err("too late");
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    until("the worker sees it", || lines(&path) == ["begun", "closed"]).await;
    assert_eq!(soon("the call", pit.call::<Vec<i64>>("echo", args![1])).await.expect("it serves on"), [1]);
    assert_eq!(pids(&pit.pools()[0]), before);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_in_a_call_has_its_autopsy() {
    let pit = Pit::start(server()).await;
    let error = failure(&pit, "crash", args! {}).await;
    let autopsy = error.autopsy().unwrap_or_else(|| panic!("{error}"));
    assert_eq!(autopsy.exit.map(|exit| exit.status), Some(ExitStatus::Signal(11)));
    assert!(autopsy.output.contains(&"about to crash".into()), "{autopsy}");
    assert_eq!(soon("the call", pit.call::<Vec<i64>>("echo", args![1])).await.expect("another worker"), [1]);
    pit.end().await;
}

/// Waits until the worker on this port listens no more.
async fn until_deaf(pit: &Pit, port: u16) {
    let deafens = pit.call::<String>("deafen", args! {});
    assert_eq!(soon("the call", deafens).await.expect("an answer"), "deaf");
    let deaf = || std::net::TcpStream::connect(("127.0.0.1", port)).is_err();
    until("nobody listens", deaf).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_cannot_reach_their_worker_go_to_other_workers() {
    const CALLS: usize = 8;
    let pit = Pit::start(server().concurrency(CALLS)).await;
    let pool = pit.pools()[0].clone();
    let before = pids(&pool);
    let mut events = pool.events();
    let port = pit.call::<u16>("port", args! {}).await.expect("a port");
    until_deaf(&pit, port).await;
    let calls = (0..CALLS as i64).map(|n| pit.call::<Vec<i64>>("echo", args![n]).into_future());
    for (answer, n) in soon("the calls", futures_util::future::join_all(calls)).await.into_iter().zip(0..) {
        assert_eq!(answer.expect("an answer of another worker"), [n]);
    }
    let autopsy = heard(&mut events, |event| match event {
        Event::WorkerDied { autopsy, .. } => Some(autopsy),
        _ => None,
    })
    .await;
    assert!(autopsy.to_string().contains("does not listen"), "{autopsy}");
    assert_ne!(pids(&pool), before);
    assert!(pool.quarantine().is_empty(), "nobody is suspected: {:?}", pool.quarantine());
    assert_eq!(pool.outcomes().died, 0);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_reaches_no_worker_counts_as_not_started() {
    // The workers after it cannot start, so no worker is there to take the call.
    let home = tempfile::tempdir().expect("a directory");
    let once = home.path().join("once");
    let pool = snakepit::http(HttpWorker::new(program(&["port", &once.to_string_lossy()])))
        .workers(1)
        .restarts(support::at_once())
        .queue_timeout(Duration::from_millis(500));
    let pit = Pit::start(pool).await;
    let port = pit.call::<u16>("port", args! {}).await.expect("a port");
    until_deaf(&pit, port).await;
    let error = failure(&pit, "echo", args![1]).await;
    let is_queued = matches!(error, CallError::NoWorkers { .. } | CallError::QueueTimeout { .. });
    assert!(is_queued, "no death, for nobody had it: {error}");
    assert_eq!(pit.pools()[0].outcomes().died, 0);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connect_to_a_busy_socket_is_retried() {
    // The server takes one connection at a time, and lets hardly any wait.
    let script = r#"
import json, os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(0)
print(json.dumps({"status": "ready", "socket": sys.argv[1]}), flush=True)
while True:
    connection, _ = listener.accept()
    with connection, connection.makefile("rb") as reader:
        length = 0
        while (line := reader.readline()).strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        body = reader.read(length)
        head = f"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
"#;
    let home = tempfile::tempdir().expect("a directory");
    let path = home.path().join("s").to_string_lossy().into_owned();
    let pool = snakepit::http(["python3", "-c", script, &path]).workers(1).concurrency(32);
    let pit = Pit::start(pool).await;
    let before = pids(&pit.pools()[0]);
    let calls = (0..200).map(|n| pit.call::<Vec<i64>>("echo", args![n]).into_future());
    let answers = soon("the calls", futures_util::future::join_all(calls)).await;
    for (answer, n) in answers.into_iter().zip(0..) {
        assert_eq!(answer.expect("an answer"), [n]);
    }
    assert_eq!(pids(&pit.pools()[0]), before);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_calls_get_their_own_answers() {
    let pit = Pit::start(server().concurrency(8)).await;
    let calls = (0..200).map(|n| pit.call::<Vec<i64>>("echo", args![n]).into_future());
    let answers = soon("the calls", futures_util::future::join_all(calls)).await;
    for (answer, n) in answers.into_iter().zip(0..) {
        assert_eq!(answer.expect("an answer"), [n]);
    }
    pit.end().await;
}

/// Returns the arguments for a worker that answers with these bytes, in these pieces.
fn raw(head: &str, pieces: &[&str]) -> Args {
    let pieces: Vec<String> = std::iter::once(head).chain(pieces.iter().copied()).map(latin1).collect();
    args! { pieces: pieces, close: true }
}

/// Returns a text with one character for each byte, since the worker may send any bytes.
fn latin1(text: &str) -> String {
    text.bytes().map(char::from).collect()
}

const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
const LINES: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\n\r\n";
const CHUNKED: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n";

async fn streamed(pit: &Pit, args: Args) -> Vec<Result<Value, CallError>> {
    let stream = pit.stream::<Value>("raw", args).open().expect("a stream");
    soon("the stream", stream.collect::<Vec<_>>()).await
}

async fn items(pit: &Pit, args: Args) -> Vec<String> {
    let items = streamed(pit, args).await;
    items
        .into_iter()
        .map(|item| item.map_or_else(|error| format!("error: {error}"), |item| item.to_string()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn server_sent_events_are_read_as_the_standard_defines_them() {
    let pit = Pit::start(server()).await;
    let text = ": a comment\r\n\r\nretry: 10\nid: 7\ndata: [1,\ndata: 2]\n\ndata:3\r\n\r\ndata\n\nevent: ping\ndata:\n\ndata: \"ü\"\r\rdata: 5\n\ndata: never";
    let whole = items(&pit, raw(EVENTS, &[&format!("\u{feff}{text}")])).await;
    assert_eq!(whole, ["[1,2]", "3", "\"ü\"", "5"]);
    let bytes: Vec<String> = text.bytes().map(|byte| char::from(byte).to_string()).collect();
    let pieces: Vec<String> = std::iter::once(EVENTS.to_owned()).chain(bytes).collect();
    let cut = items(&pit, args! { pieces: pieces, close: true }).await;
    assert_eq!(cut, whole);
    let failed = items(&pit, raw(EVENTS, &["data: 1\n\nevent: error\n\ndata: 2\n\n"])).await;
    assert_eq!(failed, ["1", "error: the worker ended its stream with an error without a message"]);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_put_together_from_any_pieces_and_one_that_is_cut_off_fails() {
    let pit = Pit::start(server()).await;
    let text = "\"€\"\n{\"ü\": 1}\n\n\"last\"";
    let bytes: Vec<String> = text.bytes().map(|byte| char::from(byte).to_string()).collect();
    let pieces: Vec<String> = std::iter::once(LINES.to_owned()).chain(bytes).collect();
    let cut = items(&pit, args! { pieces: pieces, close: true }).await;
    assert_eq!(cut, ["\"€\"", "{\"ü\":1}", "\"last\""]);
    for rest in ["2\r\n1\n\r\n", "2\r\n1\n\r\n5\r\n2", "2\r\n1\n\r\n0\r\n"] {
        let cut = items(&pit, raw(CHUNKED, &[rest])).await;
        assert!(cut.len() == 2 && cut[0] == "1" && cut[1].contains("broke before"), "{rest:?}: {cut:?}");
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn extra_bytes_around_an_answer_disturb_no_call() {
    let pit = Pit::start(server()).await;
    let ok = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1\r\n\r\n7";
    for before in ["HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"] {
        let answer = soon("the call", pit.call::<i64>("raw", args! { pieces: [before, ok] })).await;
        assert_eq!(answer.expect("an answer"), 7, "{before}");
    }
    // A second answer that was not requested is dropped.
    for _ in 0..5 {
        let args = args! { pieces: vec![format!("{ok}{}", ok.replace("\r\n\r\n7", "\r\n\r\n8"))] };
        assert_eq!(soon("the call", pit.call::<i64>("raw", args)).await.expect("an answer"), 7);
        assert_eq!(soon("the call", pit.call::<Vec<i64>>("echo", args![1])).await.expect("its own"), [1]);
    }
    // The connection is closed after the answer.
    for _ in 0..20 {
        let args =
            args! { pieces: [ok.replace("content-type", "connection: close\r\ncontent-type")], close: true };
        assert_eq!(soon("the call", pit.call::<i64>("raw", args)).await.expect("an answer"), 7);
    }
    let huge = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(2_000_000));
    for odd in [
        huge.as_str(),
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        "\u{16}\u{3}\u{1}garbage",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n12",
        "HTTP/1.1 999 Odd\r\n\r\n",
    ] {
        let error = failure(&pit, "raw", raw(odd, &[])).await;

        assert!(error.remote().is_some(), "{error}");
    }
    assert_eq!(soon("the call", pit.call::<Vec<i64>>("echo", args![1])).await.expect("it serves on"), [1]);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_answer_to_a_plain_call_fails_at_once() {
    let pit = Pit::start(server()).await;
    let args = args! { pieces: vec![EVENTS, "data: 1\n\n"], hold: true };
    let error = failure(&pit, "raw", args).await;
    assert!(error.to_string().contains("the call must ask for one"), "{error}");
    pit.end().await;
}
