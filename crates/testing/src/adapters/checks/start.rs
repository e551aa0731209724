//! Checks of how a worker becomes ready, and of what happens if it does not.

use std::time::Duration;

use tokio::time::Instant;

use crate::adapters::test_engine::{SOON, TestEngine, chain};
use crate::adapters::{Feature, Subject, Way};
use crate::custody::ExitStatus;
use crate::{EngineError, RemoteErrorKind, StartError, Value, args};

/// The start timeout of a worker that never becomes ready.
const LITTLE_TIME: Duration = Duration::from_millis(1500);

pub(crate) async fn a_worker_that_is_ready_answers(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let workers = engine.pool().workers();
    assert_eq!(workers.len(), 1, "one worker serves");
    if subject.capability(Feature::Processes) == super::super::Capability::Present {
        assert!(workers[0].pid.is_some(), "a worker that is a process has a pid");
    }
    let echoed: String = engine.get("echo", args! { value: "hello" }).await;
    assert_eq!(echoed, "hello");
    engine.close().await;
}

pub(crate) async fn a_worker_says_which_commands_it_has(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let commands = engine.pool().commands();
    for command in ["add", "echo", "fail"] {
        assert!(commands.iter().any(|known| known == command), "{command} is not among {commands:?}");
    }
    engine.close().await;
}

pub(crate) async fn an_unknown_command_is_an_error_that_says_so(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let answer = engine.ask::<Value>("no_such_command", args! {}).await;
    let Err(error) = answer else { panic!("a command that does not exist answers {answer:?}") };
    let Some(remote) = error.remote() else { panic!("not an error of the worker: {}", chain(&error)) };
    assert_eq!(remote.kind, RemoteErrorKind::UnknownCommand, "{error}");
    assert!(remote.message.contains("no_such_command"), "it does not name the command: {error}");
    engine.close_serving().await;
}

pub(crate) async fn a_worker_that_is_never_ready_is_given_up(subject: &dyn Subject) {
    let started =
        TestEngine::start(subject, Way::NeverReady, |pool| pool.worker_start_timeout(LITTLE_TIME)).await;
    let Err((error, recording)) = started else { panic!("it counts as ready, and is not") };
    assert!(
        matches!(error, EngineError::Start { source: StartError::Timeout { .. }, .. }),
        "not an error of time: {}",
        chain(&error)
    );
    // Another start may have begun before the engine stopped.
    assert!(recording.starts() >= 1 && recording.ready() == 0, "{} workers got ready", recording.ready());
}

pub(crate) async fn a_worker_that_ends_before_it_is_ready_fails_at_once(subject: &dyn Subject) {
    let began = Instant::now();
    let patient = |pool: crate::PoolOptions| pool.worker_start_timeout(SOON * 10);
    let started = TestEngine::start(subject, Way::EndsBeforeReady, patient).await;
    let Err((error, recording)) = started else { panic!("it counts as ready, and has ended") };
    assert!(began.elapsed() < SOON, "the error came after {:?}", began.elapsed());
    match &error {
        EngineError::Start { source: StartError::Exited { status, output, .. }, .. } => {
            assert_eq!(*status, ExitStatus::Code(3), "its status");
            assert!(output.iter().any(|line| line.contains("no, thank you")), "its last words: {output:?}");
        }
        other => panic!("not an error that says how it ended: {}", chain(other)),
    }
    // Another start may have begun before the engine stopped.
    assert!(recording.starts() >= 1 && recording.ready() == 0, "{} workers got ready", recording.ready());
}
