//! Scripts: a function with an engine around it, started before it and stopped after it, whatever becomes of it.
//!
//! Steps 1 to 4 of the state machine; step 5 is the [`orchestrator`](super::orchestrator)'s.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::pin;
use std::sync::{Arc, Once, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Notify;

use super::exit;
use super::failpoint::{Step, reach};
use super::global::{self, Found};
use super::mode::{ArgumentError, Exit, ExitMode, StopMode};
use super::orchestrator::{CLEANUP_TIMEOUT, Deserted, GRACE, Path, Shutdown, undisturbed};
use super::selection::{EXIT_VARIABLE, HALT_VARIABLE, Inputs, Selection, is_truthy, select};
use super::signals::Answering;
use crate::call::CallError;
use crate::custody::exit_now;
use crate::engine::Engine;
use crate::pit::{Builder, EngineError, Snakepit};
use crate::telemetry::{self, Event};

/// The variable that stands for the argument `--no-halt`.
const NO_HALT_VARIABLE: &str = "SNAKEPIT_NO_HALT";

/// How long the pools may take to get ready, unless it is said otherwise.
const AWAIT_TIMEOUT: Duration = Duration::from_mins(1);

/// How long a function may go on after a signal, once the last call that was under way is answered.
const SETTLING: Duration = Duration::from_millis(500);

/// Why a script has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError<E> {
    /// An option is wrong. Nothing was started.
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    /// The engine did not start.
    #[error(transparent)]
    Start(EngineError),
    /// The engine runs, and its pools did not get ready in time.
    #[error("the pools of the script did not get ready")]
    NotReady(#[source] CallError),
    /// The function has failed.
    #[error("{0}")]
    Function(E),
}

/// A script: an engine, a function, and how the process ends. [`script`] makes one.
#[must_use = "it does nothing before it is run"]
pub struct Script {
    engine: Builder,
    exit_mode: Result<Option<ExitMode>, ArgumentError>,
    stop_mode: Result<StopMode, ArgumentError>,
    halt: Option<bool>,
    await_pool: bool,
    await_timeout: Duration,
    grace: Duration,
    cleanup_timeout: Duration,
    signals: bool,
    diagnostics: bool,
}

/// A script around an engine, which is started for it unless a process-wide one runs already.
///
/// ```no_run
/// use snakepit::{CallError, ExitMode, Pool, Snakepit, args};
///
/// # async fn example() -> Result<(), snakepit::ScriptError<CallError>> {
/// let sum: i64 = snakepit::script(Snakepit::builder().pool(Pool::python("worker.py")))
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
        halt: None,
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
            .field("halt", &self.halt)
            .finish_non_exhaustive()
    }
}

/// How the function ended.
enum Outcome<T, E> {
    Returned(T),
    Failed(ScriptError<E>),
    Panicked(Box<dyn Any + Send>),
    /// After a signal a call of it was refused, and that is what it failed of: it has not failed, it was told to end.
    Cancelled(ScriptError<E>),
    /// A signal ended it, and it was dropped.
    Interrupted,
}

/// The engine of a script.
#[derive(Clone)]
struct Place {
    /// What its function gets.
    pit: Snakepit,
    /// The process-wide one.
    global: Snakepit,
    owned: bool,
}

impl Place {
    /// What ends with the script.
    fn to_be_stopped(&self, stop_mode: StopMode) -> Vec<Arc<Engine>> {
        let (own, global) = (self.pit.engine(), self.global.engine());
        let is_apart = !Arc::ptr_eq(own, global);
        let chosen = [(is_apart, own), (stop_mode.stops(self.owned), global)];
        chosen.into_iter().filter(|(ends, _)| *ends).map(|(_, engine)| Arc::clone(engine)).collect()
    }
}

/// An engine that is there, although its workers may not be ready yet.
#[derive(Default)]
struct Begun {
    place: OnceLock<Place>,
    told: Notify,
}

impl Begun {
    fn tell(&self, place: Place) {
        let _ = self.place.set(place);
        self.told.notify_one();
    }
}

impl Script {
    /// What becomes of the process: an [`ExitMode`], or its name. Goes before everything else that says so.
    pub fn exit_mode<M>(mut self, mode: M) -> Self
    where
        M: TryInto<ExitMode>,
        M::Error: Into<ArgumentError>,
    {
        self.exit_mode = mode.try_into().map(Some).map_err(Into::into);
        self
    }

    /// Whether the engine is stopped: a [`StopMode`], or its name.
    pub fn stop_mode<M>(mut self, mode: M) -> Self
    where
        M: TryInto<StopMode>,
        M::Error: Into<ArgumentError>,
    {
        self.stop_mode = mode.try_into().map_err(Into::into);
        self
    }

    /// The old way to say `exit_mode(ExitMode::Halt)`.
    #[deprecated(note = "say exit_mode(ExitMode::Halt), or better ExitMode::Stop")]
    #[doc(hidden)]
    pub fn halt(mut self, halt: bool) -> Self {
        self.halt = Some(halt);
        self
    }

    /// Whether the function begins only when all workers are ready; so unless this says no.
    pub fn await_pool(mut self, wait: bool) -> Self {
        self.await_pool = wait;
        self
    }

    /// How long it waits for them; a minute unless it is set.
    pub fn await_timeout(mut self, timeout: Duration) -> Self {
        self.await_timeout = timeout;
        self
    }

    /// How long calls that are under way may take when it ends; 30 s unless it is set.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How long the cleanup may take; 15 s unless it is set.
    pub fn cleanup_timeout(mut self, timeout: Duration) -> Self {
        self.cleanup_timeout = timeout;
        self
    }

    /// Whether SIGTERM and SIGINT end the script in order; so unless this says no, or the script is embedded.
    pub fn signals(mut self, answered: bool) -> Self {
        self.signals = answered;
        self
    }

    /// Whether the log is told, before the shutdown begins, why the function failed; so unless this says no.
    pub fn diagnostics(mut self, told: bool) -> Self {
        self.diagnostics = told;
        self
    }

    /// Runs it. Returns only if the exit mode is `none`; a panic of the function goes on when all is cleaned up.
    pub async fn run<T, E, F>(mut self, function: F) -> Result<T, ScriptError<E>>
    where
        F: AsyncFnOnce(Snakepit) -> Result<T, E>,
        E: fmt::Display,
    {
        // 1
        let (exit_mode, stop_mode) = self.resolve()?;
        reach(Step::Resolve);
        let leave = if exit_mode == ExitMode::Halt { exit_now } else { exit::exit };
        let mut signals = Answering::begin(self.signals, leave);
        // 2
        let begun = Begun::default();
        let started = self.start_unless(&signals, &begun).await;
        if begun.place.get().is_some_and(|place| !place.owned) {
            signals = Answering::none();
        }
        reach(Step::Engine);
        // 3 and 4
        let (place, outcome) = match started {
            Ok(Some(place)) => {
                let deserted = Deserted::unless_kept(place.to_be_stopped(stop_mode));
                let outcome = self.execute(&place, &signals, function).await;
                deserted.keep();
                (Some(place), outcome)
            }
            Ok(None) => (begun.place.get().cloned(), Outcome::Interrupted),
            Err(error) => (None, Outcome::Failed(error)),
        };
        self.diagnose(&outcome);
        // 5
        let owned = place.as_ref().is_none_or(|place| place.owned);
        let exit = exit_mode.resolve(owned, no_halt());
        self.shutdown(place.as_ref(), exit, stop_mode, &signals, &outcome).conduct().await;
        drop(signals);
        match outcome {
            Outcome::Returned(value) => Ok(value),
            Outcome::Failed(error) => Err(error),
            Outcome::Panicked(panic) => resume_unwind(panic),
            // The shutdown has left the process.
            Outcome::Cancelled(_) | Outcome::Interrupted => std::future::pending().await,
        }
    }

    /// As [`Script::run`], for a `main` without a runtime.
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

    /// 1: Which modes hold. What is wrong with the environment, or out of date, is told once in a process.
    fn resolve<E>(&self) -> Result<(ExitMode, StopMode), ScriptError<E>> {
        static WARNED: Once = Once::new();
        static DEPRECATED: Once = Once::new();
        let (exit_mode, stop_mode) = (self.exit_mode.clone()?, self.stop_mode.clone()?);
        let (exit_variable, halt_variable) =
            (std::env::var_os(EXIT_VARIABLE), std::env::var_os(HALT_VARIABLE));
        let Selection { source, input, mode, invalid, deprecated } = select(Inputs {
            exit_mode,
            halt: self.halt,
            exit_variable: exit_variable.as_deref(),
            halt_variable: halt_variable.as_deref(),
        });
        if let Some(value) = invalid {
            WARNED.call_once(|| {
                undisturbed(|| {
                    tracing::warn!(variable = EXIT_VARIABLE, value, fallback = %mode, "no exit mode: it is ignored");
                });
            });
        }
        if !deprecated.is_empty() {
            let used = deprecated.join(" and ");
            DEPRECATED.call_once(|| {
                undisturbed(|| {
                    tracing::warn!(
                        used,
                        instead = "exit_mode, or SNAKEPIT_SCRIPT_EXIT",
                        "this is deprecated"
                    );
                });
            });
        }
        undisturbed(|| {
            telemetry::emit(Event::ScriptExitModeSelected {
                source: source.as_str(),
                input: input.into(),
                effective: mode.as_str(),
            });
        });
        Ok((mode, stop_mode))
    }

    /// 2, or none if a signal comes first. What is half begun cannot be ended in order, so it is waited for.
    async fn start_unless<E>(
        &mut self,
        signals: &Answering,
        begun: &Begun,
    ) -> Result<Option<Place>, ScriptError<E>> {
        let mut start = pin!(self.start(begun));
        let started = tokio::select! {
            started = &mut start => started.map(Some),
            () = signals.first() => tokio::select! {
                started = &mut start => started.map(Some),
                () = begun.told.notified() => Ok(None),
                () = signals.second() => Ok(None),
            },
        };
        started.map_err(ScriptError::Start)
    }

    /// 2: Finds or starts the engine.
    async fn start(&mut self, begun: &Begun) -> Result<Place, EngineError> {
        let mut mine = Some(std::mem::take(&mut self.engine));
        let await_pool = self.await_pool;
        let owned = |pit: Snakepit| Place { global: pit.clone(), pit, owned: true };
        let found = global::find_or(async || {
            let engine = mine.take().unwrap_or_default();
            begin(engine, await_pool, |pit| begun.tell(owned(pit.clone()))).await
        });
        let place = match found.await? {
            Found::Owned(pit) => owned(pit),
            Found::Embedded(global) => {
                let embedded = |pit: Snakepit| Place { pit, global: global.clone(), owned: false };
                match mine.filter(|engine| !engine.is_empty()) {
                    Some(engine) => {
                        embedded(begin(engine, await_pool, |pit| begun.tell(embedded(pit.clone()))).await?)
                    }
                    None => embedded(global.clone()),
                }
            }
        };
        begun.tell(place.clone());
        Ok(place)
    }

    /// 3 and 4: Waits for the pools, and runs the function until it ends or a signal ends it.
    async fn execute<T, E, F>(&self, place: &Place, signals: &Answering, function: F) -> Outcome<T, E>
    where
        F: AsyncFnOnce(Snakepit) -> Result<T, E>,
        E: fmt::Display,
    {
        let pit = &place.pit;
        reach(Step::Await);
        let function = async {
            if self.await_pool {
                pit.await_ready(self.await_timeout).await.map_err(ScriptError::NotReady)?;
            }
            reach(Step::Function);
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
                    () = self.patience(pit, signals) => return Outcome::Interrupted,
                }
            }
        };
        match ended {
            Ok(Ok(value)) => Outcome::Returned(value),
            Ok(Err(error)) if signals.have_come() && tells_of_the_stop(&error) => Outcome::Cancelled(error),
            Ok(Err(error)) => Outcome::Failed(error),
            Err(panic) => Outcome::Panicked(panic),
        }
    }

    /// After the first signal: until what is in flight has ended; a function that has asked to be told gets the whole grace.
    async fn patience(&self, pit: &Snakepit, signals: &Answering) {
        let patience = async {
            let waits_for_an_answer = !pit.engine().is_done();
            pit.engine().finished().await;
            if pit.engine().is_heeded() {
                std::future::pending::<()>().await;
            } else if waits_for_an_answer {
                // The last answer is on its way to the function, and may be all that it waits for.
                let _ = tokio::time::timeout(SETTLING, std::future::pending::<()>()).await;
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(self.grace, patience) => {}
            () = signals.second() => {}
        }
    }

    /// The reason of a failure goes to the log before the exit path begins, where nothing is written any more.
    fn diagnose<T, E: fmt::Display>(&self, outcome: &Outcome<T, E>) {
        if !self.diagnostics {
            return;
        }
        undisturbed(|| match outcome {
            Outcome::Failed(error) => tracing::error!(error = format!("{error:#}"), "the script failed"),
            Outcome::Cancelled(error) => tracing::info!(%error, "the script was cancelled by a signal"),
            Outcome::Panicked(panic) => {
                let said = panic.downcast_ref::<&str>().copied();
                let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
                tracing::error!(said = said.unwrap_or("nothing"), "the script panicked");
            }
            Outcome::Returned(_) | Outcome::Interrupted => {}
        });
    }

    fn shutdown<T, E>(
        &self,
        place: Option<&Place>,
        exit: Exit,
        stop_mode: StopMode,
        signals: &Answering,
        outcome: &Outcome<T, E>,
    ) -> Shutdown {
        let owned = place.is_none_or(|place| place.owned);
        let signalled = signals.have_come();
        let by_signal = if exit == Exit::Halt { Exit::Halt } else { Exit::Stop };
        let (status, exit) = match outcome {
            Outcome::Returned(_) => (0, exit),
            Outcome::Failed(_) | Outcome::Panicked(_) => (1, exit),
            // There is nothing to return, or nothing but the refusal of a call, and who would get that would end as a failure.
            // The signal asked the process to end, and it does.
            Outcome::Cancelled(_) | Outcome::Interrupted => (0, by_signal),
        };
        Shutdown {
            path: if signalled { Path::Signal } else { Path::Script },
            exit,
            stop_mode,
            owned,
            status,
            run_id: place.and_then(|place| place.pit.engine().run_id()),
            if_cut_short: signals.are_answered().then_some(by_signal),
            engines: place.map(|place| place.to_be_stopped(stop_mode)).unwrap_or_default(),
            grace: self.grace,
            cleanup_timeout: self.cleanup_timeout,
        }
    }
}

/// Whether a function failed because the engine takes no more calls. Its error is of any type, so its words decide: those of
/// [`CallError::Stopped`], by itself, wrapped transparently, or in a chain such as that of anyhow.
fn tells_of_the_stop<E: fmt::Display>(error: &ScriptError<E>) -> bool {
    match error {
        ScriptError::NotReady(error) => matches!(error, CallError::Stopped),
        ScriptError::Function(error) => format!("{error:#}").contains(&CallError::Stopped.to_string()),
        ScriptError::Argument(_) | ScriptError::Start(_) => false,
    }
}

async fn begin(
    engine: Builder,
    await_pool: bool,
    begun: impl FnOnce(&Snakepit),
) -> Result<Snakepit, EngineError> {
    if await_pool { engine.start_telling(begun).await } else { engine.start_in_background().await }
}

/// Whether the process is one that would not end by itself.
fn no_halt() -> bool {
    std::env::args_os().skip(1).any(|argument| argument == "--no-halt")
        || std::env::var(NO_HALT_VARIABLE).is_ok_and(|value| is_truthy(&value))
}
