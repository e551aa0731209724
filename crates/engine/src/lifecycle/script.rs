//! Scripts: a function with an engine that starts before the function and stops after it, however the function ends.
//!
//! This file has steps 1 to 4; step 5 is in [`shutdown`](super::shutdown).

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::pin;
use std::sync::{Arc, Once, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Notify;

use super::exit;
use super::failpoint::{ScriptStep, reach};
use super::global::{self, GlobalEngine};
use super::mode::{ArgumentError, ExitAction, ExitMode, StopMode};
use super::script_error::ScriptError;
use super::selection::{EXIT_VARIABLE, ExitModeInputs, HALT_VARIABLE, Selection, is_truthy, select};
use super::shutdown::{CLEANUP_TIMEOUT, EndGuard, GRACE, Shutdown, ShutdownCause, end_dropped};
use super::signals::ScriptSignals;
use crate::CallError;
use crate::custody::exit_now;
use crate::error_text::ignoring_panics;
use crate::error_text::panic_message;
use crate::running::Engine;
use crate::telemetry::{self, Event};
use crate::{Builder, EngineError, Snakepit};

/// The variable that has the effect of the argument `--no-halt`.
const NO_HALT_VARIABLE: &str = "SNAKEPIT_NO_HALT";

/// The default for how long the pools may take to become ready.
const AWAIT_TIMEOUT: Duration = Duration::from_mins(1);

/// How long the function may go on after a signal, once its last call has been answered.
const LAST_ANSWER_GRACE: Duration = Duration::from_millis(500);

/// A script: an engine, a function, and how the process ends. Created by [`script`].
///
/// ```no_run
/// use std::time::Duration;
///
/// use snakepit::lifecycle::ExitMode;
/// use snakepit::{CallError, Script, ScriptError, Snakepit, args, python};
///
/// # fn example() -> Result<(), ScriptError<CallError>> {
/// let script: Script = snakepit::script(Snakepit::builder().pool(python("worker.py")))
///     .exit_mode(ExitMode::Stop)
///     .grace(Duration::from_secs(5));
/// script.run_blocking(async |pit| pit.call::<i64>("add", args! { a: 1, b: 2 }).await)?;
/// # Ok(()) }
/// ```
#[must_use = "a script does nothing until it is run"]
pub struct Script {
    engine: Builder,
    exit_mode: Result<Option<ExitMode>, ArgumentError>,
    stop_mode: Result<StopMode, ArgumentError>,
    await_pool: bool,
    await_timeout: Duration,
    grace: Duration,
    cleanup_timeout: Duration,
    signals: bool,
    diagnostics: bool,
}

/// Creates a script. It starts the engine, unless a process-wide engine is running.
///
/// ```no_run
/// use snakepit::lifecycle::ExitMode;
/// use snakepit::{CallError, Snakepit, args, python};
///
/// # async fn example() -> Result<(), snakepit::ScriptError<CallError>> {
/// let sum: i64 = snakepit::script(Snakepit::builder().pool(python("worker.py")))
///     .exit_mode(ExitMode::Auto)
///     .run(async |pit| pit.call("add", args! { a: 1, b: 2 }).await)
///     .await?;
/// # Ok(()) }
/// ```
pub fn script(engine: impl Into<Builder>) -> Script {
    Script {
        engine: engine.into(),
        exit_mode: Ok(None),
        stop_mode: Ok(StopMode::default()),
        await_pool: true,
        await_timeout: AWAIT_TIMEOUT,
        grace: GRACE,
        cleanup_timeout: CLEANUP_TIMEOUT,
        signals: true,
        diagnostics: true,
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script")
            .field("exit_mode", &self.exit_mode)
            .field("stop_mode", &self.stop_mode)
            .finish_non_exhaustive()
    }
}

/// The outcome of a script's function.
enum ScriptOutcome<T, E> {
    Returned(T),
    Failed(ScriptError<E>),
    Panicked(Box<dyn Any + Send>),
    /// A signal stopped the engine, and the function failed because a call was refused. This is not a failure of the
    /// script.
    Cancelled(ScriptError<E>),
    /// A signal ended the script, and the function was dropped.
    Interrupted,
}

/// The engine of a script.
#[derive(Clone)]
struct ScriptEngine {
    /// The engine that the function gets.
    pit: Snakepit,
    /// The process-wide engine, which is often the same engine.
    global: Snakepit,
    /// Whether the script started the process-wide engine.
    owned: bool,
}

impl ScriptEngine {
    /// Returns the engines that end with the script.
    fn engines_to_stop(&self, stop_mode: StopMode) -> Vec<Arc<Engine>> {
        let (own, global) = (self.pit.engine(), self.global.engine());
        let is_separate = !Arc::ptr_eq(own, global);
        let chosen = [(is_separate, own), (stop_mode.stops(self.owned), global)];
        chosen.into_iter().filter(|(ends, _)| *ends).map(|(_, engine)| Arc::clone(engine)).collect()
    }
}

/// Announces the engine as soon as there is one to stop, before its workers are ready.
#[derive(Default)]
struct EngineAnnouncement {
    engine: OnceLock<ScriptEngine>,
    announced: Notify,
}

impl EngineAnnouncement {
    fn announce(&self, engine: ScriptEngine) {
        let _ = self.engine.set(engine);
        self.announced.notify_one();
    }
}

impl Script {
    /// Sets what happens to the process: an [`ExitMode`], or its name. Overrides the environment.
    pub fn exit_mode<M>(mut self, mode: M) -> Self
    where
        M: TryInto<ExitMode>,
        M::Error: Into<ArgumentError>,
    {
        self.exit_mode = mode.try_into().map(Some).map_err(Into::into);
        self
    }

    /// Sets whether the script stops the engine: a [`StopMode`], or its name.
    pub fn stop_mode<M>(mut self, mode: M) -> Self
    where
        M: TryInto<StopMode>,
        M::Error: Into<ArgumentError>,
    {
        self.stop_mode = mode.try_into().map_err(Into::into);
        self
    }

    /// Calls the function before all workers are ready.
    pub fn without_await_pool(mut self) -> Self {
        self.await_pool = false;
        self
    }

    /// Sets how long the function waits for the workers. The default is one minute.
    pub fn await_timeout(mut self, timeout: Duration) -> Self {
        self.await_timeout = timeout;
        self
    }

    /// Sets how long calls under way may take when the script ends. The default is 30 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets how long the cleanup may take. The default is 15 s.
    pub fn cleanup_timeout(mut self, timeout: Duration) -> Self {
        self.cleanup_timeout = timeout;
        self
    }

    /// Leaves SIGTERM and SIGINT alone. Otherwise they end the script in order, unless the script is embedded.
    pub fn without_signals(mut self) -> Self {
        self.signals = false;
        self
    }

    /// Disables the log of the function's failure, which is otherwise written before the shutdown begins.
    pub fn without_diagnostics(mut self) -> Self {
        self.diagnostics = false;
        self
    }

    /// Runs the script. Returns only if the exit mode is `none`. A panic of the function resumes after the cleanup.
    pub async fn run<T, E, F>(mut self, function: F) -> Result<T, ScriptError<E>>
    where
        F: AsyncFnOnce(Snakepit) -> Result<T, E>,
        E: fmt::Display,
    {
        // 1
        let (exit_mode, stop_mode) = self.resolve()?;
        reach(ScriptStep::Resolve);
        let leave = if exit_mode == ExitMode::Halt { exit_now } else { exit::exit };
        let mut signals = ScriptSignals::begin(self.signals, leave);
        // 2
        let announcement = EngineAnnouncement::default();
        let started = self.start_or_signal(&signals, &announcement).await;
        if announcement.engine.get().is_some_and(|engine| !engine.owned) {
            signals = ScriptSignals::none();
        }
        reach(ScriptStep::Engine);
        // 3 and 4
        let (engine, outcome) = match started {
            Ok(Some(engine)) => {
                let guard = EndGuard::new(engine.engines_to_stop(stop_mode), end_dropped);
                let outcome = self.execute(&engine, &signals, function).await;
                guard.disarm();
                (Some(engine), outcome)
            }
            Ok(None) => (announcement.engine.get().cloned(), ScriptOutcome::Interrupted),
            Err(error) => (None, ScriptOutcome::Failed(error)),
        };
        self.log_failure(&outcome);
        // 5
        let owned = engine.as_ref().is_none_or(|engine| engine.owned);
        let exit = exit_mode.resolve(owned, no_halt());
        self.shutdown(engine.as_ref(), exit, stop_mode, &signals, &outcome).run().await;
        drop(signals);
        match outcome {
            ScriptOutcome::Returned(value) => Ok(value),
            ScriptOutcome::Failed(error) => Err(error),
            ScriptOutcome::Panicked(panic) => resume_unwind(panic),
            // The shutdown has left the process.
            ScriptOutcome::Cancelled(_) | ScriptOutcome::Interrupted => std::future::pending().await,
        }
    }

    /// Runs the script like [`Script::run`], for a `main` without a runtime.
    pub fn run_blocking<T, E, F>(self, function: F) -> Result<T, ScriptError<E>>
    where
        F: AsyncFnOnce(Snakepit) -> Result<T, E>,
        E: fmt::Display,
    {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| ScriptError::Start(EngineError::Runtime(source)))?;
        runtime.block_on(self.run(function))
    }

    /// 1: Determines the modes. Warns once per process of an invalid or deprecated variable.
    fn resolve<E>(&self) -> Result<(ExitMode, StopMode), ScriptError<E>> {
        static WARNED: Once = Once::new();
        static DEPRECATED: Once = Once::new();
        let (exit_mode, stop_mode) = (self.exit_mode.clone()?, self.stop_mode.clone()?);
        let (exit_variable, halt_variable) =
            (std::env::var_os(EXIT_VARIABLE), std::env::var_os(HALT_VARIABLE));
        let Selection { source, input, mode, invalid, deprecated } = select(ExitModeInputs {
            exit_mode,
            exit_variable: exit_variable.as_deref(),
            halt_variable: halt_variable.as_deref(),
        });
        if let Some(value) = invalid {
            WARNED.call_once(|| {
                ignoring_panics(|| {
                    tracing::warn!(variable = EXIT_VARIABLE, value, fallback = %mode, "the variable names no exit mode and is ignored");
                });
            });
        }
        if let Some(used) = deprecated {
            DEPRECATED.call_once(|| {
                ignoring_panics(|| {
                    tracing::warn!(
                        used,
                        instead = "exit_mode, or SNAKEPIT_SCRIPT_EXIT",
                        "a deprecated setting is used"
                    );
                });
            });
        }
        ignoring_panics(|| {
            telemetry::emit(Event::ScriptExitModeSelected {
                source: source.as_str(),
                input: input.into(),
                effective: mode.as_str(),
            });
        });
        Ok((mode, stop_mode))
    }

    /// 2: Starts the engine, or returns `None` if a signal comes first. A start cannot be stopped in order before its
    /// engine exists, so it continues until then, or until a second signal.
    async fn start_or_signal<E>(
        &mut self,
        signals: &ScriptSignals,
        announcement: &EngineAnnouncement,
    ) -> Result<Option<ScriptEngine>, ScriptError<E>> {
        let mut start = pin!(self.start(announcement));
        let started = tokio::select! {
            started = &mut start => started.map(Some),
            () = signals.first() => tokio::select! {
                started = &mut start => started.map(Some),
                () = announcement.announced.notified() => Ok(None),
                () = signals.second() => Ok(None),
            },
        };
        started.map_err(ScriptError::Start)
    }

    /// 2: Finds or starts the engine.
    async fn start(&mut self, announcement: &EngineAnnouncement) -> Result<ScriptEngine, EngineError> {
        let mut builder = Some(std::mem::take(&mut self.engine));
        let await_pool = self.await_pool;
        let owned = |pit: Snakepit| ScriptEngine { global: pit.clone(), pit, owned: true };
        let found = global::find_or(async || {
            let builder = builder.take().unwrap_or_default();
            start_engine(builder, await_pool, |pit| announcement.announce(owned(pit.clone()))).await
        });
        let engine = match found.await? {
            GlobalEngine::Owned(pit) => owned(pit),
            GlobalEngine::Embedded(global) => {
                let embedded = |pit: Snakepit| ScriptEngine { pit, global: global.clone(), owned: false };
                let announce = |pit: &Snakepit| announcement.announce(embedded(pit.clone()));
                match builder.filter(|builder| !builder.is_empty()) {
                    Some(builder) => embedded(start_engine(builder, await_pool, announce).await?),
                    None => embedded(global.clone()),
                }
            }
        };
        announcement.announce(engine.clone());
        Ok(engine)
    }

    /// 3 and 4: Waits for the pools, and runs the function until it returns or a signal ends it.
    async fn execute<T, E, F>(
        &self,
        engine: &ScriptEngine,
        signals: &ScriptSignals,
        function: F,
    ) -> ScriptOutcome<T, E>
    where
        F: AsyncFnOnce(Snakepit) -> Result<T, E>,
        E: fmt::Display,
    {
        let pit = &engine.pit;
        reach(ScriptStep::Await);
        let function = async {
            if self.await_pool {
                pit.await_ready(self.await_timeout).await.map_err(ScriptError::NotReady)?;
            }
            reach(ScriptStep::Function);
            function(pit.clone()).await.map_err(ScriptError::Function)
        };
        let mut function = pin!(AssertUnwindSafe(function).catch_unwind());
        let ended = tokio::select! {
            ended = &mut function => ended,
            () = signals.first() => {
                pit.engine().close();
                tokio::select! {
                    biased;
                    ended = &mut function => ended,
                    () = self.grace_over(pit, signals) => return ScriptOutcome::Interrupted,
                }
            }
        };
        match ended {
            Ok(Ok(value)) => ScriptOutcome::Returned(value),
            Ok(Err(error)) if signals.have_come() && is_refused_call(&error) => {
                ScriptOutcome::Cancelled(error)
            }
            Ok(Err(error)) => ScriptOutcome::Failed(error),
            Err(panic) => ScriptOutcome::Panicked(panic),
        }
    }

    /// Waits, after the first signal, until the calls in flight have ended. A function that waits for
    /// [`Snakepit::stopping`] gets the whole grace period.
    async fn grace_over(&self, pit: &Snakepit, signals: &ScriptSignals) {
        let calls_ended = async {
            let waits_for_an_answer = !pit.engine().pools.is_done();
            pit.engine().pools.finished().await;
            if pit.engine().has_stop_waiter() {
                std::future::pending::<()>().await;
            } else if waits_for_an_answer {
                // The last answer is on its way to the function, which may wait for nothing else.
                let _ = tokio::time::timeout(LAST_ANSWER_GRACE, std::future::pending::<()>()).await;
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(self.grace, calls_ended) => {}
            () = signals.second() => {}
        }
    }

    /// Logs why the function failed. This happens before the shutdown, because nothing is written once the process is
    /// leaving.
    fn log_failure<T, E: fmt::Display>(&self, outcome: &ScriptOutcome<T, E>) {
        if !self.diagnostics {
            return;
        }
        ignoring_panics(|| match outcome {
            ScriptOutcome::Failed(error) => {
                tracing::error!(error = format!("{error:#}"), "the script failed");
            }
            ScriptOutcome::Cancelled(error) => tracing::info!(%error, "the script was cancelled by a signal"),
            ScriptOutcome::Panicked(panic) => {
                tracing::error!(reason = panic_message(&**panic), "the script panicked");
            }
            ScriptOutcome::Returned(_) | ScriptOutcome::Interrupted => {}
        });
    }

    fn shutdown<T, E>(
        &self,
        engine: Option<&ScriptEngine>,
        exit: ExitAction,
        stop_mode: StopMode,
        signals: &ScriptSignals,
        outcome: &ScriptOutcome<T, E>,
    ) -> Shutdown {
        let owned = engine.is_none_or(|engine| engine.owned);
        let signalled = signals.have_come();
        let by_signal = if exit == ExitAction::Halt { ExitAction::Halt } else { ExitAction::Stop };
        let (status, exit) = match outcome {
            ScriptOutcome::Returned(_) => (0, exit),
            ScriptOutcome::Failed(_) | ScriptOutcome::Panicked(_) => (1, exit),
            // There is no value to return, and an error would make the caller exit with a failure. The signal asked the
            // process to end, so the process ends.
            ScriptOutcome::Cancelled(_) | ScriptOutcome::Interrupted => (0, by_signal),
        };
        Shutdown {
            cause: if signalled { ShutdownCause::Signal } else { ShutdownCause::Script },
            exit,
            stop_mode,
            owned,
            status,
            run_id: engine.and_then(|engine| engine.pit.engine().run_id()),
            if_cut_short: signals.are_answered().then_some(by_signal),
            engines: engine.map(|engine| engine.engines_to_stop(stop_mode)).unwrap_or_default(),
            grace: self.grace,
            cleanup_timeout: self.cleanup_timeout,
        }
    }
}

/// Reports whether a function failed because the engine takes no more calls. Its error can be of any type, so the text
/// decides: that of [`CallError::Stopped`], alone, wrapped transparently, or in a chain such as anyhow's.
fn is_refused_call<E: fmt::Display>(error: &ScriptError<E>) -> bool {
    match error {
        ScriptError::NotReady(error) => matches!(error, CallError::Stopped),
        ScriptError::Function(error) => format!("{error:#}").contains(&CallError::Stopped.to_string()),
        ScriptError::Argument(_) | ScriptError::Start(_) => false,
    }
}

async fn start_engine(
    builder: Builder,
    await_pool: bool,
    started: impl FnOnce(&Snakepit),
) -> Result<Snakepit, EngineError> {
    if await_pool { builder.start_with(started).await } else { builder.start_in_background().await }
}

/// Reports whether the process was started with the request not to halt.
fn no_halt() -> bool {
    std::env::args_os().skip(1).any(|argument| argument == "--no-halt")
        || std::env::var(NO_HALT_VARIABLE).is_ok_and(|value| is_truthy(&value))
}
