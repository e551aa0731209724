//! The supervisor of a pool: it decides how many workers there are, and replaces workers that are gone or due.
//!
//! One loop (`main_loop`) owns the state. Workers live in tasks of their own (`worker_task`) and report to the loop; no
//! other code counts them. The loop's other duties are in `removal`, `worker_end`, `reload`, `periodic_checks` and
//! `telemetry`.

mod external_kill;
mod main_loop;
mod periodic_checks;
mod reload;
mod removal;
mod telemetry;
mod worker_end;
mod worker_listing;
mod worker_task;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{mpsc, oneshot, watch};

use crate::adapter::{Spawner, StartError};
use crate::custody::{Run, WorkerId};
use crate::error_text::with_causes;
use crate::logging::Logging;
use crate::options::{PoolOptions, equipped};
use crate::output::Output;
use crate::queue::PoolInner;
use crate::worker::StopWindow;
use main_loop::Supervisor;
pub use reload::{ReloadError, Reloaded};
use snakepit_policy::Sizing;
pub use worker_listing::WorkerDuty;
pub(crate) use worker_listing::{WorkerRow, WorkerRows};

/// A handle to a pool's supervisor.
#[derive(Clone, Debug)]
pub(crate) struct SupervisorHandle {
    orders: mpsc::UnboundedSender<SupervisorCommand>,
    run: Option<Run>,
}

/// A command to a supervisor.
enum SupervisorCommand {
    Scale(usize),
    /// Lets the load decide how many workers there are.
    ScaleBy(Sizing),
    /// Replaces one worker, or all of them.
    Recycle(Option<String>, oneshot::Sender<usize>),
    Reload(Option<Box<PoolOptions>>, oneshot::Sender<Result<Reloaded, ReloadError>>),
    /// Lists the workers.
    WorkerRows(oneshot::Sender<WorkerRows>),
    Stop(StopWindow, oneshot::Sender<()>),
}

/// One version of a pool's code and settings. A reload replaces the workers of older generations.
#[derive(Debug)]
struct Generation {
    number: u64,
    config: Arc<PoolOptions>,
    /// Whether the reload to this generation failed. Workers that are still starting must not serve.
    is_dropped: watch::Sender<bool>,
}

impl Generation {
    fn new(number: u64, config: Arc<PoolOptions>) -> Arc<Self> {
        Arc::new(Self { number, config, is_dropped: watch::Sender::new(false) })
    }
}

impl SupervisorHandle {
    /// Starts the workers. The receiver gets a result when all workers serve for the first time, or when the start
    /// fails.
    pub(crate) fn start(
        shared: Arc<PoolInner>,
        run: Option<Run>,
    ) -> (Self, oneshot::Receiver<Result<(), StartError>>) {
        // Bounded by the host's own code: no worker can cause a command. Each command is received at once, without
        // waiting for the work of an earlier one.
        let (orders, orders_in) = mpsc::unbounded_channel();
        let (first, first_in) = oneshot::channel();
        let runtime = shared.runtime.clone();
        let (supervisor, reports) = Supervisor::new(shared, run.clone(), first);
        runtime.spawn(supervisor.work(orders_in, reports));
        (Self { orders, run }, first_in)
    }

    pub(crate) fn scale(&self, workers: usize) {
        let _ = self.orders.send(SupervisorCommand::Scale(workers));
    }

    pub(crate) fn scale_by(&self, sizing: Sizing) {
        let _ = self.orders.send(SupervisorCommand::ScaleBy(sizing));
    }

    /// Returns the workers, or none once the supervisor has stopped.
    pub(super) async fn worker_rows(&self) -> WorkerRows {
        self.ask(SupervisorCommand::WorkerRows).await.unwrap_or_default()
    }

    /// Replaces one worker, or all of them, without losing capacity. Returns how many will be replaced.
    pub(crate) async fn recycle(&self, worker: Option<String>) -> usize {
        self.ask(|reply| SupervisorCommand::Recycle(worker, reply)).await.unwrap_or(0)
    }

    /// Replaces every worker by one with the new code, and with the new settings if there are any.
    pub(crate) async fn reload(
        &self,
        shared: &PoolInner,
        pool: Option<PoolOptions>,
    ) -> Result<Reloaded, ReloadError> {
        let aborted = |source: StartError| ReloadError::aborted(&shared.name, &with_causes(&source));
        let pool = match pool {
            Some(pool) => {
                let pool = equipped(pool, self.run.as_ref()).await.map_err(aborted)?;
                prepare(&pool, self.run.clone()).await.map_err(aborted)?;
                Some(pool)
            }
            None => None,
        };
        let answer = self.ask(|reply| SupervisorCommand::Reload(pool.map(Box::new), reply)).await;
        answer.unwrap_or(Err(ReloadError::Stopped))
    }

    /// Like [`SupervisorHandle::stop`], but does not wait.
    pub(crate) fn give_up(&self, window: StopWindow) {
        let _ = self.orders.send(SupervisorCommand::Stop(window, oneshot::channel().0));
    }

    /// Asks every worker to end within the window; the engine sends KILL. Waits until all workers are gone.
    pub(crate) async fn stop(&self, window: StopWindow) {
        let _ = self.ask(|done| SupervisorCommand::Stop(window, done)).await;
    }

    /// Sends a command and waits for the answer. Returns `None` if the supervisor has stopped.
    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> SupervisorCommand) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        let _ = self.orders.send(command(reply));
        answer.await.ok()
    }
}

/// Prepares what all workers of a pool share.
pub(crate) async fn prepare(pool: &PoolOptions, run: Option<Run>) -> Result<(), StartError> {
    /// Distinguishes preparations that run at the same time.
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let name = format!("{}-init-{}", pool.name, NEXT.fetch_add(1, Ordering::Relaxed));
    let id = WorkerId::new(name)?;
    let limits = (pool.concurrency, pool.max_frame);
    // The adapter reads the output, and nothing of it is logged.
    let output = Output::new(id.clone(), Logging::default());
    let spawner = Spawner::new(run, id, pool.name.as_str().into(), limits, output).with_debugger(pool.debug);
    pool.adapter.init(&spawner).await
}

pub(crate) use worker_task::announce_session_end;
