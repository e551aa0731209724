//! Whether the pool behind a loop can serve. While it cannot, no messages are received, and those in hand wait here: what nobody
//! has begun is not to blame for that.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::PoolRef;
use crate::call::way_back::WayBack;
use crate::pool::{EMPTY, Health};

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

/// The way to a pool. Each holder has its own, and all of a loop know the calls that have gone through.
#[derive(Clone, Debug)]
pub(super) struct Door {
    pool: PoolRef,
    health: watch::Receiver<Health>,
    inside: Arc<Inside>,
}

/// The calls that are with the pool, and how to get them back.
#[derive(Debug, Default)]
struct Inside(Mutex<(u64, HashMap<u64, WayBack>)>);

impl Inside {
    fn lock(&self) -> MutexGuard<'_, (u64, HashMap<u64, WayBack>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that has gone through, as long as somebody waits for it.
pub(super) struct Entered {
    inside: Arc<Inside>,
    number: u64,
}

impl Entered {
    /// Whether it was taken back: then no worker has it, and none will.
    pub(super) fn is_taken_back(&self) -> bool {
        !self.inside.lock().1.contains_key(&self.number)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.inside.lock().1.remove(&self.number);
    }
}

impl Door {
    pub(super) fn new(pool: &PoolRef) -> Self {
        Self { pool: pool.clone(), health: pool.shared.health.subscribe(), inside: Arc::default() }
    }

    /// A call has gone through.
    pub(super) fn enter(&self, back: WayBack) -> Entered {
        let mut inside = self.inside.lock();
        inside.0 += 1;
        let number = inside.0;
        inside.1.insert(number, back);
        Entered { inside: Arc::clone(&self.inside), number }
    }

    /// Takes out what waits in the queue of a pool without workers, because the loop is to give back what is not started: nobody
    /// knows how long it would wait there.
    pub(super) fn take_back(&self) {
        if !self.has_worker() {
            self.inside.lock().1.retain(|_, back| !back.withdraws());
        }
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
            Health::Empty => Outlook::Shut(format!("pool {name} has no worker: {EMPTY}")),
            Health::Stopped => Outlook::Over(format!("pool {name} has stopped")),
            Health::Starting | Health::Ready(_) | Health::Short { .. } | Health::Degraded { .. } => {
                Outlook::Open
            }
        }
    }

    /// Until its pool tells something new.
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
    fn has_worker(&self) -> bool {
        self.outlook() == Outlook::Open && self.pool.shared.scheduler().berths().next().is_some()
    }
}
