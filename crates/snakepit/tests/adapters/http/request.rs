//! Commands that are routes of an application which knows nothing of Snakepit.

use std::path::Path;

use futures_util::StreamExt;
use snakepit::adapter::http::{Body, EventFormat, HttpMethod, HttpWorker, Readiness, Route};
use snakepit::value::{Args, Blob, Map};
use snakepit::{CallError, EngineError, Snakepit, Value, args};

use crate::support::{self, Pit, chain, lines, soon};

/// Returns the application, on the socket that it is given.
fn application(words: &[&str]) -> HttpWorker {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workers/http_app.py");
    let argv = ["python3".into(), file.to_string_lossy().into_owned(), "--uds".into(), "{socket}".into()];
    let words = words.iter().map(|word| (*word).to_owned());
    HttpWorker::new(argv.into_iter().chain(words).collect::<Vec<String>>()).ready(Readiness::Port)
}

async fn start(worker: HttpWorker) -> Pit {
    Pit::start(snakepit::http(worker).name("app").workers(1)).await
}

/// Returns what the application reports about a request.
async fn told(pit: &Pit, command: &str, args: Args) -> Value {
    let answer = soon(command, pit.call::<Value>(command, args)).await;
    answer.unwrap_or_else(|error| panic!("{command}: {}", chain(&error)))
}

/// Returns the error of a call that is not sent.
async fn refused(pit: &Pit, command: &str, args: Args) -> String {
    let error = soon(command, pit.call::<Value>(command, args)).await.expect_err("refused");
    assert!(matches!(error, CallError::Arguments { .. }), "{command}: {}", chain(&error));
    chain(&error)
}

async fn failed(pit: &Pit, command: &str, args: Args) -> String {
    let error = soon(command, pit.call::<Value>(command, args)).await.expect_err("an error");
    let remote = error.remote().unwrap_or_else(|| panic!("{command}: {}", chain(&error)));
    format!("{}: {remote}", remote.kind)
}

async fn items(pit: &Pit, command: &str) -> Vec<Value> {
    let stream = pit.stream::<Value>(command, args! {}).credit(2).open().expect("a stream");
    let items = soon(command, stream.collect::<Vec<_>>()).await;
    items.into_iter().map(|item| item.unwrap_or_else(|error| panic!("{}", chain(&error)))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_get_has_its_arguments_in_path_and_query() {
    let routes = application(&[])
        .prefix("/api")
        .route("get_item", Route::get("/v1/{id}/x-{part}").query(["limit", "tag"]))
        .route("search", Route::get("/search/"))
        .route("look", Route::new(HttpMethod::Head, "/v1/{id}"));
    let pit = start(routes).await;
    let args = args! { id: "ä b?&#%2e", part: 7, tag: vec!["x y", "z=&"], limit: Value::Nil };
    let said = told(&pit, "get_item", args).await;
    assert_eq!(said["method"].as_str(), Some("GET"));
    assert_eq!(said["path"].as_str(), Some("/api/v1/%C3%A4%20b%3F%26%23%252e/x-7"));
    assert_eq!(said["query"].to_string(), r#"[["tag","x y"],["tag","z=&"]]"#);
    assert_eq!((said["body"].as_str(), said["headers"].get("content-type")), (Some(""), None));
    // Without a list, the query takes all remaining arguments.
    let args = args! { text: "ü", page: 2, exact: true, near: 1.5, none: Value::Nil, ids: vec![1, 2] };
    let said = told(&pit, "search", args).await;
    assert_eq!(said["path"].as_str(), Some("/api/search/"));
    let query = r#"[["text","ü"],["page","2"],["exact","true"],["near","1.5"],["ids","1"],["ids","2"]]"#;
    assert_eq!(said["query"].to_string(), query);
    assert_eq!(told(&pit, "look", args! { id: 1 }).await, Value::Nil);
    assert_eq!(pit.pools()[0].commands(), ["get_item", "look", "search"]);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_without_a_route_is_posted_to_its_name() {
    let pit = start(application(&[]).route("other", Route::get("/items"))).await;
    let said = told(&pit, "add", args! { a: 1, b: vec![2] }).await;
    assert_eq!((said["method"].as_str(), said["path"].as_str()), (Some("POST"), Some("/add")));
    assert_eq!(said["body"].as_str(), Some(r#"{"a":1,"b":[2]}"#));
    assert_eq!(said["headers"]["content-type"].as_str(), Some("application/json"));
    assert_eq!(said["headers"]["accept"].as_str(), Some("application/json"));
    assert_eq!(told(&pit, "add", args![1, 2]).await["body"].as_str(), Some("[1,2]"));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_are_fixed_or_an_argument_and_never_the_adapters_own() {
    let route = Route::delete("/items/{id}")
        .header("authorization", "Bearer {token}")
        .header("X-Trace", "{trace}")
        .header("accept", "text/csv");
    let pit = start(application(&[]).route("delete_item", route)).await;
    let said = told(&pit, "delete_item", args! { id: 1, token: "s3cret" }).await;
    assert_eq!((said["method"].as_str(), said["path"].as_str()), (Some("DELETE"), Some("/items/1")));
    let headers = &said["headers"];
    assert_eq!(headers["authorization"].as_str(), Some("Bearer s3cret"));
    assert_eq!((headers["accept"].as_str(), headers.get("x-trace")), (Some("text/csv"), None));
    assert!(headers["snakepit-secret"].as_str().is_some_and(|secret| secret.len() == 32));
    for evil in ["a\r\nx-admin: 1", "a\nb", "a\0b", "grün", " a "] {
        let said = refused(&pit, "delete_item", args! { id: 1, token: "t", trace: evil }).await;
        let named = "the route of `delete_item` sends `trace` in the header `x-trace`";
        assert!(said.contains(named) && said.contains("DELETE /items/{id}"), "{evil:?}: {said}");
    }
    told(&pit, "delete_item", args! { id: 2 }).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_bytes_forms_json_or_none() {
    let csv = Route::post("/items").bytes("data", "text/csv").query(["name"]);
    let pit = start(
        application(&[])
            .route("upload", Route::put("/items/{name}").bytes("data", "application/octet-stream"))
            .route("typed", Route::put("/items").bytes("data", "image/png").header("content-type", "{kind}"))
            .route("csv", csv)
            .route("log_in", Route::post("/items").body(Body::Form).query(["next"]))
            .route("update", Route::patch("/items/{id}"))
            .route("poke", Route::post("/items/{id}").body(Body::None)),
    )
    .await;
    let bytes: Vec<u8> = (0..=255).collect();
    let args = args! { name: "a.bin", data: Blob::from(bytes.clone()), overwrite: true };
    let said = told(&pit, "upload", args).await;
    let latin: String = bytes.iter().copied().map(char::from).collect();
    assert_eq!((said["method"].as_str(), said["body"].as_str()), (Some("PUT"), Some(latin.as_str())));
    assert_eq!(said["headers"]["content-type"].as_str(), Some("application/octet-stream"));
    assert_eq!(said["query"].to_string(), r#"[["overwrite","true"]]"#);
    let said = told(&pit, "typed", args! { data: "x", kind: "text/plain" }).await;
    assert_eq!(said["headers"]["content-type"].as_str(), Some("text/plain"));
    let said = told(&pit, "csv", args! { data: "a,b" }).await;
    assert_eq!(
        (said["body"].as_str(), said["headers"]["content-type"].as_str()),
        (Some("a,b"), Some("text/csv"))
    );
    let said = refused(&pit, "csv", args! { data: "a", nmae: "typo" }).await;
    assert!(said.contains("has no place for the argument `nmae`"), "{said}");
    let said = refused(&pit, "csv", args! { data: vec![1] }).await;
    assert!(said.contains("must be a byte string or a text"), "{said}");
    let said = refused(&pit, "csv", args! {}).await;
    assert!(said.contains("the route of `csv` needs an argument `data`: POST /items"), "{said}");

    let said = told(&pit, "log_in", args! { user: "me & you", password: "ü+1", next: "/" }).await;
    assert_eq!(said["body"].as_str(), Some("user=me+%26+you&password=%C3%BC%2B1"));
    assert_eq!(said["headers"]["content-type"].as_str(), Some("application/x-www-form-urlencoded"));
    assert_eq!(said["query"].to_string(), r#"[["next","/"]]"#);
    let said = told(&pit, "update", args! { id: 7, name: "x", tags: vec!["a"] }).await;
    assert_eq!(
        (said["path"].as_str(), said["body"].as_str()),
        (Some("/items/7"), Some(r#"{"name":"x","tags":["a"]}"#))
    );
    let said = told(&pit, "poke", args! { id: 7, hard: true }).await;
    assert_eq!(
        (said["body"].as_str(), said["query"].to_string().as_str()),
        (Some(""), r#"[["hard","true"]]"#)
    );
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_path_arguments_fail_the_call_before_anything_is_sent() {
    let home = tempfile::tempdir().expect("a directory");
    let log = home.path().join("log").to_string_lossy().into_owned();
    let routes = application(&["--log", &log])
        .route("get_item", Route::get("/items/{id}"))
        .route("get_file", Route::get("/items/{name}.txt"));
    let pit = start(routes).await;
    for evil in ["../admin", "a/b", "..", ".", "", "a\\b", "/", "..\\.."] {
        let said = refused(&pit, "get_item", args! { id: evil }).await;
        assert!(
            said.contains("the route of `get_item` sends `id` as one part of a path"),
            "{evil:?}: {said}"
        );
    }
    let said = refused(&pit, "get_file", args! { name: "../../etc/passwd" }).await;
    assert!(said.contains("GET /items/{name}.txt"), "{said}");
    let said = refused(&pit, "get_item", args! { ids: 1 }).await;
    assert!(said.contains("the route of `get_item` needs an argument `id`: GET /items/{id}"), "{said}");
    let said = refused(&pit, "get_item", args! { id: Value::Nil }).await;
    assert!(said.contains("needs an argument `id`"), "{said}");
    let said = refused(&pit, "get_item", args![7]).await;
    assert!(said.contains("takes arguments by name"), "{said}");
    for (odd, what) in [
        (Value::from(vec![1]), "cannot hold a list"),
        (Map::from([("a", 1)]).into(), "cannot hold a map"),
        (Value::Bytes(vec![1].into()), "cannot hold a byte string"),
        (f64::NAN.into(), "cannot hold a number that is not finite"),
    ] {
        let said = refused(&pit, "get_item", args! { id: &odd }).await;
        assert!(said.contains(what), "{said}");
    }
    let said = refused(&pit, "get_item", args! { id: 1, filter: Map::from([("a", 1)]) }).await;
    assert!(said.contains("sends `filter` in a query, which cannot hold a map"), "{said}");
    let said = refused(&pit, "get_item", args! { id: 1, long: "x".repeat(70_000) }).await;
    assert!(said.contains("at most 65000 can be sent"), "{said}");
    assert_eq!(lines(&log), Vec::<String>::new());
    assert_eq!(told(&pit, "get_item", args! { id: "..." }).await["path"].as_str(), Some("/items/..."));
    assert_eq!(lines(&log), ["GET /items/..."]);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_route_fails_the_start_of_the_pool() {
    for (route, said) in [
        (Route::get("items"), "must begin with `/`"),
        (Route::get("/items?x=1"), "name the parameters of a query in `query`"),
        (Route::get("/items/../x"), "must not have a part \"..\""),
        (Route::get("/items/{id:int}"), "the name of an argument"),
        (Route::get("/items/{id"), "without a `}`"),
        (
            Route::get("/").header("Snakepit-Secret", "x"),
            "sets the header `snakepit-secret`, which only the adapter may set",
        ),
        (
            Route::get("/").header("content-length", "{x}"),
            "sets the header `content-length`, which only the adapter may set",
        ),
        (Route::get("/").header("a b", "x"), "\"a b\" is not a valid header name"),
        (Route::get("/").header("x", "a\r\nb"), "`x` has a line break"),
        (Route::post("/").bytes("data", "text/\n"), "is not a valid header value"),
    ] {
        let home = tempfile::tempdir().expect("a directory");
        let pool = snakepit::http(application(&[]).route("odd", route));
        let started = Snakepit::builder().pool(pool).custody(support::config(&home)).start();
        let error: EngineError = soon("the start", started).await.expect_err("refused");
        let error = chain(&error);
        assert!(error.contains("the route of `odd` is wrong: ") && error.contains(said), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_values_texts_or_bytes() {
    let routes = ["picture", "latin", "gone", "gzip"];
    let app =
        routes.iter().fold(application(&[]), |app, name| app.route(*name, Route::get(format!("/{name}"))));
    let pit = start(app.route("empty", Route::get("/empty"))).await;
    let picture: Blob = soon("the call", pit.call("picture", args! {})).await.expect("bytes");
    assert_eq!((&picture[..4], picture.len()), (&b"\x89PNG"[..], 264));
    let latin: Blob = soon("the call", pit.call("latin", args! {})).await.expect("bytes");
    assert_eq!(&latin[..], b"gr\xfcn");
    assert_eq!(told(&pit, "gone", args! {}).await, Value::Nil);
    let unzipped: Vec<String> = soon("the call", pit.call("gzip", args! {})).await.expect("a list");
    assert_eq!(unzipped.len(), 1000);
    assert_eq!(told(&pit, "empty", args! {}).await, Value::Nil);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gzip_bomb_is_not_unpacked_and_other_encodings_are_rejected() {
    let app = ["bomb", "brotli", "gzip_error"]
        .iter()
        .fold(application(&[]), |app, name| app.route(*name, Route::get(format!("/{name}"))))
        .route("broken", Route::get("/broken_gzip"));
    let pool = snakepit::http(app).name("app").workers(1).max_frame(1 << 20);
    let pit = Pit::start(pool).await;
    let before = peak_memory();
    assert!(failed(&pit, "bomb", args! {}).await.contains("longer than max_frame (1048576 bytes)"));
    assert!(peak_memory() < before + (64 << 10), "{before} and then {} KiB", peak_memory());
    for cut in [0, 1] {
        let said = failed(&pit, "broken", args! { cut: cut }).await;
        assert!(said.starts_with("bad_value: the worker's answer is not gzip"), "{said}");
    }
    assert!(failed(&pit, "brotli", args! {}).await.contains("content-encoding \"br\""));
    assert!(failed(&pit, "gzip_error", args! {}).await.contains("taken already"));
    // A stream of bytes has no known end, but its reader holds it back, and its pieces are small.
    let mut stream = pit.stream::<Blob>("bomb", args! {}).credit(1).open().expect("a stream");
    let first = soon("a piece", stream.next()).await.expect("a piece").expect("a piece");
    assert!(!first.is_empty() && first.len() <= 1 << 20, "{}", first.len());
    drop(stream);
    assert!(peak_memory() < before + (64 << 10), "{before} and then {} KiB", peak_memory());
    pit.end().await;
}

/// Returns the highest memory use of this process so far, in KiB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0");
    line.trim().trim_end_matches(" kB").trim().parse().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_are_not_json_are_texts() {
    let app = application(&[])
        .route("values", Route::get("/events"))
        .route("texts", Route::get("/events").events(EventFormat::Text))
        .route("full", Route::get("/events").events(EventFormat::Full))
        .route("gzip", Route::get("/gzip_events"));
    let pit = start(app).await;
    let shown = |items: Vec<Value>| items.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        shown(items(&pit, "values").await),
        [r#""plain wörds""#, "42", r#"{"a":1}"#, r#""two\nlines""#, r#""12345678901234567890123 things""#]
    );
    let texts: Vec<String> =
        items(&pit, "texts").await.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect();
    assert_eq!(texts, ["plain wörds", "42", "{\"a\": 1}", "two\nlines", "12345678901234567890123 things"]);
    let full = shown(items(&pit, "full").await);
    assert_eq!(full.len(), 7);
    assert_eq!(full[0], r#"{"event":"message","id":null,"data":"plain wörds"}"#);
    assert_eq!(full[1], r#"{"event":"tick","id":"7","data":"42"}"#);
    assert_eq!(full[6], r#"{"event":"message","id":null,"data":"after"}"#);
    let numbers: Vec<i64> = items(&pit, "gzip").await.iter().filter_map(Value::as_i64).collect();
    assert_eq!(numbers, (0..1000).collect::<Vec<_>>());
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_and_texts_are_streamed_in_pieces_on_request() {
    let app =
        application(&[]).route("download", Route::get("/download")).route("words", Route::get("/words"));
    let pit = start(app).await;
    let pieces = items(&pit, "download").await;
    assert!(pieces.len() > 1, "{}", pieces.len());
    let all: Vec<u8> = pieces.iter().flat_map(|piece| piece.as_bytes().expect("bytes").to_vec()).collect();
    assert_eq!(all, (0..50u8).flat_map(|n| [n; 1000]).collect::<Vec<_>>());
    let words = items(&pit, "words").await;
    assert!(words.len() > 1, "{}", words.len());
    let all: String = words.iter().map(|word| word.as_str().expect("a text")).collect();
    assert_eq!(all, "aä€😀 ".repeat(20));
    // For a caller that asks for a value, it is a single value.
    let whole: Blob = soon("the call", pit.call("download", args! {})).await.expect("bytes");
    assert_eq!(whole.len(), 50_000);
    pit.end().await;
}
