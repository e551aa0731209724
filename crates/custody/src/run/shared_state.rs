//! The state that the handles, workers and threads of a run share: its directory, its keeper and the table of its
//! workers.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::ledger::{opening_record, record};
use crate::link::keeper_link::KeeperLink;
use crate::link::wire::{ToKeeper, WireTier};
use crate::process::cgroup::Cgroup;
use crate::process::pid_scope::PidScope;
use crate::process::{identity, machine};
use crate::serve::exit::Exit;
use crate::serve::worker_state::WorkerState;
use crate::state::run_name::RunName;
use crate::state::{RunDir, StateDir, write_records};
use crate::stop::barrier::{self, StopScope, UnkillableProcess};
use crate::{Pid, RunId, StopReport, WorkerId};

use super::event::{CustodyEvent, CustodyEvents, EventSink};
use super::handle::OpenError;
use super::open_runs;
use super::options::{Containment, CustodyOptions, Tier};

/// How long the keeper may take to end once all workers are gone.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The state that the run's handles, workers and threads share.
#[derive(Debug)]
pub(crate) struct RunInner {
    pub(crate) id: RunId,
    pub(crate) config: CustodyOptions,
    pub(crate) tier: Tier,
    pub(crate) scope: PidScope,
    pub(crate) state_dir: StateDir,
    pub(crate) dir: RunDir,
    pub(crate) lock: OwnedFd,
    pub(crate) cgroup: Option<Cgroup>,
    pub(crate) sink: EventSink,
    owner: Pid,
    pub(super) events: Mutex<Option<CustodyEvents>>,
    pub(super) next_key: AtomicU64,
    table: Mutex<WorkerTable>,
    /// Notified when something in the table changes.
    pub(crate) changed: Condvar,
    report: Mutex<Option<StopReport>>,
    /// Processes that the run may not signal, and their workers.
    pub(crate) unkillable: Mutex<Vec<UnkillableProcess>>,
}

/// The keeper, the pending spawns and the living workers.
#[derive(Debug)]
pub(crate) struct WorkerTable {
    pub(crate) keeper: KeeperState,
    pub(crate) spawning: BTreeMap<u64, PendingSpawn>,
    pub(crate) workers: BTreeMap<u64, Arc<WorkerState>>,
}

/// The state of the keeper.
#[derive(Debug)]
pub(crate) enum KeeperState {
    /// The first keeper, or the successor of a lost one, is being started.
    Awaited,
    Serving(Arc<KeeperLink>),
    /// The run is stopping. A keeper that is lost now is not replaced.
    Closing(Option<Arc<KeeperLink>>),
    /// The last keeper has ended.
    Closed,
}

/// A spawn that waits for the keeper's answer.
#[derive(Debug)]
pub(crate) struct PendingSpawn {
    pub(crate) worker: WorkerId,
    /// The worker's end, if it was reported before the answer to the spawn.
    pub(crate) early_exit: Option<Exit>,
    /// The signal that stopped the worker, if it was reported before the answer to the spawn.
    pub(crate) early_stop: Option<i32>,
}

impl RunInner {
    /// Creates the run's directory and its cgroup, and records both and the host.
    pub(super) fn create(
        config: CustodyOptions,
        tier: Tier,
        scope: PidScope,
        state_dir: StateDir,
    ) -> Result<Self, OpenError> {
        let host = identity::own().map_err(OpenError::Identity)?;
        let ancestors = identity::ancestors().map_err(OpenError::Identity)?;
        let cgroups = machine::cgroups(Pid::current()).unwrap_or(0);
        let id = RunId::new();
        let head = |kind, text| record::Record {
            main: host,
            ..record::Record::new(kind, WireTier::from(tier) as u8, scope.boot, scope.pidns, text)
        };
        let mut cgroup = None;
        let created = state_dir.create_run(&RunName::new(id, scope, &host), |file| {
            // The directory already exists: a cgroup without a directory would belong to no run.
            if config.containment == Containment::Auto {
                cgroup = state_dir.digest().ok().and_then(|state| Cgroup::create(id, state).ok());
            }
            let mut heads = vec![head(
                record::RecordKind::Open,
                opening_record::text(id.as_bytes(), cgroups, &ancestors),
            )];
            if let Some(cgroup) = &cgroup {
                heads.push(head(record::RecordKind::Cgroup, cgroup.path().as_os_str().as_bytes().to_vec()));
            }
            write_records(file, 0, &heads).map(|_| ())
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
            scope,
            state_dir,
            dir,
            lock,
            cgroup,
            sink,
            owner: Pid::current(),
            events: Mutex::new(Some(events)),
            next_key: AtomicU64::new(1),
            table: Mutex::new(WorkerTable {
                keeper: KeeperState::Awaited,
                spawning: BTreeMap::new(),
                workers: BTreeMap::new(),
            }),
            changed: Condvar::new(),
            report: Mutex::new(None),
            unkillable: Mutex::default(),
        })
    }

    /// Returns whether the caller is the process that opened the run, and not a forked copy of it.
    pub(crate) fn is_owner(&self) -> bool {
        Pid::current() == self.owner
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, WorkerTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the link to the keeper that serves or is being closed.
    pub(crate) fn link(&self) -> Option<Arc<KeeperLink>> {
        match &self.table().keeper {
            KeeperState::Serving(link) | KeeperState::Closing(Some(link)) => Some(Arc::clone(link)),
            KeeperState::Awaited | KeeperState::Closing(None) | KeeperState::Closed => None,
        }
    }

    /// Records that a worker and everything that it started are gone.
    pub(crate) fn ended(&self, worker: &WorkerState, exit: Exit) {
        // The event comes before any thread that waits for the end continues. So the barrier's success follows the ends
        // of the workers.
        self.sink.emit(CustodyEvent::Exited { worker: worker.id.clone(), exit });
        worker.set_exit(exit);
        self.changed.notify_all();
    }

    /// Waits until the table satisfies `condition` or the time is over. Returns whether it does.
    pub(crate) fn wait_table(&self, timeout: Duration, condition: impl Fn(&WorkerTable) -> bool) -> bool {
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

    pub(super) fn stop(&self, grace: Duration) -> StopReport {
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(report) = &*report {
            return report.clone();
        }
        let began = Instant::now();
        let workers: Vec<_> = {
            let mut table = self.table();
            table.keeper = match std::mem::replace(&mut table.keeper, KeeperState::Closed) {
                KeeperState::Serving(link) => KeeperState::Closing(Some(link)),
                KeeperState::Awaited => KeeperState::Closing(None),
                already => already,
            };
            table.workers.values().cloned().collect()
        };
        self.changed.notify_all();
        let mut done = barrier::stop_workers(self, workers, self.config.allowed(grace), StopScope::WholeRun);
        if let Some(link) = self.link() {
            let _ = link.send(&ToKeeper::Finish.encode(), &[]);
        }
        let timeout = if done.survivors.is_empty() { CLOSE_TIMEOUT } else { Duration::ZERO };
        self.wait_table(timeout, |table| matches!(table.keeper, KeeperState::Closed));
        done.took = began.elapsed();
        open_runs::remove(self);
        report.insert(done).clone()
    }

    /// Stops the run, even if a stop with a longer grace is in progress.
    pub(crate) fn end(&self, grace: Duration) -> StopReport {
        if matches!(self.report.try_lock(), Err(TryLockError::WouldBlock)) {
            // This ends the workers that the other stop waits for. That stop then returns, and its report is returned
            // here.
            let workers: Vec<_> = self.table().workers.values().cloned().collect();
            if !workers.is_empty() {
                let _ = barrier::stop_workers(self, workers, self.config.allowed(grace), StopScope::WholeRun);
            }
        }
        self.stop(grace)
    }

    /// Removes the run's directory and cgroup if the keeper could not do so: it never started, or was killed.
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
