//! Checks of errors in the worker's code, as a caller gets them.

use crate::adapters::Subject;
use crate::adapters::test_engine::{TestEngine, chain};
use crate::{RemoteError, RemoteErrorKind, Value, args};

/// Returns the error of a command that must fail.
async fn failure(engine: &TestEngine, command: &str) -> RemoteError {
    let answer = engine.ask::<Value>(command, args! { message: "it went wrong: \"here\"" }).await;
    match answer {
        Ok(value) => panic!("{command} does not fail, and answers {value}"),
        Err(error) => match error.remote() {
            Some(remote) => remote.clone(),
            None => panic!("not an error of the worker's code: {}", chain(&error)),
        },
    }
}

pub(crate) async fn an_error_says_what_happened(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let error = failure(&engine, "fail").await;
    assert_eq!(error.kind, RemoteErrorKind::Exception, "its kind");
    assert_eq!(error.message, "it went wrong: \"here\"", "its message");
    engine.close().await;
}

pub(crate) async fn an_error_tells_its_type(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let error = failure(&engine, "fail").await;
    // Module names may come before it.
    let name = error.type_name.as_deref().unwrap_or_default();
    assert!(name.rsplit(['.', ':']).next() == Some("ConformanceError"), "its type is {name:?}");
    engine.close().await;
}

pub(crate) async fn an_error_tells_where_it_happened(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let error = failure(&engine, "fail").await;
    let Some(traceback) = &error.traceback else { panic!("{error} has no traceback") };
    assert!(traceback.contains("deep_inside"), "the function deep_inside is not in it:\n{traceback}");
    engine.close().await;
}

pub(crate) async fn an_error_tells_its_cause(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let error = failure(&engine, "fail_because").await;
    let messages: Vec<&str> = error.chain().map(|error| error.message.as_str()).collect();
    assert_eq!(messages, ["it went wrong: \"here\"", "the root of it"]);
    engine.close().await;
}

pub(crate) async fn an_error_harms_nobody(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let before = engine.pool().workers()[0].id.clone();
    for _ in 0..10 {
        failure(&engine, "fail").await;
        engine.assert_serves().await;
    }
    assert_eq!(engine.pool().workers()[0].id, before, "an error has cost the worker");
    engine.close().await;
}

pub(crate) async fn a_result_that_cannot_be_sent_is_an_error_with_its_path(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let error = failure(&engine, "unsendable").await;
    assert_eq!(error.kind, RemoteErrorKind::BadValue, "{error}");
    let path = error.path.as_deref().unwrap_or_default();
    assert!(path.contains("rows[1]"), "its place is rows[1], and not {path:?}: {error}");
    engine.close_serving().await;
}
