//! The engine of a check: its own pool, and a state directory that must hold no runs in the end.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;

use super::recording::{Recording, RecordingAdapter};
use super::{Subject, Way};
pub(super) use crate::causes::with_causes as chain;
use crate::custody::Config;
use crate::{Builder, CallError, EngineError, Pool, PoolOptions, Restarts, Snakepit, Value};

/// How long something may take that takes milliseconds on a machine with nothing else to do.
// What is broken on purpose, in the tests of the suite, is to be caught sooner.
pub(super) const SOON: Duration = Duration::from_secs(if cfg!(test) { 6 } else { 30 });

/// How often is looked for what only another process can bring about.
const LOOK: Duration = Duration::from_millis(5);

/// The tool that workers may ask for: the sum of `a` and `b`.
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
    /// One worker.
    pub(super) async fn open(subject: &dyn Subject) -> Self {
        Self::with(subject, |pool| pool).await
    }

    /// A pool that is changed before it is started.
    pub(super) async fn with(subject: &dyn Subject, change: impl FnOnce(PoolOptions) -> PoolOptions) -> Self {
        match Self::start(subject, Way::Ready, change).await {
            Ok(engine) => engine,
            Err((error, _)) => panic!("the pool does not start: {}", chain(&error)),
        }
    }

    /// Waits until the pool is ready, or says why it is not, and what was asked of the adapter meanwhile.
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

    /// Does not wait until it is ready.
    pub(super) async fn begin(
        subject: &dyn Subject,
        way: Way,
        change: impl FnOnce(PoolOptions) -> PoolOptions,
    ) -> Self {
        let (builder, recording, home) = plan(subject, way, change);
        match builder.start_in_background().await {
            Ok(pit) => Self { pit, recording, home },
            Err(error) => panic!("the pool does not start: {}", chain(&error)),
        }
    }

    /// Its only pool.
    pub(super) fn pool(&self) -> &Pool {
        &self.pit.pools()[0]
    }

    /// A path of its own.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// A call that must be answered soon.
    pub(super) async fn ask<T: DeserializeOwned + Send + 'static>(
        &self,
        command: &str,
        args: impl Serialize,
    ) -> Result<T, CallError> {
        soon(command, self.pit.call(command, args)).await
    }

    /// As [`TestEngine::ask`], of what must not fail.
    pub(super) async fn get<T: DeserializeOwned + Send + 'static>(
        &self,
        command: &str,
        args: impl Serialize,
    ) -> T {
        match self.ask(command, args).await {
            Ok(value) => value,
            Err(error) => panic!("{command} fails: {}", chain(&error)),
        }
    }

    /// It serves.
    pub(super) async fn assert_serves(&self) {
        let sum: i64 = self.get("add", crate::args! { a: 20, b: 22 }).await;
        assert_eq!(sum, 42, "add answers something else");
    }

    /// A call of `wait` that has begun: its answer, and the file that lets it end.
    pub(super) async fn begin_wait(&self, name: &str) -> WaitCall {
        let (started, release) = (self.path(name), self.path(&format!("{name}.release")));
        let args = crate::args! { started: text(&started), release: text(&release) };
        let answer = tokio::spawn(self.pit.call::<String>("wait", args).into_future());
        until("wait has begun", || has_line(&started, "started")).await;
        WaitCall { answer, started, release }
    }

    /// A call of `stubborn` that has begun: nothing but KILL ends it, and it uses no CPU.
    pub(super) async fn begin_stubborn(&self) -> tokio::task::JoinHandle<Result<Value, CallError>> {
        let started = self.path("stubborn");
        let args = crate::args! { started: text(&started) };
        let answer = tokio::spawn(self.pit.call("stubborn", args).into_future());
        until("stubborn has begun", || has_line(&started, "started")).await;
        answer
    }

    /// Stops it, and proves that nothing is left and everything was asked for as often as it should be.
    pub(super) async fn close(self) {
        soon("the stop", self.pit.stop()).await;
        self.assert_is_over();
    }

    /// As [`TestEngine::close`], without time for calls.
    pub(super) async fn close_now(self) {
        soon("the stop", self.pit.stop_within(Duration::ZERO)).await;
        self.assert_is_over();
    }

    /// Nothing is left, and everything was asked for as often as it should be.
    pub(super) fn assert_is_over(&self) {
        assert_no_runs(self.home.path());
        assert_eq!(self.recording.inits(), 1, "init ran {} times", self.recording.inits());
        self.recording.assert_balanced();
    }
}

/// An engine that is not started yet, the counts of its adapter, and its directory.
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
    let home = match tempfile::tempdir() {
        Ok(home) => home,
        Err(error) => panic!("no directory: {error}"),
    };
    let custody = Config { state_dir: Some(home.path().to_owned()), ..Config::default() };
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
    /// Lets it end, and sees that it does as it should.
    pub(super) async fn finish(self) {
        create(&self.release);
        match soon("the answer of wait", self.answer).await {
            Ok(Ok(answer)) => assert_eq!(answer, "released"),
            Ok(Err(error)) => panic!("wait fails: {}", chain(&error)),
            Err(error) => panic!("{error}"),
        }
    }

    /// The function has seen that it was cancelled.
    pub(super) async fn assert_is_cancelled(&self) {
        until("the function sees the cancel", || has_line(&self.started, "cancelled")).await;
    }
}

/// Makes an empty file.
pub(super) fn create(path: &Path) {
    if let Err(error) = std::fs::write(path, "") {
        panic!("{}: {error}", path.display());
    }
}

/// Whether a file that a worker writes has this line.
pub(super) fn has_line(path: &Path, line: &str) -> bool {
    std::fs::read_to_string(path).unwrap_or_default().lines().any(|it| it == line)
}

/// A path as a worker gets it.
pub(super) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Until something holds that no event tells of, because another process does it.
pub(super) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let mut looks = tokio::time::interval(LOOK);
    let seen = async {
        while !holds() {
            looks.tick().await;
        }
    };
    within(SOON, what, seen).await;
}

/// Until the recording of the adapter shows something.
pub(super) async fn noted(recording: &Recording, what: &str, holds: impl Fn(&Recording) -> bool) {
    let mut changes = recording.changes();
    let seen = async {
        while !holds(recording) {
            let _ = changes.changed().await;
        }
    };
    within(SOON, what, seen).await;
}

/// Within the time that everything must be done in.
pub(super) async fn soon<F: IntoFuture>(what: &str, work: F) -> F::Output {
    within(SOON, what, work).await
}

async fn within<F: IntoFuture>(time: Duration, what: &str, work: F) -> F::Output {
    let Ok(done) = tokio::time::timeout(time, work.into_future()).await else {
        panic!("{what}: not within {time:?}")
    };
    done
}

/// No run is recorded in a state directory: everything that was started is gone.
pub(super) fn assert_no_runs(home: &Path) {
    let left = runs_in(home);
    assert!(left.is_empty(), "runs are left: {left:?}");
}

pub(super) fn runs_in(home: &Path) -> Vec<String> {
    let Ok(runs) = std::fs::read_dir(home.join("runs")) else { return Vec::new() };
    let names = runs.flatten().map(|run| run.file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.starts_with('.')).collect()
}
