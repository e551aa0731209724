//! The crew of a pool: how many workers there are, and who takes the place of one that is gone or due.
//!
//! One loop owns the truth ([`roster`]): workers live in tasks of their own ([`life`]) and report there; nobody else
//! counts them. What the loop does besides is in [`leaving`], [`endings`], [`reload`], [`rounds`] and [`telling`].

mod blame;
mod endings;
mod leaving;
mod life;
mod reload;
mod roster;
mod rounds;
mod telling;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{mpsc, oneshot, watch};

use super::stats::Roll;
use super::{Pool, Shared};
use crate::adapter::{Spawner, StartError};
use crate::custody::{Run, WorkerId};
use crate::hardware::equipped;
use crate::lifecycle::stop_window::StopWindow;
use crate::logging::Logging;
use crate::supervision::Sizing;
use crate::worker::Output;
pub use reload::{ReloadError, Reloaded};
use roster::Roster;

/// A pool's crew, from the outside.
#[derive(Clone, Debug)]
pub(crate) struct Crew {
    orders: mpsc::UnboundedSender<Directive>,
    run: Option<Run>,
}

/// What a crew is told to do.
enum Directive {
    Scale(usize),
    /// Lets the load decide.
    ScaleBy(Sizing),
    /// Replaces one worker, or all of them.
    Recycle(Option<String>, oneshot::Sender<usize>),
    Reload(Option<Box<Pool>>, oneshot::Sender<Result<Reloaded, ReloadError>>),
    /// Tells who there is.
    Roll(oneshot::Sender<Roll>),
    Stop(StopWindow, oneshot::Sender<()>),
}

/// One version of a pool's code and settings. Workers of an older one are replaced by a reload.
#[derive(Debug)]
struct Generation {
    number: u64,
    config: Arc<Pool>,
    /// Its reload failed: whoever still starts is not to serve.
    is_dropped: watch::Sender<bool>,
}

impl Generation {
    fn new(number: u64, config: Arc<Pool>) -> Arc<Self> {
        Arc::new(Self { number, config, is_dropped: watch::Sender::new(false) })
    }
}

impl Crew {
    /// Starts the workers. The receiver hears of the first full strength, or of the first failure.
    pub(crate) fn start(
        shared: Arc<Shared>,
        run: Option<Run>,
    ) -> (Self, oneshot::Receiver<Result<(), StartError>>) {
        // Bounded by the host's own code: no worker can cause an order. Each is taken at once, none waits for its work.
        let (orders, orders_in) = mpsc::unbounded_channel();
        let (first, first_in) = oneshot::channel();
        let runtime = shared.runtime.clone();
        let (roster, news) = Roster::new(shared, run.clone(), first);
        runtime.spawn(roster.work(orders_in, news));
        (Self { orders, run }, first_in)
    }

    pub(crate) fn scale(&self, workers: usize) {
        let _ = self.orders.send(Directive::Scale(workers));
    }

    pub(crate) fn scale_by(&self, sizing: Sizing) {
        let _ = self.orders.send(Directive::ScaleBy(sizing));
    }

    /// Who there is; nobody once it has stopped.
    pub(super) async fn roll(&self) -> Roll {
        let (reply, told) = oneshot::channel();
        let _ = self.orders.send(Directive::Roll(reply));
        told.await.unwrap_or_default()
    }

    /// Replaces a worker, or all of them, without losing capacity. Says how many will be.
    pub(crate) async fn recycle(&self, worker: Option<String>) -> usize {
        let (reply, told) = oneshot::channel();
        let _ = self.orders.send(Directive::Recycle(worker, reply));
        told.await.unwrap_or(0)
    }

    /// Replaces every worker by one of new code, and of new settings if there are any.
    pub(crate) async fn reload(&self, shared: &Shared, pool: Option<Pool>) -> Result<Reloaded, ReloadError> {
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
        let _ = self.orders.send(Directive::Reload(pool.map(Box::new), reply));
        told.await.unwrap_or(Err(ReloadError::Stopped))
    }

    /// As [`Crew::stop`], without waiting for it.
    pub(crate) fn give_up(&self, window: StopWindow) {
        let _ = self.orders.send(Directive::Stop(window, oneshot::channel().0));
    }

    /// Asks every worker to end, within the window; KILL is the engine's. Waits until all are gone.
    pub(crate) async fn stop(&self, window: StopWindow) {
        let (done, gone) = oneshot::channel();
        if self.orders.send(Directive::Stop(window, done)).is_ok() {
            let _ = gone.await;
        }
    }
}

/// Prepares what all workers of a pool share.
pub(crate) async fn prepare(pool: &Pool, run: Option<Run>) -> Result<(), StartError> {
    /// Two may be prepared at the same time.
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let name = format!("{}-init-{}", pool.name, NEXT.fetch_add(1, Ordering::Relaxed));
    let Ok(id) = WorkerId::new(name.clone()) else {
        return Err(StartError::Missing(format!("{name} is too long")));
    };
    let limits = (pool.concurrency, pool.max_frame);
    // What it prints is read by the adapter, and news to nobody.
    let output = Output::new(id.clone(), Logging::default());
    let spawner = Spawner::new(run, id, pool.name.as_str().into(), limits, output).with_debugger(pool.debug);
    pool.adapter.init(&spawner).await
}

pub(crate) use life::tell_of_session_end;
