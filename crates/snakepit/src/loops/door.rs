//! Whether the pool behind a loop can serve. While it cannot, no messages are received, and those in hand wait here: what nobody
//! has begun is not to blame for that.

use tokio::sync::watch;

use crate::PoolRef;
use crate::pool::Health;

/// How it stands with a pool, as far as its loop is concerned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Outlook {
    /// It serves, or gets ready to.
    Open,
    /// It has no worker, and this is why; it will have one.
    Shut(String),
    /// It has stopped.
    Over(String),
}

/// The way to a pool. Each holder has its own.
#[derive(Clone, Debug)]
pub(super) struct Door {
    pool: PoolRef,
    health: watch::Receiver<Health>,
}

impl Door {
    pub(super) fn new(pool: &PoolRef) -> Self {
        Self { pool: pool.clone(), health: pool.shared.health.subscribe() }
    }

    /// How it stands now. A pool that sleeps until it is called is open.
    pub(super) fn outlook(&self) -> Outlook {
        let name = self.pool.name();
        match &*self.health.borrow() {
            // It has a worker only while a call waits, and so looks for one only then.
            _ if self.pool.shared.config().debug => Outlook::Open,
            Health::Short { serving: 0, reason } | Health::Degraded { serving: 0, reason } => {
                let first = reason.lines().next().unwrap_or_default();
                Outlook::Shut(format!("pool {name} has no worker: {first}"))
            }
            Health::Stopped => Outlook::Over(format!("pool {name} has stopped")),
            Health::Starting | Health::Ready(_) | Health::Short { .. } | Health::Degraded { .. } => {
                Outlook::Open
            }
        }
    }

    /// Until it may stand otherwise than when this, or its begin, was last asked for.
    pub(super) async fn changed(&mut self) {
        // It cannot fail: the pool holds the sender.
        let _ = self.health.changed().await;
    }

    /// Until it is open; false if it will never be.
    pub(super) async fn until_open(&mut self) -> bool {
        loop {
            self.health.mark_unchanged();
            match self.outlook() {
                Outlook::Open => return true,
                Outlook::Over(_) => return false,
                Outlook::Shut(_) => self.changed().await,
            }
        }
    }

    /// Whether any worker is there that serves.
    pub(super) fn has_worker(&self) -> bool {
        self.outlook() == Outlook::Open && self.pool.shared.scheduler().berths().next().is_some()
    }
}
