//! The engine of a check: a pool, and a state directory that must not hold a run at the end.

use std::error::Error;
use std::fmt::Display;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;

use super::recording::{Recording, RecordingAdapter};
use super::{Subject, Way};
use crate::custody::CustodyOptions;
pub(super) use crate::error_text::with_causes as chain;
use crate::{Builder, CallError, EngineError, Pool, PoolOptions, Restarts, Snakepit, Value};

/// The time limit for things that take milliseconds on an idle machine.
// The suite's own tests break things on purpose and should notice that sooner.
pub(super) const SOON: Duration = Duration::from_secs(if cfg!(test) { 6 } else { 30 });

/// How often to look for a change that another process makes.
const LOOK: Duration = Duration::from_millis(5);

/// The tool that workers may use: it returns the sum of `a` and `b`.
pub(super) const TOOL: &str = "conformance_add";

#[derive(serde::Deserialize)]
struct Summands {
    a: i64,
    b: i64,
}

/// A running engine with one pool of the conformance worker.
pub(super) struct TestEngine {
    pit: Snakepit,
    pub(super) recording: Arc<Recording>,
    home: TempDir,
}

impl TestEngine {
    /// Starts a pool with one worker.
    pub(super) async fn open(subject: &dyn Subject) -> Self {
        Self::with(subject, |pool| pool).await
    }

    /// Starts a pool whose options `change` has changed.
    pub(super) async fn with(subject: &dyn Subject, change: impl FnOnce(PoolOptions) -> PoolOptions) -> Self {
        let started = Self::start(subject, Way::Ready, change).await;
        or_panic(started.map_err(|(error, _)| error), "the pool does not start")
    }

    /// Waits until the pool is ready. Otherwise returns the error and the recording of the adapter.
    pub(super) async fn start(
        subject: &dyn Subject,
        way: Way,
        change: impl FnOnce(PoolOptions) -> PoolOptions,
    ) -> Result<Self, (EngineError, Arc<Recording>)> {
        let (builder, recording, home) = plan(subject, way, change);
        match within(SOON, "the start", builder.start()).await {
            Ok(pit) => Ok(Self { pit, recording, home }),
            Err(error) => {
                assert_no_runs(home.path());
                Err((error, recording))
            }
        }
    }

    /// Starts a pool without waiting until it is ready.
    pub(super) async fn begin(
        subject: &dyn Subject,
        way: Way,
        change: impl FnOnce(PoolOptions) -> PoolOptions,
    ) -> Self {
        let (builder, recording, home) = plan(subject, way, change);
        let pit = or_panic(builder.start_in_background().await, "the pool does not start");
        Self { pit, recording, home }
    }

    /// Returns the only pool of the engine.
    pub(super) fn pool(&self) -> &Pool {
        &self.pit.pools()[0]
    }

    /// Returns a path in the directory of the check.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Makes a call that must be answered soon.
    pub(super) async fn ask<T: DeserializeOwned + Send + 'static>(
        &self,
        command: &str,
        args: impl Serialize,
    ) -> Result<T, CallError> {
        soon(command, self.pit.call(command, args)).await
    }

    /// Like [`TestEngine::ask`], for a call that must not fail.
    pub(super) async fn get<T: DeserializeOwned + Send + 'static>(
        &self,
        command: &str,
        args: impl Serialize,
    ) -> T {
        or_panic(self.ask(command, args).await, format_args!("{command} fails"))
    }

    /// Asserts that the pool serves calls.
    pub(super) async fn assert_serves(&self) {
        let sum: i64 = self.get("add", crate::args! { a: 20, b: 22 }).await;
        assert_eq!(sum, 42, "add answers something else");
    }

    /// Makes a call of `wait` and waits until it has begun. Returns its answer and the file that ends it.
    pub(super) async fn begin_wait(&self, name: &str) -> WaitCall {
        let (started, release) = (self.path(name), self.path(&format!("{name}.release")));
        let args = crate::args! { started: text(&started), release: text(&release) };
        let answer = tokio::spawn(self.pit.call::<String>("wait", args).into_future());
        until("wait has begun", || has_line(&started, "started")).await;
        WaitCall { answer, started, release }
    }

    /// Makes a call of `stubborn` and waits until it has begun. Only KILL ends the call, which uses no CPU.
    pub(super) async fn begin_stubborn(&self) -> tokio::task::JoinHandle<Result<Value, CallError>> {
        let started = self.path("stubborn");
        let args = crate::args! { started: text(&started) };
        let answer = tokio::spawn(self.pit.call("stubborn", args).into_future());
        until("stubborn has begun", || has_line(&started, "started")).await;
        answer
    }

    /// Asserts that the pool still serves calls, and closes the engine.
    pub(super) async fn close_serving(self) {
        self.assert_serves().await;
        self.close().await;
    }

    /// Stops the engine. Asserts that nothing is left and that the adapter was used the right number of times.
    pub(super) async fn close(self) {
        soon("the stop", self.pit.stop()).await;
        self.assert_is_over();
    }

    /// Like [`TestEngine::close`], without time for calls.
    pub(super) async fn close_now(self) {
        soon("the stop", self.pit.stop_within(Duration::ZERO)).await;
        self.assert_is_over();
    }

    /// Asserts that nothing is left and that the adapter was used the right number of times.
    pub(super) fn assert_is_over(&self) {
        assert_no_runs(self.home.path());
        assert_eq!(self.recording.inits(), 1, "init ran {} times", self.recording.inits());
        self.recording.assert_balanced();
    }
}

/// Returns an engine that is not started yet, the recording of its adapter, and its directory.
pub(super) fn plan(
    subject: &dyn Subject,
    way: Way,
    change: impl FnOnce(PoolOptions) -> PoolOptions,
) -> (Builder, Arc<Recording>, TempDir) {
    let recording = Arc::new(Recording::default());
    let restarts = Restarts::default()
        .failures(1000)
        .first_pause(Duration::from_millis(1))
        .longest_pause(Duration::from_millis(5));
    let pool = subject.pool(way).name("conformance").workers(1).restarts(restarts).quarantine(None);
    let pool = change(pool);
    let counted = Arc::clone(&recording);
    let pool = pool.wrap_adapter(|inner| Arc::new(RecordingAdapter { inner, recording: counted }));
    let home = directory();
    let custody = CustodyOptions::default().state_dir(home.path());
    let add = |Summands { a, b }, _| async move { Ok::<_, std::convert::Infallible>(a + b) };
    (Snakepit::builder().pool(pool).custody(custody).tool(TOOL, add), recording, home)
}

impl Deref for TestEngine {
    type Target = Snakepit;

    fn deref(&self) -> &Snakepit {
        &self.pit
    }
}

/// A call of `wait`.
pub(super) struct WaitCall {
    pub(super) answer: tokio::task::JoinHandle<Result<String, CallError>>,
    pub(super) started: PathBuf,
    release: PathBuf,
}

impl WaitCall {
    /// Ends the call, and asserts that it succeeds.
    pub(super) async fn finish(self) {
        create(&self.release);
        match soon("the answer of wait", self.answer).await {
            Ok(Ok(answer)) => assert_eq!(answer, "released"),
            Ok(Err(error)) => panic!("wait fails: {}", chain(&error)),
            Err(error) => panic!("{error}"),
        }
    }

    /// Asserts that the function noticed its cancellation.
    pub(super) async fn assert_is_cancelled(&self) {
        until("the function sees the cancel", || has_line(&self.started, "cancelled")).await;
    }
}

/// Returns the value, or panics with what went wrong and the error with its causes.
#[track_caller]
pub(super) fn or_panic<T, E: Error + 'static>(outcome: Result<T, E>, wrong: impl Display) -> T {
    match outcome {
        Ok(value) => value,
        Err(error) => panic!("{wrong}: {}", chain(&error)),
    }
}

/// Creates a directory for the files of a check.
pub(super) fn directory() -> TempDir {
    or_panic(tempfile::tempdir(), "no directory")
}

/// Creates an empty file.
pub(super) fn create(path: &Path) {
    or_panic(std::fs::write(path, ""), path.display());
}

/// Reports whether a file that a worker writes has this line.
pub(super) fn has_line(path: &Path, line: &str) -> bool {
    std::fs::read_to_string(path).unwrap_or_default().lines().any(|it| it == line)
}

/// Returns a path as the text that a worker gets.
pub(super) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Polls until a condition holds for which there is no event, because another process causes it.
pub(super) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let mut looks = tokio::time::interval(LOOK);
    let seen = async {
        while !holds() {
            looks.tick().await;
        }
    };
    within(SOON, what, seen).await;
}

/// Waits until the recording of the adapter satisfies a condition.
pub(super) async fn noted(recording: &Recording, what: &str, holds: impl Fn(&Recording) -> bool) {
    let mut changes = recording.changes();
    let seen = async {
        while !holds(recording) {
            let _ = changes.changed().await;
        }
    };
    within(SOON, what, seen).await;
}

/// Awaits work that must finish within [`SOON`].
pub(super) async fn soon<F: IntoFuture>(what: &str, work: F) -> F::Output {
    within(SOON, what, work).await
}

async fn within<F: IntoFuture>(time: Duration, what: &str, work: F) -> F::Output {
    let Ok(done) = tokio::time::timeout(time, work.into_future()).await else {
        panic!("{what}: not within {time:?}")
    };
    done
}

/// Asserts that no run is recorded in the state directory. Then everything that was started has ended.
pub(super) fn assert_no_runs(home: &Path) {
    let left = runs_in(home);
    assert!(left.is_empty(), "runs are left: {left:?}");
}

pub(super) fn runs_in(home: &Path) -> Vec<String> {
    let Ok(runs) = std::fs::read_dir(home.join("runs")) else { return Vec::new() };
    let names = runs.flatten().map(|run| run.file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.starts_with('.')).collect()
}
