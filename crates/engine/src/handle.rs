//! The engine as its user holds it: calls, pools, and the shutdown.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::blocking::Blocking;
use crate::builder::Builder;
use crate::custody::{self, Run, StoppedRun};
use crate::lifecycle::shutdown::{CLEANUP_TIMEOUT, ENDING, ExitAction, GRACE, Shutdown, ShutdownCause};
use crate::lifecycle::{CoordinatorError, ShutdownCoordinator, Stage};
use crate::pool::Pool;
use crate::running::{Engine, EnginePhase};
use crate::shutdown_report::ShutdownReport;
use snakepit_core::{CallBuilder, CallError, Chain, MapBuilder, StreamBuilder};

/// A running engine. Clones are cheap; dropping the last one ends the workers.
///
/// ```no_run
/// use snakepit::{Snakepit, args, python};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pit = Snakepit::builder().pool(python("worker.py").workers(4)).start().await?;
/// let sum: i64 = pit.call("add", args! { a: 1, b: 2 }).await?;
/// pit.stop().await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Snakepit(Arc<EngineGuard>);

/// What all handles of an engine share. It is dropped with the last handle, and then ends the engine.
struct EngineGuard(Arc<Engine>);

impl Drop for EngineGuard {
    fn drop(&mut self) {
        let engine = &self.0;
        if !engine.is_own() {
            // A forked copy of the host: the runtime of the engine has no threads here.
            return std::mem::forget(Arc::clone(engine));
        }
        if engine.phase() == EnginePhase::Closed {
            return;
        }
        if !engine.needs_a_driver() {
            // If the runtime is gone as well, dropping it has ended the processes.
            engine.begin_end(ShutdownCause::Drop, Duration::ZERO);
        } else if engine.claim_end() {
            engine.end_on_thread();
        }
    }
}

impl std::fmt::Debug for Snakepit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snakepit").field("pools", &self.pools()).finish_non_exhaustive()
    }
}

impl Snakepit {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self(Arc::new(EngineGuard(engine)))
    }

    /// Returns an empty description of an engine.
    ///
    /// ```no_run
    /// use snakepit::{Snakepit, python};
    ///
    /// # async fn example() -> Result<(), snakepit::EngineError> {
    /// let pit = Snakepit::builder().pool(python("worker.py")).start().await?;
    /// # Ok(()) }
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The pool that serves the calls that name no pool.
    fn first_pool(&self) -> &Pool {
        &self.pools()[0]
    }

    /// Calls a command: `pit.call("add", args! { a: 1, b: 2 }).await?`. Options, such as `.timeout(…)` or `.session(…)`, go
    /// before the `.await`.
    ///
    /// Dropping the future cancels the call.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use snakepit::args;
    ///
    /// # async fn example(pit: snakepit::Snakepit) -> Result<(), snakepit::CallError> {
    /// let sum: i64 = pit.call("add", args! { a: 1, b: 2 }).await?;
    /// let text: String = pit.call("read", ("scan.png",)).timeout(Duration::from_secs(5)).await?;
    /// # Ok(()) }
    /// ```
    pub fn call<T: DeserializeOwned + Send + 'static>(
        &self,
        command: &str,
        args: impl Serialize,
    ) -> CallBuilder<T> {
        self.first_pool().call(command, args)
    }

    /// Calls a command that answers with a stream of values: `pit.stream("count", args! { n: 3 }).open()?`.
    ///
    /// ```no_run
    /// use futures_util::StreamExt;
    /// use snakepit::args;
    ///
    /// # async fn example(pit: snakepit::Snakepit) -> Result<(), snakepit::CallError> {
    /// let mut numbers = pit.stream::<i64>("count", args! { to: 3 }).open()?;
    /// while let Some(number) = numbers.next().await {
    ///     println!("{}", number?);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn stream<T: DeserializeOwned>(&self, command: &str, args: impl Serialize) -> StreamBuilder<T> {
        self.first_pool().stream(command, args)
    }

    /// Calls a command once for each input: `pit.map("square", 0..1000).in_order()?` is a stream of the outcomes.
    ///
    /// A struct or a map holds arguments by name, a tuple or a list holds arguments by position, and any other input is
    /// a single argument.
    ///
    /// ```no_run
    /// use futures_util::TryStreamExt;
    ///
    /// # async fn example(pit: snakepit::Snakepit) -> Result<(), snakepit::CallError> {
    /// let squares: Vec<i64> = pit.map::<i64, _>("square", 0..1000).in_order()?.try_collect().await?;
    /// # Ok(()) }
    /// ```
    pub fn map<T, I>(&self, command: &str, inputs: I) -> MapBuilder<T>
    where
        T: DeserializeOwned + Send + 'static,
        I: IntoIterator<IntoIter: Send + 'static>,
        I::Item: Serialize,
    {
        self.first_pool().map(command, inputs)
    }

    /// Returns this engine for threads that have no runtime, such as those of a blocking web server. They use the runtime
    /// of the engine. A host without any runtime starts the engine with [`Builder::start_blocking`].
    ///
    /// ```no_run
    /// use snakepit::args;
    ///
    /// # async fn example(pit: snakepit::Snakepit) -> Result<(), Box<dyn std::error::Error>> {
    /// let blocking = pit.blocking();
    /// let sum = std::thread::spawn(move || blocking.call::<i64>("add", args! { a: 1, b: 2 }));
    /// # Ok(()) }
    /// ```
    pub fn blocking(&self) -> Blocking {
        Blocking::of_host(self.clone(), self.engine().runtime().clone())
    }

    /// Returns the pool with this name.
    ///
    /// ```no_run
    /// # async fn example(pit: snakepit::Snakepit) -> Result<(), Box<dyn std::error::Error>> {
    /// let images = pit.pool("images").ok_or("there is no pool for images")?;
    /// let text: String = images.call("read", ("scan.png",)).await?;
    /// # Ok(()) }
    /// ```
    pub fn pool(&self, name: &str) -> Option<&Pool> {
        self.pools().iter().find(|pool| pool.name() == name)
    }

    /// Returns all pools.
    ///
    /// ```no_run
    /// # fn example(pit: snakepit::Snakepit) {
    /// for pool in pit.pools() {
    ///     println!("{}: {} calls run, {} wait", pool.name(), pool.in_flight(), pool.queued());
    /// }
    /// # }
    /// ```
    pub fn pools(&self) -> &[Pool] {
        self.engine().pools.pools()
    }

    /// Waits until all workers of all pools are ready. All pools share the timeout. The error names the first pool that
    /// is not ready by then.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// # async fn example(pit: snakepit::Snakepit) -> Result<(), snakepit::CallError> {
    /// pit.pools()[0].scale(16);
    /// pit.await_ready(Duration::from_mins(1)).await?;
    /// # Ok(()) }
    /// ```
    pub async fn await_ready(&self, timeout: Duration) -> Result<(), CallError> {
        try_join_all(self.pools().iter().map(|pool| pool.await_ready(timeout))).await?;
        Ok(())
    }

    /// Returns the run that the processes belong to, or `None` if no pool has processes.
    ///
    /// ```no_run
    /// # fn example(pit: snakepit::Snakepit) {
    /// if let Some(run) = pit.run() {
    ///     println!("run {} keeps its records in {}", run.id(), run.dir().display());
    /// }
    /// # }
    /// ```
    pub fn run(&self) -> Option<&Run> {
        self.engine().run()
    }

    /// Waits until the engine takes no more calls, because it is being stopped or a signal asks the process to end.
    ///
    /// A task that waits here gets the grace period of the stop to finish; see [`crate::script`].
    ///
    /// ```no_run
    /// # async fn next_job() -> i64 { 7 }
    /// # async fn example(pit: snakepit::Snakepit) -> Result<(), snakepit::CallError> {
    /// loop {
    ///     let job = tokio::select! {
    ///         () = pit.stopping() => break,
    ///         job = next_job() => job,
    ///     };
    ///     pit.call::<()>("work", (job,)).await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn stopping(&self) {
        self.engine().stopping().await;
    }

    /// Stops the engine. Queued calls fail, and calls under way get 30 s to finish. Then all workers end together:
    /// from the request to exit until KILL they have `cleanup_on_stop_timeout_ms` of [`custody::CustodyOptions`]
    /// (`docs/lifecycle.md`).
    ///
    /// The shutdown goes on even if you drop this future. Inside a tool of the host, this returns at once, since the
    /// call that uses the tool must finish, too.
    ///
    /// ```no_run
    /// # async fn stop(pit: snakepit::Snakepit) {
    /// let report = pit.stop().await;
    /// if !report.is_clean() {
    ///     eprintln!("{} calls were cut short, {:?} survived", report.cut_short, report.survivors);
    /// }
    /// # }
    /// ```
    pub async fn stop(&self) -> ShutdownReport {
        self.stop_within(GRACE).await
    }

    /// Stops the engine like [`Snakepit::stop`], with another grace period for the calls under way.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// # async fn example(pit: snakepit::Snakepit) {
    /// let report = pit.stop_within(Duration::from_secs(5)).await;
    /// println!("{} calls finished in time, {} did not", report.completed, report.cut_short);
    /// # }
    /// ```
    pub async fn stop_within(&self, grace: Duration) -> ShutdownReport {
        let engine = self.engine();
        if !engine.is_own() || engine.phase() == EnginePhase::Closed {
            return engine.report();
        }
        engine.begin_end(ShutdownCause::Stop, grace);
        if Chain::current().is_some() {
            return engine.report();
        }
        let limit =
            [engine.stop_grace, ENDING, CLEANUP_TIMEOUT].into_iter().fold(grace, Duration::saturating_add);
        if tokio::time::timeout(limit, engine.reached(EnginePhase::Closed)).await.is_err() {
            // The runtime of the engine is not being driven.
            engine.end_on_thread();
            engine.reached(EnginePhase::Closed).await;
        }
        engine.report()
    }

    /// Serves until SIGTERM or SIGINT asks the process to end, then stops the engine like [`Snakepit::stop`]. A second
    /// signal ends all workers at once; a third ends the process immediately.
    ///
    /// Returns the status to exit with: 0 after a clean drain or if the engine was stopped elsewhere, 128 + n if signal
    /// n cut the drain short.
    ///
    /// ```no_run
    /// use snakepit::{Snakepit, python};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pit = Snakepit::builder().pool(python("worker.py")).start().await?;
    /// // Your server runs here, in tasks of its own.
    /// let status = pit.until_shutdown().await?;
    /// std::process::exit(status.into());
    /// # }
    /// ```
    pub async fn until_shutdown(&self) -> Result<u8, CoordinatorError> {
        let coordinator = ShutdownCoordinator::install()?;
        tokio::select! {
            biased;
            _ = coordinator.reached(Stage::Draining { signal: None }) => {}
            () = self.engine().reached(EnginePhase::Closed) => return Ok(0),
        }
        let shutdown = Shutdown::of(self.engine(), ShutdownCause::Signal, GRACE);
        let outcome = Shutdown { if_cut_short: Some(ExitAction::Return), ..shutdown }.run().await;
        Ok(u8::try_from(outcome.status).unwrap_or(u8::MAX))
    }

    /// Ends all workers of all engines of this process now, and waits until they are gone. Nothing drains: workers get
    /// TERM at once, and KILL after the grace period of their engine's custody. The engines take no more calls.
    ///
    /// For hosts that end in their own way. Needs no runtime, blocks for a bounded time, and may be called repeatedly.
    ///
    /// ```no_run
    /// use snakepit::Snakepit;
    ///
    /// // `exit` drops nothing, so the workers are ended first.
    /// for stopped in Snakepit::cleanup() {
    ///     println!("{} workers of run {} ended", stopped.report.stopped, stopped.run);
    /// }
    /// std::process::exit(1);
    /// ```
    pub fn cleanup() -> Vec<StoppedRun> {
        let engines = Engine::all();
        for engine in &engines {
            engine.give_up();
        }
        let reports = custody::stop_all();
        for engine in &engines {
            engine.mark_closed();
        }
        reports
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.0.0
    }
}
