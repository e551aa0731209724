//! Workers on their standard streams: correct ones and faulty ones, in Python without the SDK, in Bash and in Node.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use rustix::process::Signal;
use snakepit::call::RemoteErrorKind;
use snakepit::custody::{Containment, CustodyOptions, ExitStatus};
use snakepit::pool::CancelGrace;
use snakepit::value::{Blob, Map};
use snakepit::{CallError, PoolOptions, Snakepit, Value, args};

use crate::support::{self, Pit, chain, config, fault_of, lines, pids, runs, signal, soon, until};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn lines_worker(words: &[&str]) -> PoolOptions {
    let worker = file("tests/workers/lines.py").to_string_lossy().into_owned();
    let words = words.iter().map(|word| (*word).to_owned());
    snakepit::stdio(["python3".to_owned(), worker].into_iter().chain(words)).name("lines").workers(1)
}

async fn start() -> Pit {
    Pit::start(lines_worker(&[])).await
}

async fn failure(pit: &Pit, command: &str, args: snakepit::value::Args) -> CallError {
    soon("the call", pit.call::<Value>(command, args)).await.expect_err("an error")
}

#[tokio::test(flavor = "multi_thread")]
async fn values_go_there_and_back() {
    let pit = start().await;
    let value = Value::from(Map::from([
        (
            "list",
            Value::from(vec![Value::Nil, true.into(), (-1).into(), 1.5.into(), 2.0.into(), "ä\n\"".into()]),
        ),
        ("large", u64::MAX.into()),
        ("empty", Map::new().into()),
    ]));
    assert_eq!(pit.call::<Value>("echo", &value).await.expect("the same"), value);
    assert_eq!(
        pit.call::<Value>("echo", args![1, "two"]).await.expect("a list"),
        Value::from(vec![Value::from(1), "two".into()])
    );
    assert_eq!(pit.call::<Vec<i64>>("echo", 5).await.expect("a list of one"), [5]);
    assert_eq!(pit.call::<Map>("echo", args! {}).await.expect("none"), Map::new());
    let long = "x".repeat(3_000_000);
    assert_eq!(pit.call::<Vec<String>>("echo", args![&long]).await.expect("the same")[0].len(), long.len());
    assert_eq!(pit.pools()[0].commands(), ["echo"]);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_outside_json_is_refused_with_its_place() {
    let pit = start().await;
    let error = failure(&pit, "echo", args! { rows: [Blob::from(vec![1])] }).await;
    assert!(chain(&error).contains("rows[0]: a byte string has no form in JSON"), "{}", chain(&error));
    let error =
        failure(&pit, "raw", args! { bytes: "{\"id\":ID,\"result\":[123456789012345678901]}\n" }).await;
    assert!(
        chain(&error).contains("the integer 123456789012345678901 has more than 64 bits"),
        "{}",
        chain(&error)
    );
    assert_eq!(pit.call::<Vec<i64>>("echo", args![1]).await.expect("it serves on"), [1]);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_carries_the_options_of_the_caller() {
    let pit = start().await;
    let call = pit
        .call::<Map>("request", args! { a: 1 })
        .session("s1")
        .metadata("who", "me")
        .timeout(Duration::from_secs(20));
    let request = soon("the call", call).await.expect("the request");
    assert_eq!(request.get("session").and_then(Value::as_str), Some("s1"));
    assert_eq!(request.get("metadata").map(|it| it["who"].clone()), Some("me".into()));
    assert!(
        request.get("timeout_ms").and_then(Value::as_i64).is_some_and(|ms| (1..=20_000).contains(&ms)),
        "{request}"
    );
    assert_eq!(request.get("stream"), None);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_their_type_and_traceback() {
    let pit = start().await;
    let error = failure(&pit, "raise", args! { message: "no" }).await;
    let remote = error.remote().expect("the worker's own");
    assert_eq!(
        (remote.kind.as_str(), remote.type_name.as_deref(), remote.message.as_str()),
        ("exception", Some("ValueError"), "no")
    );
    assert!(remote.traceback.as_deref().is_some_and(|text| text.contains("lines.py")), "{remote:?}");
    let error = failure(&pit, "text_error", args! {}).await;
    assert_eq!(error.remote().map(|remote| remote.message.as_str()), Some("just words"));
    let error = failure(&pit, "nothing", args! {}).await;
    assert_eq!(error.remote().map(|remote| remote.kind.as_str()), Some("unknown_command"));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_arrive_in_order_and_end() {
    let pit = start().await;
    let stream = pit.stream::<(u32, String)>("count", args! { n: 500 }).credit(16).open().expect("a stream");
    let items: Vec<u32> = stream.map(|item| item.expect("an item").0).collect().await;
    assert_eq!(items, (0..500).collect::<Vec<_>>());
    let stream = pit.stream::<Value>("echo", args! { a: 1 }).open().expect("a stream");
    let items: Vec<Value> = stream.map(|item| item.expect("an item")).collect().await;
    assert_eq!(items.len(), 1, "a command that does not stream has one value");
    let mut stream = pit.stream::<u32>("count_then_fail", args! { n: 2 }).open().expect("a stream");
    assert_eq!(stream.next().await.expect("an item").expect("an item"), 0);
    assert_eq!(stream.next().await.expect("an item").expect("an item"), 1);
    let error = stream.next().await.expect("an end").expect_err("an error");
    assert_eq!(error.remote().map(|remote| remote.message.as_str()), Some("no more"));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_blocks_its_worker_and_does_not_fill_memory() {
    let pit = start().await;
    let path = pit.file("count");
    let args = args! { n: 2000, size: 10_000, path: &path };
    let mut stream = pit.stream::<(u32, String)>("count", args).credit(4).open().expect("a stream");
    assert_eq!(soon("an item", stream.next()).await.expect("an item").expect("an item").0, 0);
    // The worker gets as far as credit and pipe allow, and no further, however long the test waits.
    let sent = || std::fs::read_to_string(&path).ok().and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
    until("the worker is ahead", || sent() >= 4).await;
    let settled = {
        let mut last = (sent(), Instant::now());
        until("the worker is held up", || {
            if sent() != last.0 {
                last = (sent(), Instant::now());
            }
            last.1.elapsed() > Duration::from_millis(500)
        })
        .await;
        sent()
    };
    assert!(settled < 40, "it is {settled} items ahead");
    let rest: Vec<u32> = stream.map(|item| item.expect("an item").0).collect().await;
    assert_eq!(rest, (1..2000).collect::<Vec<_>>());
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_nobody_reads_any_more_frees_its_worker() {
    let grace = CancelGrace::default().ask(Duration::from_secs(20));
    let pit = Pit::start(lines_worker(&[]).cancel_grace(grace)).await;
    let before: u32 = pit.call("pid", args! {}).await.expect("a pid");
    let mut stream = pit
        .stream::<(u32, String)>("count", args! { n: 300, size: 10_000 })
        .credit(2)
        .open()
        .expect("a stream");
    assert!(soon("an item", stream.next()).await.is_some());
    drop(stream);
    let after: u32 = soon("the call", pit.call("pid", args! {})).await.expect("a pid");
    assert_eq!(before, after, "it read to the end, and serves on");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_other_line_is_a_log() {
    let pit = start().await;
    assert_eq!(soon("the call", pit.call::<String>("chat", args! {})).await.expect("an answer"), "said");
    let worker = pit.pools()[0].workers()[0].id.clone();
    let shown = || {
        let lines = pit.pools()[0].output(&worker).expect("its output").lines;
        lines.into_iter().map(|line| line.text).collect::<Vec<_>>()
    };
    until("all is read", || shown().len() == 6).await;
    assert_eq!(
        shown(),
        [
            "a word before",
            "[1, 2]",
            r#"{"event": "a log", "level": "info"}"#,
            r#"{"id": 5, "note": "no answer at all"}"#,
            "no end of line",
            "a word after"
        ]
    );
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_cannot_be_read_fails_its_call_alone() {
    let pit = start().await;
    for (bytes, said) in [
        ("{\"id\":ID,\"result\":NaN}\n", "cannot be read"),
        ("{\"id\":ID,\"result\":\"\u{ff}\"}\n", "cannot be read"),
        ("{\"id\":ID,\"result\":[1,2}\n", "cannot be read"),
    ] {
        let error = failure(&pit, "raw", args! { bytes: bytes }).await;
        assert!(
            error.remote().is_some_and(
                |remote| remote.kind == RemoteErrorKind::BadValue && remote.message.contains(said)
            ),
            "{bytes}: {error}"
        );
    }
    let deep = format!("{{\"id\":ID,\"result\":{}{}}}\n", "[".repeat(100_000), "]".repeat(100_000));
    let error = failure(&pit, "raw", args! { bytes: &deep }).await;
    assert!(error.to_string().contains("cannot be read"), "{error}");
    for bytes in [
        "{\"id\":999999,\"result\":1}\n",
        "{\"id\":999999,\"item\":1}\n",
        "{\"id\":-1,\"result\":1}\n",
        "{\"id\":\"x\",\"result\":1}\n",
        "{\"result\":1}\n",
        "{\n\u{0}\u{1}\u{ff}\n}\n{}\n\n\r\n",
    ] {
        let answer = soon("the call", pit.call::<String>("raw", args! { bytes: bytes, then: "on" })).await;
        assert_eq!(answer.expect("it serves on"), "on", "{bytes:?}");
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unrequested_stream_fails_its_call_alone() {
    let pit = start().await;
    let before = pids(&pit.pools()[0]);
    for _ in 0..5 {
        let error = failure(&pit, "count", args! { n: 3 }).await;
        let remote = error.remote().unwrap_or_else(|| panic!("{error}"));
        assert_eq!(remote.kind, RemoteErrorKind::Streaming);
        assert_eq!(remote.message, "count streams its answer; call it as a stream");
    }
    let stream = pit.stream::<(u32, String)>("count", args! { n: 3 }).open().expect("it is not refused");
    assert_eq!(soon("the stream", stream.collect::<Vec<_>>()).await.len(), 3);
    assert_eq!(pids(&pit.pools()[0]), before, "the worker lives");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_longer_than_a_message_may_be_ends_the_worker() {
    let pit = Pit::start(lines_worker(&[]).max_frame(1 << 20)).await;
    let error = failure(&pit, "endless", args! {}).await;
    assert!(fault_of(&error).contains("longer than max_frame"), "{error}");
    assert_eq!(soon("the call", pit.call::<Vec<i64>>("echo", args![1])).await.expect("another worker"), [1]);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_in_a_call_has_its_autopsy() {
    let pit = start().await;
    let error = failure(&pit, "crash", args! {}).await;
    let autopsy = error.autopsy().expect("an autopsy");
    assert_eq!(autopsy.exit.map(|exit| exit.status), Some(ExitStatus::Signal(11)));
    assert!(autopsy.output.contains(&"about to crash".into()), "{autopsy}");
    let error = failure(&pit, "leave", args! { status: 3 }).await;
    let autopsy = error.autopsy().expect("an autopsy");
    assert_eq!(autopsy.exit.map(|exit| exit.status), Some(ExitStatus::Code(3)));
    assert!(autopsy.output.contains(&"I am leaving".into()), "{autopsy}");
    for command in ["close_stdout", "close_stdin"] {
        let _ = soon("the call", pit.call::<Value>(command, args! {})).await;
        let after = async {
            // A closed input is noticed only at the next write, so that call may be lost.
            while soon("the call", pit.call::<Vec<i64>>("echo", args![1])).await.is_err() {}
        };
        soon("another worker", after).await;
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_reported_late_still_counts_as_a_death() {
    let pit = start().await;
    let pid: u32 = pit.call("pid", args! {}).await.expect("a pid");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let shim = status.lines().find_map(|line| line.strip_prefix("PPid:")).expect("a parent");
    let shim: u32 = shim.trim().parse().expect("a pid");
    let begun = pit.file("begun");
    let call = tokio::spawn(pit.call::<Value>("sleep", args! { seconds: 1000, path: &begun }).into_future());
    until("the worker is at it", || std::path::Path::new(&begun).exists()).await;
    // The death is not reported: only the end of the output is visible.
    signal(shim, Signal::STOP);
    signal(pid, Signal::KILL);
    let error = soon("the call", call).await.expect("a task").expect_err("a death");
    signal(shim, Signal::CONT);
    let autopsy = error.autopsy().unwrap_or_else(|| panic!("{error}"));
    assert_eq!(autopsy.fault, None, "{autopsy}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_out_of_time_is_cancelled_in_stages() {
    let home = tempfile::tempdir().expect("a directory");
    let path = home.path().join("said").to_string_lossy().into_owned();
    let grace = CancelGrace::each(Duration::from_millis(50)).terminate(Duration::from_secs(2));
    let pit = Pit::start(lines_worker(&["", &path]).cancel_grace(grace)).await;
    let before: u32 = pit.call("pid", args! {}).await.expect("a pid");
    let late = pit.call::<Value>("sleep", args! { seconds: 1000.0 }).timeout(Duration::from_millis(200));
    let error = soon("the call", late).await.expect_err("too late");
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    let after: u32 = soon("the call", pit.call("pid", args! {})).await.expect("another worker");
    assert_ne!(before, after);
    assert!(!runs(before));
    pit.end().await;
    // A worker that reads in time is asked, and goes on.
    let patient = grace.ask(Duration::from_secs(20));
    let pit = Pit::start(lines_worker(&["", &path]).cancel_grace(patient)).await;
    let before: u32 = pit.call("pid", args! {}).await.expect("a pid");
    let late = pit.call::<Value>("sleep", args! { seconds: 0.5 }).timeout(Duration::from_millis(100));
    assert!(soon("the call", late).await.is_err());
    let after: u32 = soon("the call", pit.call("pid", args! {})).await.expect("the same worker");
    assert_eq!(before, after);
    assert!(lines(&path).iter().any(|line| line.starts_with("cancel ")), "{:?}", lines(&path));
    pit.end().await;
    assert_eq!(lines(&path).last().map(String::as_str), Some("goodbye"));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_protocol_and_the_terminal_are_refused() {
    for (pool, said) in [
        (lines_worker(&["protocol"]), "it speaks protocol 2"),
        (lines_worker(&[]).debug(), "leave `debug` out"),
    ] {
        let home = tempfile::tempdir().expect("a directory");
        let started = Snakepit::builder().pool(pool).custody(config(&home)).start();
        let error = soon("the start", started).await.expect_err("refused");
        assert!(chain(&error).contains(said), "{}", chain(&error));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_other_tiers_serve_and_leave_nothing() {
    for containment in support::possible([Containment::Namespace, Containment::Group]) {
        let custody = CustodyOptions::default().containment(containment);
        let pit = Pit::build_with(Snakepit::builder().pool(lines_worker(&[])), custody).await;
        assert_eq!(soon("the call", pit.call::<Vec<i64>>("echo", args![1])).await.expect("an answer"), [1]);
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_in_bash_serves() {
    let pit =
        Pit::start(snakepit::stdio(["bash".into(), file("../../examples/stdio/worker.sh")]).workers(1)).await;
    assert_eq!(pit.call::<i64>("add", args! { a: -1, b: 43 }).await.expect("a sum"), 42);
    let name = "Wörld \"quoted\" \\ back";
    assert_eq!(
        pit.call::<String>("greet", args! { name: name }).await.expect("a greeting"),
        format!("Hello, {name}!")
    );
    let items: Vec<u32> = pit
        .stream::<u32>("count", args! { n: 100 })
        .open()
        .expect("a stream")
        .map(|item| item.expect("an item"))
        .collect()
        .await;
    assert_eq!(items, (0..100).collect::<Vec<_>>());
    assert_eq!(failure(&pit, "fail", args! { message: "no" }).await.to_string(), "Failure: no");
    for (command, args, kind) in [
        ("nothing", args! {}, "unknown_command"),
        ("add", args! { a: "x", b: 1 }, "bad_argument"),
        ("add", args! { a: 1.5, b: 1 }, "bad_argument"),
    ] {
        assert_eq!(
            failure(&pit, command, args).await.remote().map(|remote| remote.kind.as_str()),
            Some(kind)
        );
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_in_node_serves_many_at_a_time_and_cancels() {
    let grace = CancelGrace::default().ask(Duration::from_secs(20));
    let node =
        snakepit::stdio(["node".into(), file("../../examples/stdio/worker.mjs")]).workers(1).concurrency(8);
    let pit = Pit::start(node.cancel_grace(grace)).await;
    assert_eq!(pit.call::<i64>("add", args! { a: 1, b: 2 }).await.expect("a sum"), 3);
    let before = pids(&pit.pools()[0]);
    let nap = pit.call::<Value>("nap", args! { seconds: 1000 }).timeout(Duration::from_millis(300));
    let (late, sums) = tokio::join!(soon("the nap", nap), async {
        futures_util::future::join_all(
            (0..50).map(|n| pit.call::<i64>("add", args! { a: n, b: 1 }).into_future()),
        )
        .await
    });
    assert!(matches!(late, Err(CallError::Timeout { .. })), "{late:?}");
    assert_eq!(sums.into_iter().map(|sum| sum.expect("a sum")).sum::<i64>(), 1275);
    assert_eq!(pids(&pit.pools()[0]), before, "the nap was given up, and nobody had to die for it");
    let items: Vec<u32> = pit
        .stream::<u32>("count", args! { n: 1000 })
        .open()
        .expect("a stream")
        .map(|item| item.expect("an item"))
        .collect()
        .await;
    assert_eq!(items, (0..1000).collect::<Vec<_>>());
    assert_eq!(
        failure(&pit, "constructor", args! {}).await.remote().map(|remote| remote.kind.as_str()),
        Some("unknown_command")
    );
    pit.end().await;
}

/// Returns a worker that runs a Python script. The script has `say`, and `calls` with the calls by their lines.
fn script(program: &str) -> PoolOptions {
    let before = "import json, os, signal, sys, threading, time\n\
                  def say(**message): print(json.dumps(message), flush=True)\n";
    snakepit::stdio(["python3", "-c", &format!("{before}{program}")]).name("script").workers(1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_of_a_hundred_megabytes_is_an_answer() {
    let program = "say(status='ready')
for line in sys.stdin: say(id=json.loads(line)['id'], result='x' * 100_000_000)";
    let pit = Pit::start(script(program)).await;
    let answer = soon("the call", pit.call::<String>("long", args! {})).await.expect("an answer");
    assert_eq!(answer.len(), 100_000_000);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_a_line_end_does_not_count() {
    let program = "say(status='ready')
line = sys.stdin.readline()
sys.stdout.write('{\"id\":%d,\"result\":12' % json.loads(line)['id']); sys.stdout.flush()
os._exit(4)";
    let pit = Pit::start(script(program)).await;
    let error = failure(&pit, "half", args! {}).await;
    let autopsy = error.autopsy().unwrap_or_else(|| panic!("{error}"));
    assert_eq!(autopsy.exit.map(|exit| exit.status), Some(ExitStatus::Code(4)));
    assert!(autopsy.output.iter().any(|line| line.ends_with("\"result\":12")), "{autopsy}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_are_mixed_keep_their_items_and_their_order() {
    let program = "say(status='ready')
calls = [json.loads(sys.stdin.readline())['id'] for _ in range(3)]
for n in range(500):
    for call in calls: say(id=call, item=n)
for call in reversed(calls): say(id=call, end=True)
sys.stdin.read()";
    let pit = Pit::start(script(program).concurrency(3)).await;
    let streams = (0..3).map(|_| pit.stream::<u32>("count", args! {}).open().expect("a stream"));
    let all = futures_util::future::join_all(
        streams.map(|stream| stream.map(|item| item.expect("an item")).collect::<Vec<u32>>()),
    );
    for items in soon("the streams", all).await {
        assert_eq!(items, (0..500).collect::<Vec<_>>());
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_never_reads_fails_its_call_and_not_the_host() {
    let grace = CancelGrace::default().ask(Duration::from_millis(50));
    let pit = Pit::start(script("say(status='ready'); time.sleep(1000)").cancel_grace(grace)).await;
    let before = pids(&pit.pools()[0]);
    let large = "x".repeat(3_000_000);
    let call = pit.call::<Value>("deaf", args! { large: &large }).timeout(Duration::from_millis(300));
    let error = soon("the call", call).await.expect_err("nobody reads");
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    until("it is replaced", || pids(&pit.pools()[0]).iter().all(|pid| !before.contains(pid))).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_to_unknown_calls_and_a_second_ready_line_are_ignored() {
    let program = "say(status='ready')
for id in range(1_000_000, 1_000_100): say(id=id, result='guessed')
say(status='ready'); say(status='ready', port=1, pid=1)
for line in sys.stdin: say(id=json.loads(line)['id'], result='asked'); say(id=json.loads(line)['id'], result='twice')";
    let pit = Pit::start(script(program)).await;
    for _ in 0..20 {
        let answer = soon("the call", pit.call::<String>("x", args! {})).await.expect("an answer");
        assert_eq!(answer, "asked");
    }
    pit.end().await;
}

#[test]
fn the_examples_have_fewer_than_forty_lines() {
    for name in ["worker.sh", "worker.mjs"] {
        let text = std::fs::read_to_string(file("../../examples/stdio").join(name)).expect("an example");
        assert!(text.lines().count() < 40, "{name} has {} lines", text.lines().count());
    }
}
