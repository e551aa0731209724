//! The supervisor of a pool: how many workers there are, and who takes the place of one that is gone or due.
//!
//! One loop owns the truth (`main_loop`): workers live in tasks of their own (`worker_task`) and report there; nobody else
//! counts them. What the loop does besides is in `retirement`, `worker_end`, `reload`, `rounds` and `telemetry`.

mod blame;
mod main_loop;
mod reload;
mod retirement;
mod rounds;
mod telemetry;
mod worker_end;
mod worker_task;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{mpsc, oneshot, watch};

use crate::adapter::{Spawner, StartError};
use crate::custody::{Run, WorkerId};
use crate::lifecycle::stop_window::StopWindow;
use crate::logging::Logging;
use crate::pool::equipped;
use crate::pool::stats::WorkerRows;
use crate::pool::{PoolInner, PoolOptions};
use crate::worker::Output;
use main_loop::Supervisor;
pub use reload::{ReloadError, Reloaded};
use snakepit_policy::Sizing;

/// A pool's supervisor, from the outside.
#[derive(Clone, Debug)]
pub(crate) struct SupervisorHandle {
    orders: mpsc::UnboundedSender<SupervisorCommand>,
    run: Option<Run>,
}

/// What a supervisor is told to do.
enum SupervisorCommand {
    Scale(usize),
    /// Lets the load decide.
    ScaleBy(Sizing),
    /// Replaces one worker, or all of them.
    Recycle(Option<String>, oneshot::Sender<usize>),
    Reload(Option<Box<PoolOptions>>, oneshot::Sender<Result<Reloaded, ReloadError>>),
    /// Tells who there is.
    WorkerRows(oneshot::Sender<WorkerRows>),
    Stop(StopWindow, oneshot::Sender<()>),
}

/// One version of a pool's code and settings. Workers of an older one are replaced by a reload.
#[derive(Debug)]
struct Generation {
    number: u64,
    config: Arc<PoolOptions>,
    /// Its reload failed: whoever still starts is not to serve.
    is_dropped: watch::Sender<bool>,
}

impl Generation {
    fn new(number: u64, config: Arc<PoolOptions>) -> Arc<Self> {
        Arc::new(Self { number, config, is_dropped: watch::Sender::new(false) })
    }
}

impl SupervisorHandle {
    /// Starts the workers. The receiver hears of the first full strength, or of the first failure.
    pub(crate) fn start(
        shared: Arc<PoolInner>,
        run: Option<Run>,
    ) -> (Self, oneshot::Receiver<Result<(), StartError>>) {
        // Bounded by the host's own code: no worker can cause an order. Each is taken at once, none waits for its work.
        let (orders, orders_in) = mpsc::unbounded_channel();
        let (first, first_in) = oneshot::channel();
        let runtime = shared.runtime.clone();
        let (supervisor, news) = Supervisor::new(shared, run.clone(), first);
        runtime.spawn(supervisor.work(orders_in, news));
        (Self { orders, run }, first_in)
    }

    pub(crate) fn scale(&self, workers: usize) {
        let _ = self.orders.send(SupervisorCommand::Scale(workers));
    }

    pub(crate) fn scale_by(&self, sizing: Sizing) {
        let _ = self.orders.send(SupervisorCommand::ScaleBy(sizing));
    }

    /// Who there is; nobody once it has stopped.
    pub(super) async fn roll(&self) -> WorkerRows {
        let (reply, told) = oneshot::channel();
        let _ = self.orders.send(SupervisorCommand::WorkerRows(reply));
        told.await.unwrap_or_default()
    }

    /// Replaces a worker, or all of them, without losing capacity. Says how many will be.
    pub(crate) async fn recycle(&self, worker: Option<String>) -> usize {
        let (reply, told) = oneshot::channel();
        let _ = self.orders.send(SupervisorCommand::Recycle(worker, reply));
        told.await.unwrap_or(0)
    }

    /// Replaces every worker by one of new code, and of new settings if there are any.
    pub(crate) async fn reload(
        &self,
        shared: &PoolInner,
        pool: Option<PoolOptions>,
    ) -> Result<Reloaded, ReloadError> {
        let aborted = |source: StartError| ReloadError::aborted(&shared.name, &source.to_string());
        let pool = match pool {
            Some(pool) => {
                let pool = equipped(pool, self.run.as_ref()).await.map_err(aborted)?;
                prepare(&pool, self.run.clone()).await.map_err(aborted)?;
                Some(pool)
            }
            None => None,
        };
        let (reply, told) = oneshot::channel();
        let _ = self.orders.send(SupervisorCommand::Reload(pool.map(Box::new), reply));
        told.await.unwrap_or(Err(ReloadError::Stopped))
    }

    /// As [`SupervisorHandle::stop`], without waiting for it.
    pub(crate) fn give_up(&self, window: StopWindow) {
        let _ = self.orders.send(SupervisorCommand::Stop(window, oneshot::channel().0));
    }

    /// Asks every worker to end, within the window; KILL is the engine's. Waits until all are gone.
    pub(crate) async fn stop(&self, window: StopWindow) {
        let (done, gone) = oneshot::channel();
        if self.orders.send(SupervisorCommand::Stop(window, done)).is_ok() {
            let _ = gone.await;
        }
    }
}

/// Prepares what all workers of a pool share.
pub(crate) async fn prepare(pool: &PoolOptions, run: Option<Run>) -> Result<(), StartError> {
    /// Two may be prepared at the same time.
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let name = format!("{}-init-{}", pool.name, NEXT.fetch_add(1, Ordering::Relaxed));
    let id = WorkerId::new(name)?;
    let limits = (pool.concurrency, pool.max_frame);
    // What it prints is read by the adapter, and news to nobody.
    let output = Output::new(id.clone(), Logging::default());
    let spawner = Spawner::new(run, id, pool.name.as_str().into(), limits, output).with_debugger(pool.debug);
    pool.adapter.init(&spawner).await
}

pub(crate) use worker_task::tell_of_session_end;
