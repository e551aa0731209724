//! The handle of a run: opens the run, spawns workers and stops it.
//!
//! One thread starts the keeper, listens to it, and starts another one if it dies (`link/keeper_thread.rs`). A second
//! thread looks for dead runs of other hosts.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::doctor::tiers;
use crate::link::keeper_thread::{self, KeeperStart};
use crate::process::cgroup::Cgroup;
use crate::process::machine::PidScopeError;
use crate::process::pid_scope::PidScope;
use crate::reap::reaper::{self, OtherReapers};
use crate::reap::report::announce;
use crate::serve::worker_process::WorkerProcess;
use crate::spawn::command::Command;
use crate::spawn::error::SpawnError;
use crate::spawn::prepare::{PreparedSpawn, prepare};
use crate::spawn::request::request_worker;
use crate::state::{StateDir, StateError, default_state_dir};
use crate::stop::barrier::{self, StopScope};
use crate::{Pid, RunId, StopReport, WorkerId};

use super::event::CustodyEvents;
use super::open_runs;
use super::options::{Containment, CustodyOptions, Tier};
use super::shared_state::RunInner;

/// The reason why a run could not be opened. Nothing of the attempt is left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The requested tier is not available here.
    #[error("the tier {tier} is not available here: {reason} (`snakepit doctor` shows which tiers are)")]
    Tier {
        /// The tier.
        tier: Tier,
        /// Why the tier is not available.
        reason: String,
    },
    /// The kernel has no pidfds.
    #[error("{reason}")]
    NoPidfds {
        /// Why there are none, and what to do.
        reason: String,
    },
    /// The keeper could not be started.
    #[error("cannot start the keeper: {reason}")]
    Keeper {
        /// Why the start failed.
        reason: String,
    },
    /// Pids do not mean what they seem to mean in the caller's environment.
    #[error(transparent)]
    PidScope(#[from] PidScopeError),
    /// `/proc` does not show the identity of this process.
    #[error("cannot read the identity of this process from /proc: check that /proc is mounted and readable")]
    Identity(#[source] io::Error),
}

/// A run: one life of a host. Cheap to clone. Dropping the last clone stops the run like [`Run::stop`].
///
/// ```no_run
/// use snakepit_custody::{Command, CustodyOptions, Run};
///
/// let run = Run::open(CustodyOptions::default())?;
/// run.spawn(Command::new("sleep").arg("1000"))?;
/// let report = run.stop();
/// assert!(report.is_clean(), "{:?}", report.survivors);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Run(Arc<StopOnDrop>);

/// Stops the run when the last handle is dropped.
struct StopOnDrop {
    inner: Arc<RunInner>,
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        // A forked copy of the host must not stop the run of the original.
        if self.inner.is_owner() {
            let _ = self.inner.stop(self.inner.config.grace());
        }
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("id", &self.id()).field("tier", &self.tier()).finish_non_exhaustive()
    }
}

impl Run {
    /// Clears what dead hosts left behind, and starts the keeper.
    pub fn open(config: CustodyOptions) -> Result<Self, OpenError> {
        tiers::pidfds().map_err(|reason| OpenError::NoPidfds { reason })?;
        let scope = PidScope::here()?;
        let tier = choose_tier(config.containment)?;
        let path = config.state_dir.clone().map_or_else(default_state_dir, Ok)?;
        let inner = Arc::new(RunInner::create(config, tier, scope, StateDir::open(&path)?)?);
        let keeper = keeper_thread::start(&inner);
        // Runs at the same time as the start of the keeper: no caller can ask the keeper to start a process before this
        // function returns.
        let reaped =
            reaper::reap(&inner.state_dir, scope, &inner.config, Some(inner.id), OtherReapers::Await);
        if let Err(reason) = keeper.and_then(KeeperStart::wait) {
            inner.forget();
            return Err(OpenError::Keeper { reason });
        }
        open_runs::add(&inner);
        // From here on, dropping the handle stops the run.
        let run = Self(Arc::new(StopOnDrop { inner }));
        keeper_thread::start_reaping(&run.0.inner).map_err(|reason| OpenError::Keeper { reason })?;
        announce(&reaped?, &run.0.inner.sink);
        Ok(run)
    }

    /// Returns the run's id.
    pub fn id(&self) -> RunId {
        self.0.inner.id
    }

    /// Returns the tier that contains the workers.
    pub fn tier(&self) -> Tier {
        self.0.inner.tier
    }

    /// Returns the cgroup whose `cgroup.kill` backs the tier, if there is one.
    pub fn cgroup(&self) -> Option<&Path> {
        self.0.inner.cgroup.as_ref().map(Cgroup::path)
    }

    /// Returns the state directory in which the run is recorded.
    pub fn state_dir(&self) -> &Path {
        self.0.inner.state_dir.path()
    }

    /// Returns the run's directory.
    pub fn dir(&self) -> &Path {
        self.0.inner.dir.path()
    }

    /// Returns the pid of the keeper that serves, if there is one.
    pub fn keeper_pid(&self) -> Option<Pid> {
        self.0.inner.link().map(|link| link.pid)
    }

    /// Returns the run's events to the first caller, and `None` to all others.
    pub fn events(&self) -> Option<CustodyEvents> {
        self.0.inner.events.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns how many events were dropped because they were not read in time.
    pub fn lost_events(&self) -> u64 {
        self.0.inner.sink.lost()
    }

    /// Returns the living workers.
    pub fn workers(&self) -> Vec<WorkerProcess> {
        let inner = &self.0.inner;
        let workers: Vec<_> = inner.table().workers.values().cloned().collect();
        workers.into_iter().map(|shared| WorkerProcess { shared, run: Arc::clone(inner) }).collect()
    }

    /// Starts a command. When the call returns, the program runs and is recorded.
    pub fn spawn(&self, mut command: Command) -> Result<WorkerProcess, SpawnError> {
        let inner = &self.0.inner;
        if !inner.is_owner() {
            return Err(SpawnError::NotOwner);
        }
        let key = inner.next_key.fetch_add(1, Ordering::Relaxed);
        let id = match command.worker_id.take() {
            Some(id) => id,
            None => WorkerId::numbered(key),
        };
        let PreparedSpawn { orders, fds, program, cwd } = prepare(command, key, &id, inner.id)?;
        let orders = orders.encode();
        let link = inner.begin_spawn(key, &id)?;
        let outcome = request_worker(&link, key, &id, orders, &fds);
        // The descriptors are held until here, so that the spawn fails cleanly if one cannot be sent.
        drop(fds);
        let outcome = outcome.map_err(|failed| failed.explain(&program, &cwd, inner.dir.path()));
        inner.finish_spawn(key, outcome).map(|shared| WorkerProcess { shared, run: Arc::clone(inner) })
    }

    /// Stops all workers. The run stays open.
    pub fn cleanup(&self) -> StopReport {
        let inner = &self.0.inner;
        if !inner.is_owner() {
            return StopReport::default();
        }
        let workers = inner.table().workers.values().cloned().collect();
        barrier::stop_workers(inner, workers, inner.config.grace(), StopScope::LivingWorkers)
    }

    /// Stops all workers, ends the keeper and removes the run's directory. Later calls return the same report.
    pub fn stop(&self) -> StopReport {
        self.stop_within(self.0.inner.config.grace())
    }

    /// Like [`Run::stop`], with another time between TERM and KILL. Shortens a stop with a longer grace that is in
    /// progress.
    pub fn stop_within(&self, grace: Duration) -> StopReport {
        if self.0.inner.is_owner() { self.0.inner.end(grace) } else { StopReport::default() }
    }
}

fn choose_tier(containment: Containment) -> Result<Tier, OpenError> {
    let tier = match containment {
        Containment::Auto => tiers::AUTO,
        Containment::Shim => Tier::Shim,
        Containment::Namespace => Tier::Namespace,
        Containment::Group => Tier::Group,
    };
    tiers::check(tier).map(|()| tier).map_err(|reason| OpenError::Tier { tier, reason })
}
