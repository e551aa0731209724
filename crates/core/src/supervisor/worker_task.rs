//! The task of one worker, from its start to its end.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::Generation;
use super::main_loop::WorkerReport;
use crate::adapter::{Handle, ProtocolFault, Reason, Spawner, StartError};
use crate::call::{CallError, RemoteErrorKind};
use crate::custody::{Run, WorkerId};
use crate::error_text::{ignoring_panics, with_causes};
use crate::options::WarmUp;
use crate::output::Output;
use crate::queue::PoolInner;
use crate::queue::session::EndedSession;
use crate::request::direct_call::ask;
use crate::telemetry::{Event, Level, emit_with};
use crate::value::Encoded;
use crate::worker::{
    AUTOPSY_PATIENCE, EXIT_TIMEOUT, EndTimes, StopWindow, Worker, WorkerEnding, WorkerSpec, tend,
};
use snakepit_policy::jitter::Chance;
use snakepit_policy::recycling::Term;

/// How a worker's task ended.
pub(super) enum TaskEnd {
    NotStarted { generation: u64, error: StartError },
    Ended { worker: Arc<Worker>, ending: WorkerEnding },
}

/// The parameters of a worker's start.
pub(super) struct WorkerStart {
    pub(super) shared: Arc<PoolInner>,
    pub(super) run: Option<Run>,
    pub(super) generation: Arc<Generation>,
    pub(super) name: String,
    pub(super) slot: usize,
    pub(super) device: Option<Arc<str>>,
    /// Whether the worker's health hook must succeed before the worker serves.
    pub(super) checked: bool,
    /// The window of the stop, once the pool stops.
    pub(super) stopping: watch::Receiver<Option<StopWindow>>,
    pub(super) reports: mpsc::UnboundedSender<WorkerReport>,
}

impl WorkerStart {
    pub(super) async fn live(self) -> TaskEnd {
        let Self { shared, generation, reports, .. } = &self;
        let began_at = Instant::now();
        let (id, handle, output) = match self.start().await {
            Ok(started) => started,
            Err(error) => return TaskEnd::NotStarted { generation: generation.number, error },
        };
        let index = shared.scheduler().reserve();
        shared.learn(handle.introduction());
        let config = &generation.config;
        let made = WorkerSpec {
            generation: generation.number,
            concurrency: config.concurrency,
            serves_one: config.debug,
            slot: self.slot,
            device: self.device.clone(),
            term: Term::draw(&config.recycling, || Chance::draw().number()),
            fewest: config.adaptive_concurrency.map(|(fewest, _)| fewest),
            counts_commands: config.recycling.memory_limit().is_some(),
            began_at,
        };
        let worker = Arc::new(Worker::new(index, id, shared.clone(), made, handle, output));
        shared.scheduler().enlist(&worker);
        let _ = reports.send(WorkerReport::Serving(tokio::task::id(), Arc::clone(&worker)));
        shared.feed(index);
        let times = EndTimes { grace: config.cancel_grace.terminate, stopping: self.stopping.clone() };
        let ending =
            tend(Arc::clone(&worker), times, || drop(reports.send(WorkerReport::Leaving(index)))).await;
        TaskEnd::Ended { worker, ending }
    }

    async fn start(&self) -> Result<(WorkerId, Arc<dyn Handle>, Arc<Output>), StartError> {
        let id = WorkerId::new(self.name.clone())?;
        let config = &self.generation.config;
        let output = Output::new(id.clone(), self.shared.logging);
        let limits = (config.concurrency, config.max_frame);
        let pool = Arc::clone(&self.shared.name);
        let spawner = Spawner::new(self.run.clone(), id.clone(), pool, limits, Arc::clone(&output));
        let spawner = spawner.at(self.slot, self.device.clone(), config.variables(self.device.as_deref()));
        let spawner = if config.debug { spawner.with_terminal() } else { spawner };
        let (process, awaited) = (spawner.process(), spawner.awaited());
        let timeout = config.start_timeout;
        // Processes that the start has created are ended below, even if it panics.
        let start = async { config.adapter.start_worker(spawner).await };
        let start = AssertUnwindSafe(start)
            .catch_unwind()
            .map(|started| started.unwrap_or_else(|panic| Err(panicked(&id, panic.as_ref()))));
        let started = tokio::select! {
            started = tokio::time::timeout(timeout, start) => started,
            () = self.unwanted() => Ok(Err(StartError::Stopped)),
        };
        let failure = match started {
            Ok(Ok(handle)) => {
                let unproven = Unproven { handle, is_settled: false };
                match self.check(&id, &unproven.handle, &output).await {
                    Ok(()) => return Ok((id, unproven.passes(), output)),
                    Err(error) => {
                        unproven.end(&error, self.unwanted()).await;
                        error
                    }
                }
            }
            Ok(Err(error)) => error,
            Err(_) => {
                output.catch_up();
                let awaited = awaited.lock().unwrap_or_else(PoisonError::into_inner).take();
                StartError::Timeout { worker: id, after: timeout, awaited, output: output.shown() }
            }
        };
        if let Some(process) = process.get().cloned() {
            let _ = process.kill();
            process.exited().await;
        }
        Err(failure)
    }

    /// Waits until the pool stops, or returns to its previous generation.
    async fn unwanted(&self) {
        let (mut stopping, mut dropped) = (self.stopping.clone(), self.generation.is_dropped.subscribe());
        tokio::select! {
            _ = stopping.wait_for(Option::is_some) => {}
            _ = dropped.wait_for(|dropped| *dropped) => {}
        }
    }

    /// Runs the checks that a worker must pass before it serves.
    async fn check(
        &self,
        id: &WorkerId,
        handle: &Arc<dyn Handle>,
        output: &Output,
    ) -> Result<(), StartError> {
        let checks = async {
            for warm_up in &self.generation.config.warm_up {
                self.warm_up(id, handle, output, warm_up).await?;
            }
            if self.checked { self.check_health(id, handle, output).await } else { Ok(()) }
        };
        tokio::select! {
            checked = checks => checked,
            () = self.unwanted() => Err(StartError::Stopped),
        }
    }

    async fn warm_up(
        &self,
        id: &WorkerId,
        handle: &Arc<dyn Handle>,
        output: &Output,
        WarmUp { command, arguments }: &WarmUp,
    ) -> Result<(), StartError> {
        let answer = match arguments.clone() {
            Ok(arguments) => ask(handle, command, arguments, self.generation.config.start_timeout).await,
            Err(source) => Err(CallError::Arguments { command: command.clone(), source }),
        };
        let reason = match answer {
            Ok(_) => return Ok(()),
            Err(CallError::Cancelled) => how_it_ended(handle, output).await,
            Err(error) => with_causes(&error),
        };
        let (worker, command) = (id.clone(), command.clone());
        Err(StartError::WarmUp { worker, command, reason, output: output.shown() })
    }

    async fn check_health(
        &self,
        id: &WorkerId,
        handle: &Arc<dyn Handle>,
        output: &Output,
    ) -> Result<(), StartError> {
        let limit = self.generation.config.start_timeout;
        let answer = ask(handle, "snakepit.health", Encoded::empty_map(), limit).await;
        let reason = match answer {
            Ok(answer) if answer.decode::<bool>().is_ok_and(|healthy| !healthy) => {
                "its health hook returned false".into()
            }
            Ok(_) => return Ok(()),
            // A worker without this command has no hook.
            Err(CallError::Remote(error)) if error.kind == RemoteErrorKind::UnknownCommand => return Ok(()),
            Err(CallError::Cancelled) => how_it_ended(handle, output).await,
            Err(error) => with_causes(&error),
        };
        Err(StartError::Unhealthy { worker: id.clone(), reason })
    }
}

/// A worker that is ready, but not managed by `tend` yet. It is ended if it is dropped together with the runtime.
struct Unproven {
    handle: Arc<dyn Handle>,
    is_settled: bool,
}

impl Unproven {
    fn passes(mut self) -> Arc<dyn Handle> {
        self.is_settled = true;
        Arc::clone(&self.handle)
    }

    async fn end(mut self, error: &StartError, unwanted: impl Future<Output = ()>) {
        self.is_settled = true;
        let (reason, limit) = match error {
            // The worker is in the middle of a call whose result is no longer needed.
            StartError::Stopped => (Reason::Stopped, Duration::ZERO),
            error => (Reason::Broken(ProtocolFault::CheckFailed(with_causes(error))), EXIT_TIMEOUT),
        };
        tokio::select! {
            biased;
            _ = tokio::time::timeout(limit, self.handle.terminate(reason)) => {}
            () = unwanted => {}
        }
    }
}

impl Drop for Unproven {
    fn drop(&mut self) {
        if !self.is_settled {
            ignoring_panics(|| {
                let _ = self.handle.terminate(Reason::Broken(ProtocolFault::RuntimeDropped)).now_or_never();
            });
        }
    }
}

fn panicked(worker: &WorkerId, panic: &(dyn Any + Send)) -> StartError {
    let said = panic.downcast_ref::<&str>().copied();
    let said =
        said.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it does not say why");
    let fault = ProtocolFault::AdapterPanicked(said.into());
    StartError::Protocol { worker: worker.clone(), fault, output: Vec::new() }
}

/// Returns how the process of a worker ended that went away during a call, if that becomes known soon.
async fn how_it_ended(handle: &Arc<dyn Handle>, output: &Output) -> String {
    let Some(process) = handle.process() else { return "it is gone".into() };
    match tokio::time::timeout(AUTOPSY_PATIENCE, process.exited()).await {
        Ok(exit) => {
            let _ = tokio::time::timeout(AUTOPSY_PATIENCE, output.complete()).await;
            format!("it ended with {}", exit.status)
        }
        Err(_) => "it closed its socket".into(),
    }
}

/// Emits the event of a session's end, and notifies the workers that have served the session.
pub(crate) fn announce_session_end(
    shared: &Arc<PoolInner>,
    session: &EndedSession,
    event: impl FnOnce(Arc<str>, Arc<str>) -> Event,
) {
    emit_with(Level::Debug, || event(Arc::clone(&shared.name), Arc::clone(&session.id)));
    for worker in session.served_by.iter().filter_map(std::sync::Weak::upgrade) {
        shared.send_session_end(&worker, &session.id);
    }
}
