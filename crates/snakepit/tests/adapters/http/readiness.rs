//! Workers that serve HTTP without a ready line: the host assigns the address and probes it.

use std::collections::BTreeSet;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use snakepit::adapter::Program;
use snakepit::adapter::http::{HttpWorker, Readiness, Route};
use snakepit::custody::{Containment, CustodyOptions};
use snakepit::{EngineError, PoolOptions, Snakepit, StartError, Value, args};

use crate::support::{self, Pit, SOON, chain, lines, runs_in, soon};

fn application(words: &[&str]) -> HttpWorker {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workers/http_app.py");
    let argv = ["python3".to_owned(), file.to_string_lossy().into_owned()];
    let words = words.iter().map(|word| (*word).to_owned());
    HttpWorker::new(Program::new(argv.into_iter().chain(words)))
}

fn pool(worker: HttpWorker) -> PoolOptions {
    snakepit::http(worker.route("look", Route::get("/items"))).name("app").workers(1)
}

/// Returns why an engine with this pool does not start. Proves that the attempt leaves nothing behind.
async fn refused(pool: PoolOptions) -> EngineError {
    let home = tempfile::tempdir().expect("a directory");
    let start = Snakepit::builder().pool(pool).custody(support::config(&home)).start();
    let error = soon("the start", start).await.expect_err("a start that fails");
    assert!(runs_in(home.path()).is_empty());
    error
}

async fn look(pit: &Pit) -> Value {
    let said = soon("the call", pit.call::<Value>("look", args! {})).await;
    said.unwrap_or_else(|error| panic!("{}", chain(&error)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_without_a_ready_line_is_reported_with_its_last_lines_and_the_ways_out() {
    let plain = pool(application(&["--port", "0"])).worker_start_timeout(Duration::from_secs(4));
    let error = refused(plain).await;
    let EngineError::Start { source: StartError::Timeout { awaited: Some(_), .. }, .. } = &error else {
        panic!("{error:?}")
    };
    let said = chain(&error);
    let line = "within 4s (worker_start_timeout): no ready line came; its last lines:\n  Application startup complete.";
    assert!(said.contains(line), "{said}");
    for way_out in
        [r#"{"status": "ready", "port": 54321}"#, r#"ready = "port""#, r#"ready = { probe = "/healthz" }"#]
    {
        assert!(said.contains(way_out), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_ready_when_it_listens_on_the_socket_that_it_was_told_of_in_every_tier() {
    for containment in support::possible([Containment::Auto, Containment::Namespace, Containment::Group]) {
        for words in [["--uds", "{socket}"], ["--port", "{port}"]] {
            let pool = pool(application(&words).ready(Readiness::Port));
            let builder = Snakepit::builder().pool(pool);
            let pit = Pit::build_with(builder, CustodyOptions::default().containment(containment)).await;
            assert_eq!(look(&pit).await["method"].as_str(), Some("GET"), "{containment:?} {words:?}");
            pit.end().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_worker_has_a_port_of_its_own_in_arguments_and_variables() {
    let home = tempfile::tempdir().expect("a directory");
    let ports = home.path().join("ports").to_string_lossy().into_owned();
    let script = r#"
import http.server, os
port = os.environ["PORT"].partition(":")[2]
assert port == os.environ["SNAKEPIT_PORT"] and "SNAKEPIT_SOCKET" not in os.environ
with open(os.environ["PORTS"], "a") as file:
    print(port, file=file)
http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), http.server.SimpleHTTPRequestHandler).serve_forever()
"#;
    let program = Program::new(["python3", "-c", script])
        .env("PORT", "localhost:{port}")
        .env("PORTS", &ports)
        .current_dir(home.path());
    let worker =
        HttpWorker::new(program).ready(Readiness::probe("/ports")).route("read", Route::get("/ports"));
    let pit = Pit::start(snakepit::http(worker).workers(4)).await;
    let found: BTreeSet<String> = lines(&ports).into_iter().collect();
    assert_eq!(found.len(), 4, "{found:?}");
    let read = soon("the call", pit.call::<Value>("read", args! {})).await.expect("the file");
    assert!(read.as_bytes().is_some_and(|bytes| !bytes.is_empty()), "{read}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_readiness_probe_is_repeated_until_it_succeeds() {
    let home = tempfile::tempdir().expect("a directory");
    let log = home.path().join("log").to_string_lossy().into_owned();
    for (words, expected) in [(["--uds", "{socket}"], 4), (["--port", "{port}"], 8)] {
        let words = [words[0], words[1], "--unready", "3", "--log", &log];
        let pit = Pit::start(pool(application(&words).ready(Readiness::probe("/healthz")))).await;
        assert_eq!(lines(&log), vec!["GET /healthz"; expected]);
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_never_gets_ready_fails_with_the_last_answer_of_its_probe() {
    let late = |worker: HttpWorker| pool(worker).worker_start_timeout(Duration::from_secs(4));
    let probe = Readiness::probe("/healthz");
    let never = application(&["--uds", "{socket}", "--unready", "1000000"]).ready(probe);
    let said = chain(&refused(late(never)).await);
    let found = "GET /healthz was answered with 503 Service Unavailable, not with 2xx; its last lines:\n  Application";
    assert!(said.contains(found), "{said}");
    let silent = application(&["--uds", "{socket}", "--silent"]).ready(Readiness::Port);
    let said = chain(&refused(late(silent)).await);
    assert!(said.contains("The program must listen on the Unix socket /"), "{said}");
    assert!(said.contains("SNAKEPIT_SOCKET") && said.contains("Application startup complete."), "{said}");
    let silent = application(&["--port", "{port}", "--silent"]).ready(Readiness::Port);
    let said = chain(&refused(late(silent)).await);
    assert!(said.contains("no process listens on port ") && said.contains("SNAKEPIT_PORT"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_exits_before_it_is_ready_fails_the_start_at_once() {
    let began = Instant::now();
    let odd = pool(application(&["--no-such-option"]).ready(Readiness::Port));
    let error = refused(odd.worker_start_timeout(SOON * 10)).await;
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    let EngineError::Start { source: StartError::Exited { output, .. }, .. } = &error else {
        panic!("{}", chain(&error))
    };
    assert!(output.iter().any(|line| line.contains("--no-such-option")), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_held_by_another_process_is_rejected_and_receives_nothing() {
    let thief = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = thief.local_addr().expect("an address").port();
    for readiness in [Readiness::Port, Readiness::probe("/healthz")] {
        let began = Instant::now();
        let worker = application(&["--silent"]).ready(readiness).port(port);
        let said = chain(&refused(pool(worker).worker_start_timeout(SOON * 10)).await);
        assert!(said.contains("no process of this worker holds the socket"), "{said}");
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    }
    thief.set_nonblocking(true).expect("a flag");
    while let Ok((mut victim, _)) = thief.accept() {
        victim.set_nonblocking(false).expect("a flag");
        victim.set_read_timeout(Some(Duration::from_secs(2))).expect("a limit");
        let mut said = Vec::new();
        let _ = victim.read_to_end(&mut said);
        assert_eq!(said, b"");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_may_have_a_fixed_port() {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = free.local_addr().expect("an address").port();
    drop(free);
    let worker = application(&["--port", &port.to_string()]).ready(Readiness::probe("/healthz")).port(port);
    let pit = Pit::start(pool(worker)).await;
    look(&pit).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn contradictory_settings_fail_the_start_of_the_pool() {
    for (worker, said) in [
        (application(&[]).port(80), "choose Readiness::Port or Readiness::Probe"),
        (application(&["{port}", "{socket}"]).ready(Readiness::Port), "keep one"),
        (application(&["{socket}"]).ready(Readiness::Port).port(80), "keep one"),
        (application(&[]).ready(Readiness::probe("healthz")), "is not a path: write it like \"/healthz\""),
    ] {
        let told = chain(&refused(pool(worker)).await);
        assert!(told.contains(said), "{told}");
    }
}

#[expect(clippy::disallowed_methods, reason = "asks whether a program is there, as a shell would")]
fn runs_here(program: &str, arguments: &[&str]) -> bool {
    std::process::Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

/// The application of `examples/http/plain.py`, under a uvicorn without any configuration for Snakepit.
#[tokio::test(flavor = "multi_thread")]
async fn a_plain_application_of_fastapi_under_plain_uvicorn_is_a_worker() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = root.join(".venv/bin/python").to_string_lossy().into_owned();
    if !runs_here(&python, &["-c", "import fastapi, uvicorn"]) {
        return support::unproven("fastapi and uvicorn are not in .venv");
    }
    for place in [["--uds", "{socket}"], ["--port", "{port}"]] {
        let argv = [&python, "-m", "uvicorn", "plain:app", place[0], place[1]];
        let program = Program::new(argv).current_dir(root.join("examples/http"));
        let worker = HttpWorker::new(program)
            .ready(Readiness::probe("/healthz"))
            .route("put_item", Route::put("/items/{name}"))
            .route(
                "get_item",
                Route::get("/items/{name}").query(["upper"]).header("authorization", "Bearer {token}"),
            )
            .route("delete_item", Route::delete("/items/{name}"))
            .route("measure", Route::post("/measure").bytes("data", "application/octet-stream"))
            .route("picture", Route::get("/picture"))
            .route("tokens", Route::get("/tokens"));
        let pit = Pit::start(snakepit::http(worker).name("plain").workers(1)).await;
        let call = |command: &'static str, args: snakepit::value::Args| {
            let pit = &pit;
            async move { soon(command, pit.call::<Value>(command, args)).await }
        };
        call("put_item", args! { name: "tea", text: "grün" }).await.expect("kept");
        let args = args! { name: "tea", upper: true, token: "letmein" };
        assert_eq!(call("get_item", args).await.expect("an item")["text"].as_str(), Some("GRÜN"));
        let error = call("get_item", args! { name: "tea" }).await.expect_err("no token");
        assert!(
            error.remote().is_some_and(|error| error.to_string().contains("HTTP 401")),
            "{}",
            chain(&error)
        );
        assert_eq!(call("delete_item", args! { name: "tea" }).await.expect("gone"), Value::Nil);
        let data = snakepit::value::Blob::from(vec![0, 255, 10, 13]);
        assert_eq!(call("measure", args! { data: data }).await.expect("a number"), Value::from(4));
        let picture = call("picture", args! {}).await.expect("bytes");
        assert!(picture.as_bytes().is_some_and(|bytes| bytes.starts_with(b"\x89PNG")), "{picture}");
        let stream = pit.stream::<Value>("tokens", args! { text: "no JSON here" }).open().expect("a stream");
        let tokens: Vec<_> = soon("the stream", futures_util::StreamExt::collect::<Vec<_>>(stream)).await;
        let tokens: Vec<String> = tokens.into_iter().map(|item| item.expect("an item").to_string()).collect();
        assert_eq!(tokens, [r#""no""#, r#""JSON""#, r#""here""#]);
        pit.end().await;
    }
}
