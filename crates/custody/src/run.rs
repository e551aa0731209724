//! A run: one start of the engine in a host, from [`Run::open`] to [`Run::stop`].
//!
//! Owns the run's directory, its keeper and the table of its workers. One thread, the tender, starts the
//! keeper, hears it, and starts another if it dies; a second one looks for other hosts' dead runs.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::barrier::{self, Scope, StopReport, Unkillable};
use crate::cgroup::Cgroup;
use crate::command::Command;
use crate::config::{Config, Containment, Tier};
use crate::event::{Event, EventSink, Events};
use crate::ledger::{self, opening, record};
use crate::link::Link;
use crate::machine::{Place, PlaceError};
use crate::order::place_order;
use crate::reaper::Others;
use crate::run_name::RunName;
use crate::spawn::{Prepared, SpawnError, prepare};
use crate::state::{RunDir, StateDir, StateError, default_state_dir};
use crate::tender::Starting;
use crate::wire::{ToKeeper, WireTier};
use crate::worker::{Exit, Shared, Worker};
use crate::{Pid, RunId, WorkerId, identity, machine, reaper, runs, tender, tiers};

/// How long the keeper may take to end once everybody is gone.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// Why a run could not be opened. Nothing of the attempt is left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The tier that was asked for cannot be had here.
    #[error("the tier {tier} is not available here: {reason} (`snakepit doctor` shows what is)")]
    Tier {
        /// Which tier.
        tier: Tier,
        /// Why not.
        reason: String,
    },
    /// The kernel cannot hold processes by descriptors.
    #[error("{reason}")]
    NoPidfds {
        /// Why not, and what to do.
        reason: String,
    },
    /// The keeper could not be started.
    #[error("cannot start the keeper: {reason}")]
    Keeper {
        /// Why not.
        reason: String,
    },
    /// Numbers of processes do not mean here what they seem to.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The own process cannot be told from others.
    #[error("cannot read from /proc who this process is")]
    Identity(#[source] io::Error),
}

/// A run. Cheap to clone; when the last one is dropped, the run is stopped as by [`Run::stop`].
#[derive(Clone)]
pub struct Run(Arc<Owner>);

/// The host's side of a run's life; its end is the run's end.
struct Owner {
    inner: Arc<Inner>,
}

impl Drop for Owner {
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

/// What the run's handles, workers and threads share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) id: RunId,
    pub(crate) config: Config,
    pub(crate) tier: Tier,
    pub(crate) place: Place,
    pub(crate) state_dir: StateDir,
    pub(crate) dir: RunDir,
    pub(crate) lock: OwnedFd,
    pub(crate) cgroup: Option<Cgroup>,
    pub(crate) sink: EventSink,
    owner: Pid,
    events: Mutex<Option<Events>>,
    next_key: AtomicU64,
    table: Mutex<Table>,
    /// Something in the table changed that a thread may wait for.
    pub(crate) changed: Condvar,
    report: Mutex<Option<StopReport>>,
    /// Processes that the run may not end, and their workers.
    pub(crate) unkillable: Mutex<Vec<Unkillable>>,
}

/// Who is there.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) keeper: Keeper,
    pub(crate) spawning: BTreeMap<u64, Spawning>,
    pub(crate) workers: BTreeMap<u64, Arc<Shared>>,
}

/// How it stands with the keeper.
#[derive(Debug)]
pub(crate) enum Keeper {
    /// The first one is being started, or one was lost and its successor is being started.
    Awaited,
    Serving(Arc<Link>),
    /// The run is stopping: whoever is lost now is not replaced.
    Closing(Option<Arc<Link>>),
    /// The last one has ended.
    Closed,
}

/// A spawn that waits for the keeper's answer.
#[derive(Debug)]
pub(crate) struct Spawning {
    pub(crate) worker: WorkerId,
    /// Its end, if the tender heard of it before the spawner could say that it began.
    pub(crate) early_exit: Option<Exit>,
    /// The signal that has stopped it, if the tender heard of that so early.
    pub(crate) early_stop: Option<i32>,
}

impl Run {
    /// Clears what dead hosts left behind and starts the keeper, both at the same time.
    pub fn open(config: Config) -> Result<Self, OpenError> {
        tiers::pidfds().map_err(|reason| OpenError::NoPidfds { reason })?;
        let place = Place::here()?;
        let tier = choose_tier(config.containment)?;
        let path = config.state_dir.clone().map_or_else(default_state_dir, Ok)?;
        let inner = Arc::new(Inner::create(config, tier, place, StateDir::open(&path)?)?);
        let keeper = tender::start(&inner);
        // The keeper runs nothing before it is asked to, and nobody can ask before the dead runs are cleared.
        let reaped = reaper::reap(&inner.state_dir, place, &inner.config, Some(inner.id), Others::Await);
        if let Err(reason) = keeper.and_then(Starting::wait) {
            inner.forget();
            return Err(OpenError::Keeper { reason });
        }
        runs::enter(&inner);
        // From here on it is stopped when it is dropped.
        let run = Self(Arc::new(Owner { inner }));
        tender::start_reaping(&run.0.inner).map_err(|reason| OpenError::Keeper { reason })?;
        reaper::announce(&reaped?, &run.0.inner.sink);
        Ok(run)
    }

    /// The run's id.
    pub fn id(&self) -> RunId {
        self.0.inner.id
    }

    /// The tier that holds its workers.
    pub fn tier(&self) -> Tier {
        self.0.inner.tier
    }

    /// The cgroup whose `cgroup.kill` backs the tier up, where there is one.
    pub fn cgroup(&self) -> Option<&Path> {
        self.0.inner.cgroup.as_ref().map(Cgroup::path)
    }

    /// The state directory that the run is recorded in.
    pub fn state_dir(&self) -> &Path {
        self.0.inner.state_dir.path()
    }

    /// The run's directory.
    pub fn dir(&self) -> &Path {
        self.0.inner.dir.path()
    }

    /// The keeper, while one serves.
    pub fn keeper_pid(&self) -> Option<Pid> {
        self.0.inner.link().map(|link| link.pid)
    }

    /// The run's events; the first caller gets them.
    pub fn events(&self) -> Option<Events> {
        self.0.inner.events.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// How many events were dropped because nobody read them.
    pub fn lost_events(&self) -> u64 {
        self.0.inner.sink.lost()
    }

    /// Its living workers.
    pub fn workers(&self) -> Vec<Worker> {
        let inner = &self.0.inner;
        let workers: Vec<_> = inner.table().workers.values().cloned().collect();
        workers.into_iter().map(|shared| Worker { shared, run: Arc::clone(inner) }).collect()
    }

    /// Starts a command. When it returns, the program runs and is on record.
    pub fn spawn(&self, mut command: Command) -> Result<Worker, SpawnError> {
        let inner = &self.0.inner;
        if !inner.is_owner() {
            return Err(SpawnError::NotOwner);
        }
        let key = inner.next_key.fetch_add(1, Ordering::Relaxed);
        let id = match command.worker_id.take() {
            Some(id) => id,
            None => WorkerId::numbered(key),
        };
        let Prepared { orders, fds, program, cwd } = prepare(command, key, &id, inner.id)?;
        let orders = orders.encode();
        let link = inner.enlist(key, &id)?;
        let outcome = place_order(&link, key, &id, orders, &fds);
        // Held until here: the spawn fails cleanly if a descriptor cannot be sent.
        drop(fds);
        let outcome = outcome.map_err(|failed| failed.explain(&program, &cwd, inner.dir.path()));
        inner.delist(key, outcome).map(|shared| Worker { shared, run: Arc::clone(inner) })
    }

    /// The stop barrier over all workers; the run stays open.
    pub fn cleanup(&self) -> StopReport {
        let inner = &self.0.inner;
        if !inner.is_owner() {
            return StopReport::default();
        }
        let workers = inner.table().workers.values().cloned().collect();
        barrier::stop_workers(inner, workers, inner.config.grace(), Scope::Some)
    }

    /// The stop barrier; then the keeper ends and the run's directory is removed. Later calls give the
    /// same report.
    pub fn stop(&self) -> StopReport {
        self.stop_within(self.0.inner.config.grace())
    }

    /// As [`Run::stop`], with another time between TERM and KILL. A stop that is under way with more patience is cut
    /// short.
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

impl Inner {
    /// Makes the run's directory and its cgroup, and records both and the host.
    fn create(config: Config, tier: Tier, place: Place, state_dir: StateDir) -> Result<Self, OpenError> {
        let host = identity::own().map_err(OpenError::Identity)?;
        let ancestors = identity::ancestors().map_err(OpenError::Identity)?;
        let cgroups = machine::cgroups(Pid::current()).unwrap_or(0);
        let id = RunId::new();
        let head = |kind, text| record::Record {
            main: host,
            ..record::Record::new(kind, WireTier::from(tier) as u8, place.boot, place.pidns, text)
        };
        let mut cgroup = None;
        let created = state_dir.create_run(&RunName::new(id, place, &host), |file| {
            // The directory is there already: a cgroup without one is nobody's.
            if config.containment == Containment::Auto {
                cgroup = state_dir.digest().ok().and_then(|state| Cgroup::create(id, state).ok());
            }
            let mut heads = vec![head(record::Kind::Open, opening::text(id, cgroups, &ancestors))];
            if let Some(cgroup) = &cgroup {
                heads.push(head(record::Kind::Cgroup, cgroup.path().as_os_str().as_bytes().to_vec()));
            }
            ledger::write_from(file, 0, &heads).map(|_| ())
        });
        let (dir, lock) = match created {
            Ok(created) => created,
            Err(error) => {
                cgroup.iter().for_each(Cgroup::remove);
                return Err(error.into());
            }
        };
        let (sink, events) = EventSink::new(id);
        Ok(Self {
            id,
            config,
            tier,
            place,
            state_dir,
            dir,
            lock,
            cgroup,
            sink,
            owner: Pid::current(),
            events: Mutex::new(Some(events)),
            next_key: AtomicU64::new(1),
            table: Mutex::new(Table {
                keeper: Keeper::Awaited,
                spawning: BTreeMap::new(),
                workers: BTreeMap::new(),
            }),
            changed: Condvar::new(),
            report: Mutex::new(None),
            unkillable: Mutex::default(),
        })
    }

    /// Whether the caller is the process that opened the run, and not a forked copy of it.
    pub(crate) fn is_owner(&self) -> bool {
        Pid::current() == self.owner
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The keeper that serves, or that is being closed.
    pub(crate) fn link(&self) -> Option<Arc<Link>> {
        match &self.table().keeper {
            Keeper::Serving(link) | Keeper::Closing(Some(link)) => Some(Arc::clone(link)),
            Keeper::Awaited | Keeper::Closing(None) | Keeper::Closed => None,
        }
    }

    /// A worker and all that it started are gone.
    pub(crate) fn ended(&self, worker: &Shared, exit: Exit) {
        // Told before anybody who waits for it goes on: the barrier's success comes after the ends.
        self.sink.emit(Event::Exited { worker: worker.id.clone(), exit });
        worker.set_exit(exit);
        self.changed.notify_all();
    }

    /// Waits until the table satisfies `condition` or the time is over.
    pub(crate) fn wait_table(&self, timeout: Duration, condition: impl Fn(&Table) -> bool) -> bool {
        let deadline = Instant::now() + timeout;
        let mut table = self.table();
        loop {
            if condition(&table) {
                return true;
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return false };
            table = self.changed.wait_timeout(table, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn stop(&self, grace: Duration) -> StopReport {
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(report) = &*report {
            return report.clone();
        }
        let began = Instant::now();
        let workers: Vec<_> = {
            let mut table = self.table();
            table.keeper = match std::mem::replace(&mut table.keeper, Keeper::Closed) {
                Keeper::Serving(link) => Keeper::Closing(Some(link)),
                Keeper::Awaited => Keeper::Closing(None),
                already => already,
            };
            table.workers.values().cloned().collect()
        };
        self.changed.notify_all();
        let mut done = barrier::stop_workers(self, workers, self.config.allowed(grace), Scope::All);
        if let Some(link) = self.link() {
            let _ = link.send(&ToKeeper::Finish.encode(), &[]);
        }
        let patience = if done.survivors.is_empty() { CLOSE_PATIENCE } else { Duration::ZERO };
        self.wait_table(patience, |table| matches!(table.keeper, Keeper::Closed));
        done.took = began.elapsed();
        runs::leave(self);
        report.insert(done).clone()
    }

    /// Stops it, also if somebody more patient is stopping it already.
    pub(crate) fn end(&self, grace: Duration) -> StopReport {
        if matches!(self.report.try_lock(), Err(TryLockError::WouldBlock)) {
            // What he waits for is ended here; then he comes back by himself, and his report is ours.
            let workers: Vec<_> = self.table().workers.values().cloned().collect();
            if !workers.is_empty() {
                let _ = barrier::stop_workers(self, workers, self.config.allowed(grace), Scope::All);
            }
        }
        self.stop(grace)
    }

    /// Removes what the keeper has not: it never was, or was killed.
    pub(crate) fn forget(&self) {
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove();
        }
        let _ = self.dir.remove();
    }
}

impl From<Tier> for WireTier {
    fn from(tier: Tier) -> Self {
        match tier {
            Tier::Namespace => Self::Namespace,
            Tier::Shim => Self::Shim,
            Tier::Group => Self::Group,
        }
    }
}

impl From<WireTier> for Tier {
    fn from(tier: WireTier) -> Self {
        match tier {
            WireTier::Namespace => Self::Namespace,
            WireTier::Shim => Self::Shim,
            WireTier::Group => Self::Group,
        }
    }
}
