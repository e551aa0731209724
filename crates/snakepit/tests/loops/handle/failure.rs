//! Names and kinds of errors, and which errors are worth a retry.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use snakepit::call::RemoteErrorKind;
use snakepit::loops::{HandlerFailure, MainLoop, PoolLoop, PoolLoopOptions, RunOptions};
use snakepit::mailbox::{Backoff, DeadLetter, DeadLetterPolicy, DeadReason, TypedMessage};
use snakepit::{CallError, RemoteError};

use crate::mailboxes::{Mailboxes, end, run};
use crate::support::{Pit, worker};

#[derive(Debug)]
enum Odd {
    Even(u32),
}

impl std::fmt::Display for Odd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self::Even(number) = self;
        write!(f, "{number} is even")
    }
}

impl Error for Odd {}

type AnyError = Box<dyn Error + Send + Sync>;

fn io_error() -> std::io::Error {
    std::fs::read("/nowhere/at/all").expect_err("it is not there")
}

/// Returns what a handler's `?` makes of an error.
fn by_question_mark<T, E: Error + 'static>(result: Result<T, E>) -> HandlerFailure {
    let handler = || -> Result<(), HandlerFailure> {
        result?;
        Ok(())
    };
    handler().expect_err("an error")
}

#[test]
fn an_error_keeps_the_name_of_its_type_and_tells_its_kind() {
    let named = |failure: &HandlerFailure| (failure.name.clone(), failure.kinds.clone());
    let of = |name: &str, kinds: &[&str]| (name.to_owned(), kinds.iter().map(|&it| it.to_owned()).collect());
    let number = by_question_mark("x".parse::<i64>());
    assert_eq!(named(&number), of("ParseIntError", &[]));
    assert_eq!(number.to_string(), "ParseIntError: invalid digit found in string");
    let io = by_question_mark::<(), _>(Err(io_error()));
    assert_eq!(named(&io), of("io::Error", &["NotFound"]));
    let json = by_question_mark(serde_json::from_str::<i64>("x"));
    assert_eq!(json.name, "serde_json::Error");
    assert_eq!(named(&by_question_mark::<(), _>(Err(Odd::Even(4)))), of("Odd", &["Even"]));
    assert_eq!(named(&by_question_mark::<(), _>(Err(Box::new(Odd::Even(4))))), of("Odd", &["Even"]));
    // In a box, the type is gone, but not its `Debug` output.
    let boxed = |error: AnyError| named(&HandlerFailure::of(&*error));
    assert_eq!(boxed("x".parse::<i64>().expect_err("no number").into()), of("ParseIntError", &[]));
    assert_eq!(boxed(io_error().into()), of("io::Error", &["NotFound"]));
    assert_eq!(boxed(Odd::Even(4).into()), of("Even", &[]));
    assert_eq!(boxed("only a text".into()), of("Error", &[]));
    assert_eq!(boxed(CallError::Stopped.into()), of("Stopped", &[]));
}

#[test]
fn a_failure_does_not_say_its_name_twice() {
    let remote = |type_name: &str, message: &str| {
        let mut error = RemoteError::new(RemoteErrorKind::Exception, message);
        error.type_name = Some(type_name.to_owned());
        HandlerFailure::from(CallError::Remote(Box::new(error)))
    };
    let wordless = remote("KeyError", "");
    assert_eq!((wordless.to_string().as_str(), wordless.message.as_str()), ("KeyError", ""));
    let missing = remote("KeyError", "'a'");
    assert_eq!((missing.to_string().as_str(), missing.message.as_str()), ("KeyError: 'a'", "'a'"));
    assert_eq!(missing.kinds, ["exception"]);
    assert_eq!(remote("KeyErrors", "KeyErrors, many").to_string(), "KeyErrors: KeyErrors, many");
}

fn quick() -> DeadLetterPolicy {
    let pause = Duration::from_millis(1);
    DeadLetterPolicy::new().max_deliveries(3).backoff(Backoff::new(pause, pause).jitter(0.0))
}

fn error_of(letter: &DeadLetter) -> String {
    match &letter.reason {
        DeadReason::Failed { error } => error.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_may_return_boxed_errors_and_policies_match_kinds() {
    for mailboxes in Mailboxes::both() {
        let handler = |request: TypedMessage<String>| async move {
            match request.value.as_str() {
                "io" => drop(std::fs::read("/nowhere/at/all")?),
                "number" => drop("x".parse::<i64>()?),
                _ => return Err(AnyError::from(Odd::Even(2))),
            }
            Ok(())
        };
        let policy = quick().include("NotFound").include("Even").exclude("ParseIntError");
        let main = MainLoop::new("main", Arc::clone(&mailboxes.requests), handler).policy(policy);
        let scope = run(main, RunOptions::new()).await;
        for body in ["io", "number", "odd"] {
            mailboxes.send(json!(body)).await;
        }
        mailboxes.until_count(0, 0, 3).await;
        let dead = mailboxes.requests.dead_letters(10).await.expect("dead letters");
        let deliveries = |name: &str| {
            let found = dead.iter().find(|letter| error_of(letter).starts_with(name));
            found.unwrap_or_else(|| panic!("no {name} in {dead:?}")).message.delivery_count
        };
        assert_eq!(deliveries("io::Error: No such file"), 1, "{}", mailboxes.kind);
        assert_eq!(deliveries("Even: 2 is even"), 1, "{}", mailboxes.kind);
        assert_eq!(deliveries("ParseIntError: "), 3, "{}", mailboxes.kind);
        end(scope).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_the_command_does_not_take_are_not_tried_again() {
    let pit = Pit::start(worker("basic.py").workers(1)).await;
    let mailboxes = Mailboxes::memory();
    let adding =
        PoolLoop::new(&pit, Arc::clone(&mailboxes.requests), &PoolLoopOptions::new("add")).expect("a pool");
    let scope = run(adding, RunOptions::new()).await;
    for wrong in
        [json!({ "a": 1 }), json!({ "a": 1, "b": "x" }), json!({ "a": 1, "b": 2, "c": 3 }), json!([1, 2, 3])]
    {
        mailboxes.send(wrong).await;
    }
    mailboxes.until_count(0, 0, 4).await;
    for letter in mailboxes.requests.dead_letters(10).await.expect("dead letters") {
        assert_eq!(letter.message.delivery_count, 1, "{letter:?}");
    }
    end(scope).await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_of_exceptions_say_each_thing_once() {
    let pit = Pit::start(worker("progress.py").workers(1)).await;
    for (command, body, said) in
        [("missing", json!({ "key": "a" }), "KeyError: 'a'"), ("wordless", json!({}), "KeyError")]
    {
        let mailboxes = Mailboxes::memory();
        let failing = PoolLoop::new(&pit, Arc::clone(&mailboxes.requests), &PoolLoopOptions::new(command))
            .expect("a pool");
        let scope = run(failing.policy(quick().max_deliveries(1)), RunOptions::new()).await;
        let body: Value = body;
        mailboxes.send(body).await;
        mailboxes.until_count(0, 0, 1).await;
        let dead = mailboxes.requests.dead_letters(1).await.expect("dead letters");
        assert_eq!(error_of(&dead[0]), said);
        end(scope).await;
    }
    pit.end().await;
}

/// The name of a span, and the names of its fields.
type SpanFields = (String, Vec<String>);

/// Records with which fields each span was created.
#[derive(Clone, Default)]
struct Spans(Arc<std::sync::Mutex<Vec<SpanFields>>>);

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Spans {
    fn on_new_span(
        &self,
        span: &tracing::span::Attributes<'_>,
        _: &tracing::span::Id,
        _: tracing_subscriber::layer::Context<'_, S>,
    ) {
        let fields = span.metadata().fields().iter().map(|field| field.name().to_owned()).collect();
        self.0.lock().expect("no panic").push((span.metadata().name().to_owned(), fields));
    }
}

#[tokio::test]
async fn the_span_of_a_message_has_no_field_that_a_log_in_json_has_already() {
    use tracing_subscriber::layer::SubscriberExt as _;
    let spans = Spans::default();
    let _listens = tracing::subscriber::set_default(tracing_subscriber::registry().with(spans.clone()));
    let mailboxes = Mailboxes::memory();
    let handler = |request: TypedMessage<i64>| async move { Ok::<_, HandlerFailure>(request.value) };
    let scope = run(MainLoop::new("main", Arc::clone(&mailboxes.requests), handler), RunOptions::new()).await;
    mailboxes.ask(json!(1)).await;
    mailboxes.reply().await;
    end(scope).await;
    let seen = spans.0.lock().expect("no panic").clone();
    let (_, fields) = seen.iter().find(|(name, _)| name == "message").expect("the span of the message");
    assert_eq!(fields, &["loop_name", "message_id"]);
}
