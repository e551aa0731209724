//! What a host with its own subscriber receives: little by default, more on request, and never less than it needs.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use snakepit::pool::CancelGrace;
use snakepit::telemetry::{LogLevel, Logging};
use snakepit::{CallError, Snakepit, Value, args};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::support::{Pit, soon, until, worker};

const SHORT: CancelGrace = CancelGrace::each(Duration::from_millis(200)).ask(Duration::from_millis(20));

/// What a worker prints and logs for one `say`.
const STREAMS: [&str; 3] = ["out", "err", "log: info:"];

#[derive(Clone, Default, Debug)]
struct Heard {
    level: Option<Level>,
    target: String,
    fields: Vec<(String, String)>,
}

impl Heard {
    fn field(&self, name: &str) -> &str {
        self.fields.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

impl Visit for Heard {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.push((field.name().to_owned(), value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.push((field.name().to_owned(), format!("{value:?}")));
    }
}

/// Collects everything, down to the lowest level.
#[derive(Clone, Default)]
struct Ear(Arc<Mutex<Vec<Heard>>>);

impl Subscriber for Ear {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("snakepit")
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let target = metadata.target().to_owned();
        let mut heard = Heard { level: Some(*metadata.level()), target, fields: Vec::new() };
        event.record(&mut heard);
        self.0.lock().expect("the ear").push(heard);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl Ear {
    /// Collects the events of this thread, which must be the only one of its runtime.
    fn listen() -> (Self, DefaultGuard) {
        let ear = Self::default();
        let guard = tracing::subscriber::set_default(ear.clone());
        (ear, guard)
    }

    fn all(&self) -> Vec<Heard> {
        self.0.lock().expect("the ear").clone()
    }

    /// Returns the events about the output of workers.
    fn output(&self) -> Vec<Heard> {
        self.all().into_iter().filter(|heard| heard.target == "snakepit::output").collect()
    }
}

async fn start(logging: Logging) -> Pit {
    let pool = worker("loud.py").workers(1).cancel_grace(SHORT);
    Pit::build(Snakepit::builder().logging(logging).pool(pool)).await
}

fn printed(pit: &Pit) -> u64 {
    let pool = &pit.pools()[0];
    let output = pool.workers().first().and_then(|worker| pool.output(&worker.id)).unwrap_or_default();
    output.lines.len() as u64 + output.dropped
}

/// Makes a worker print a text, and waits until the host has read it.
async fn say(pit: &Pit, text: &str) {
    let before = printed(pit);
    let _: Value = soon("a word", pit.call("say", args! { text: text })).await.expect("said");
    until("it is read", || printed(pit) >= before + STREAMS.len() as u64).await;
}

fn lines_of(text: &str) -> Vec<String> {
    let mut lines = vec![format!("out {text}"), format!("err {text}"), format!("info: log {text}")];
    lines.sort();
    lines
}

fn sorted<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut lines: Vec<String> = lines.map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Checks that there is one event about a worker's output, for a call of this command. Returns its lines.
fn told(ear: &Ear, command: &str, outcome: &str) -> Vec<String> {
    let heard = ear.output();
    assert_eq!(heard.len(), 1, "{heard:#?}");
    assert_eq!(heard[0].level, Some(Level::WARN));
    assert_eq!((heard[0].field("command"), heard[0].field("outcome")), (command, outcome));
    assert!(heard[0].field("worker").starts_with("loud-"), "{heard:#?}");
    assert!(heard[0].field("call").parse::<u64>().is_ok_and(|id| id > 0), "{heard:#?}");
    sorted(heard[0].field("lines").lines())
}

#[tokio::test(flavor = "current_thread")]
async fn by_default_a_library_logs_nothing_about_success() {
    let (ear, _guard) = Ear::listen();
    let pit = start(Logging::default()).await;
    say(&pit, "well").await;
    let _: u32 = soon("the flood", pit.call("shout", args! { lines: 500 })).await.expect("shouted");
    let items: Vec<_> = pit.stream::<u32>("count", args! { n: 3 }).open().expect("opened").collect().await;
    assert_eq!(items.len(), 3);
    pit.end().await;
    let heard: Vec<_> = ear.all().into_iter().filter(|heard| heard.level > Some(Level::WARN)).collect();
    assert!(heard.is_empty(), "{heard:#?}");
    assert!(ear.output().is_empty(), "{:#?}", ear.output());
}

#[tokio::test(flavor = "current_thread")]
async fn at_level_info_the_start_and_end_of_the_engine_are_logged() {
    let (ear, _guard) = Ear::listen();
    let pit = start(Logging::default().log_level(LogLevel::Info)).await;
    say(&pit, "well").await;
    pit.end().await;
    let heard = ear.all();
    let said = |event| heard.iter().any(|it| it.level == Some(Level::INFO) && it.field("event") == event);
    assert!(said("snakepit.pool.ready") && said("snakepit.script.shutdown.exit"), "{heard:#?}");
    assert!(heard.iter().all(|heard| heard.level <= Some(Level::INFO)), "{heard:#?}");
    assert!(ear.output().is_empty(), "{:#?}", ear.output());
}

#[tokio::test(flavor = "current_thread")]
async fn with_forwarding_every_line_of_output_is_logged() {
    let (ear, _guard) = Ear::listen();
    let pit = start(Logging::default().forward_output()).await;
    say(&pit, "one \u{1b}[31m").await;
    let failed = soon("a failure", pit.call::<Value>("fail", args! { text: "two" })).await;
    assert!(matches!(failed, Err(CallError::Remote(_))), "{failed:?}");
    until("all is read", || printed(&pit) == 7).await;
    pit.end().await;
    let heard = ear.output();
    assert!(heard.iter().all(|heard| heard.level == Some(Level::INFO)), "{heard:#?}");
    assert!(heard.iter().all(|heard| heard.field("worker") == "loud-1"), "{heard:#?}");
    let mut expected = [lines_of("one \\u{1b}[31m"), lines_of("two")].concat();
    expected.push("imported".into());
    expected.sort();
    // Each line appears once: it is not repeated with the failure.
    assert_eq!(sorted(heard.iter().map(|heard| heard.field("text"))), expected);
    for stream in ["stdout", "stderr", "log"] {
        assert!(heard.iter().any(|heard| heard.field("stream") == stream), "{stream}: {heard:#?}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn program_logging_forwards_output_unless_it_is_hidden() {
    for (logging, lines) in [
        (Logging::default().for_program(), 4),
        (Logging::default().for_program().hide_output(), 0),
        (Logging::default().for_program().log_level(LogLevel::Warning), 0),
    ] {
        let (ear, _guard) = Ear::listen();
        let pit = start(logging).await;
        say(&pit, "one").await;
        until("all is read", || printed(&pit) == 4).await;
        pit.end().await;
        assert_eq!(ear.output().len(), lines, "{logging:?}: {:#?}", ear.output());
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_call_that_fails_shows_what_was_printed_in_it_and_no_more() {
    let (ear, _guard) = Ear::listen();
    let pit = start(Logging::default()).await;
    say(&pit, "before").await;
    let failed = soon("a failure", pit.call::<Value>("fail", args! { text: "in it" })).await;
    assert!(matches!(failed, Err(CallError::Remote(_))), "{failed:?}");
    say(&pit, "after").await;
    pit.end().await;
    assert_eq!(told(&ear, "fail", "failed"), lines_of("in it"));
}

#[tokio::test(flavor = "current_thread")]
async fn a_call_that_never_ran_shows_nothing() {
    let (ear, _guard) = Ear::listen();
    let pit = start(Logging::default()).await;
    let failed = soon("a typo", pit.call::<Value>("sya", args! { text: "x" })).await;
    assert!(matches!(failed, Err(CallError::Remote(_))), "{failed:?}");
    pit.end().await;
    assert!(ear.output().is_empty(), "{:#?}", ear.output());
}

#[tokio::test(flavor = "current_thread")]
async fn a_call_that_is_late_shows_what_was_printed_in_it() {
    let (ear, _guard) = Ear::listen();
    let pit = start(Logging::default()).await;
    say(&pit, "before").await;
    let late = pit.call::<Value>("sleep", args! { text: "in it" }).timeout(Duration::from_millis(500));
    let error = soon("a late call", late).await.expect_err("no time");
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    assert!(error.to_string().contains("last lines:") && error.to_string().contains("err in it"), "{error}");
    pit.end().await;
    assert_eq!(told(&ear, "sleep", "timed out"), lines_of("in it"));
}

#[tokio::test(flavor = "current_thread")]
async fn a_call_whose_worker_dies_shows_what_was_printed_in_it() {
    let (ear, _guard) = Ear::listen();
    let pit = start(Logging::default()).await;
    say(&pit, "before").await;
    let error = soon("a death", pit.call::<Value>("die", args! { text: "in it" })).await.expect_err("dead");
    assert!(error.to_string().contains("out in it"), "{error}");
    pit.end().await;
    let lines = told(&ear, "die", "lost");
    // Lines that went through the SDK may have died with the worker.
    assert!(lines.contains(&"out in it".into()) && lines.contains(&"err in it".into()), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("before")), "{lines:?}");
}

#[tokio::test(flavor = "current_thread")]
async fn a_stream_that_fails_shows_what_was_printed_in_it() {
    let (ear, _guard) = Ear::listen();
    let pit = start(Logging::default()).await;
    say(&pit, "before").await;
    let stream = pit.stream::<u32>("count_and_fail", args! { n: 2 }).open().expect("opened");
    let items: Vec<_> = soon("the stream", stream.collect::<Vec<_>>()).await;
    assert!(items.len() == 3 && items[2].is_err(), "{items:?}");
    pit.end().await;
    let mut expected = [lines_of("item 0"), lines_of("item 1")].concat();
    expected.sort();
    assert_eq!(told(&ear, "count_and_fail", "failed"), expected);
}

#[derive(serde::Serialize)]
struct Input {
    text: String,
    fails: bool,
}

#[tokio::test(flavor = "current_thread")]
async fn inputs_of_a_map_that_fail_show_what_was_printed_for_their_frame() {
    for (fails, expected) in [(false, 0), (true, 1)] {
        let (ear, _guard) = Ear::listen();
        let pit = start(Logging::default()).await;
        let inputs = (0..4).map(move |n| Input { text: n.to_string(), fails: fails && n == 2 });
        let map = pit.map::<String, _>("fail_if", inputs).chunk(4).in_order().expect("begun");
        let outcomes: Vec<_> = soon("the map", map.collect::<Vec<_>>()).await;
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_err()).count(), expected, "{outcomes:?}");
        pit.end().await;
        let heard = ear.output();
        assert_eq!(heard.len(), expected, "{heard:#?}");
        assert!(heard.iter().all(|heard| heard.field("lines").contains("out 2")), "{heard:#?}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_flood_before_a_failure_is_shown_by_its_first_and_last_lines() {
    let (ear, _guard) = Ear::listen();
    let pit = start(Logging::default()).await;
    let text = vec!["x"; 1000].join("\n");
    let failed = soon("a failure", pit.call::<Value>("fail", args! { text: text })).await;
    assert!(failed.is_err());
    pit.end().await;
    let lines = told(&ear, "fail", "failed");
    assert_eq!(lines.len(), 81, "{lines:?}");
    assert!(lines.iter().any(|line| line.ends_with(" lines left out …")), "{lines:?}");
}

/// Messages outside any engine follow the loudest engine of the process. The runner gives each test a process of its
/// own.
#[tokio::test(flavor = "current_thread")]
async fn at_level_off_not_even_failures_are_logged() {
    let (ear, _guard) = Ear::listen();
    let pit = start(Logging::default().log_level(LogLevel::Off)).await;
    let failed = soon("a failure", pit.call::<Value>("fail", args! { text: "x" })).await;
    assert!(failed.is_err());
    pit.end().await;
    assert!(ear.all().is_empty(), "{:#?}", ear.all());
}

/// Reports whether messages are discarded.
fn is_unheard() -> bool {
    tracing::dispatcher::get_default(tracing::Dispatch::is::<NoSubscriber>)
}

#[tokio::test(flavor = "current_thread")]
async fn a_subscriber_is_installed_only_for_a_program_of_its_own_that_has_the_feature() {
    let pit = start(Logging::default()).await;
    pit.end().await;
    assert!(is_unheard(), "a library");
    let (_, guard) = Ear::listen();
    let pit = start(Logging::default().for_program()).await;
    pit.end().await;
    drop(guard);
    assert!(is_unheard(), "a host that has one");
    let pit = start(Logging::default().for_program()).await;
    pit.end().await;
    assert_eq!(is_unheard(), cfg!(not(feature = "console")));
}
