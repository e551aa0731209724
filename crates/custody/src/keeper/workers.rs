//! The workers of the run as the keeper sees them: reports from shims and gates, and their ends.

use std::os::fd::{AsRawFd, OwnedFd};

use crate::failpoint::hit;
use crate::identity::pid_of;
use crate::keeper::{Keeper, RunPhase};
use crate::kill::DueEnd;
use crate::record::{ProcessIdentity, Record, RecordKind};
use crate::shim::{FromShim, PROCESSES_LEFT, ToShim};
use crate::sys;
use crate::wire::{MessageReader, SpawnAnswer, SpawnStage, ToHost, WireTier, WorkerEnd};

/// A shim and the process that it created at the gate.
pub(crate) struct ShimEntry {
    pub(crate) process: ProcessIdentity,
    /// Closed once the host is gone.
    pub(crate) socket: Option<OwnedFd>,
    pub(crate) gate: Option<OwnedFd>,
    pub(crate) role: ShimRole,
    pub(crate) end: Option<WorkerEnd>,
    /// The worker's main process, once its program runs.
    pub(crate) watched: Option<OwnedFd>,
    /// Whether the main process ended while its shim was alive.
    pub(crate) worker_ended: bool,
    /// How the main process ended, if the keeper had to reap it.
    pub(crate) seen_end: Option<WorkerEnd>,
    /// Whether the shim is reaped, so that its pid may belong to another process.
    pub(crate) reaped: bool,
}

pub(crate) enum ShimRole {
    /// The shim is being started.
    Starting { failure: Option<(SpawnStage, i32)> },
    /// The shim's process waits at the gate.
    Spare { worker: ProcessIdentity, pidfd: OwnedFd },
    /// The shim's process has its orders.
    Serving(KeptWorker),
}

pub(crate) struct KeptWorker {
    pub(crate) key: u64,
    pub(crate) record: Record,
    /// The socket on which the host waits for the answer.
    pub(crate) answer: Option<OwnedFd>,
    pub(crate) launch: LaunchState,
}

/// The progress of a worker's launch.
pub(crate) enum LaunchState {
    /// The process is recorded and has its orders.
    PastGate {
        pidfd: OwnedFd,
    },
    Failed {
        stage: SpawnStage,
        errno: i32,
    },
    /// The program runs, and the host was informed.
    Running,
}

/// The failure of a start whose shim or process was killed.
const DIED: (SpawnStage, i32) = (SpawnStage::ShimDied, sys::ECHILD);

/// A spawn that waits for a process at the gate.
pub(crate) struct QueuedSpawn {
    pub(crate) key: u64,
    pub(crate) worker: Vec<u8>,
    /// The socket on which the host waits for the answer.
    pub(crate) answer: OwnedFd,
    /// The packet that passes the gate.
    pub(crate) packet: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
}

impl Keeper {
    pub(crate) fn send_to_shim(&mut self, key: u64, message: &ToShim) {
        let Some(serial) = self.by_key.get(&key).copied() else { return };
        if let Some(shim) = self.shims.get(&serial) {
            send_to(shim, message);
            if matches!(message, ToShim::Kill) {
                self.end_is_due(serial);
            }
        }
    }

    pub(crate) fn on_shim_message(&mut self, serial: u64) {
        let mut bytes = [0; 64];
        while let Some(shim) = self.shims.get_mut(&serial) {
            let Some(socket) = &shim.socket else { return };
            let (length, mut fds) = match sys::receive(socket.as_raw_fd(), &mut bytes) {
                Ok((length @ 1.., fds)) => (length, fds),
                Err(error) if sys::errno(&error) == sys::EAGAIN => return,
                Ok(_) | Err(_) => {
                    // The kernel reports the shim's end. The closed socket does not.
                    self.epoll.remove(socket.as_raw_fd());
                    return;
                }
            };
            let key = if let ShimRole::Serving(kept) = &shim.role { Some(kept.key) } else { None };
            match FromShim::decode(&bytes[..length]) {
                Some(FromShim::AtGate) => {
                    if let Some(pidfd) = fds.pop() {
                        self.process_at_gate(serial, pidfd);
                    } else {
                        // The keeper has no free descriptor. It must not keep a process without a pidfd.
                        shim.role = ShimRole::Starting { failure: Some((SpawnStage::Identity, sys::EMFILE)) };
                        end_shim(shim);
                    }
                }
                Some(FromShim::Failed { stage, errno }) => {
                    shim.role = ShimRole::Starting { failure: Some((stage, errno)) };
                }
                Some(FromShim::Stopped { signal }) => {
                    if let Some(key) = key {
                        self.notify_host(&ToHost::Stopped { key, signal }, &[]);
                    }
                }
                Some(FromShim::Continued) => {
                    if let Some(key) = key {
                        self.notify_host(&ToHost::Continued { key }, &[]);
                    }
                }
                Some(FromShim::Ended { end }) => shim.end = Some(end),
                Some(FromShim::Busy) => {
                    self.due.insert(serial, DueEnd::now());
                }
                Some(FromShim::Unkillable { pid }) => self.give_up(key.unwrap_or(0), pid),
                None => {}
            }
        }
    }

    /// Handles a process that waits at the gate: reads its identity and assigns a spawn to it.
    pub(crate) fn process_at_gate(&mut self, serial: u64, pidfd: OwnedFd) {
        let identity = hit("keeper.identity", serial).and_then(|()| {
            let pid = pid_of(pidfd.as_raw_fd())?;
            self.identities.read(pid, &pidfd)
        });
        let Some(shim) = self.shims.get_mut(&serial) else { return };
        match identity {
            Ok(worker) if matches!(shim.role, ShimRole::Starting { failure: None }) => {
                shim.role = ShimRole::Spare { worker, pidfd };
                self.assign_spares();
            }
            outcome => {
                if let (Err(error), ShimRole::Starting { failure }) = (&outcome, &mut shim.role) {
                    failure.get_or_insert((SpawnStage::Identity, sys::errno(error)));
                }
                // The shim whose memory the process borrows sees the end of the process.
                let _ = sys::pidfd_signal(pidfd.as_raw_fd(), sys::SIGKILL);
            }
        }
    }

    /// Handles a failure that the worker reports before its program runs, or the end of the gate, which means that the
    /// program runs.
    pub(crate) fn on_gate_message(&mut self, serial: u64) {
        let Some(shim) = self.shims.get_mut(&serial) else { return };
        let Some(gate) = &shim.gate else { return };
        let mut bytes = [0; 16];
        let word = match sys::receive(gate.as_raw_fd(), &mut bytes) {
            Err(error) if sys::errno(&error) == sys::EAGAIN => return,
            Ok((length @ 1.., _)) => {
                let mut take = MessageReader(&bytes[..length]);
                let stage = take.u8().and_then(SpawnStage::from_byte).unwrap_or(SpawnStage::Exec);
                Some((stage, take.i32().unwrap_or(sys::EPROTO)))
            }
            Ok(_) | Err(_) => None,
        };
        let gate = shim.gate.take();
        let mut untold = false;
        match (&mut shim.role, word) {
            // The process's own report is more precise than the fact that the process is gone.
            (ShimRole::Starting { failure }, word) => *failure = word.or(*failure).or(Some(DIED)),
            (ShimRole::Spare { worker, .. }, word) => {
                // The process is gone or ending, so it gets no orders.
                self.discarded.insert(worker.pid);
                shim.role = ShimRole::Starting { failure: Some(word.unwrap_or(DIED)) };
            }
            (ShimRole::Serving(kept), Some((stage, errno))) => {
                kept.launch = LaunchState::Failed { stage, errno }
            }
            (ShimRole::Serving(kept), None) => {
                if let LaunchState::PastGate { .. } = &kept.launch {
                    untold = !answer_spawned(shim);
                }
            }
        }
        if let Some(gate) = gate {
            self.epoll.remove(gate.as_raw_fd());
        }
        self.watch_worker(serial);
        if untold {
            // The host no longer waits for the worker.
            if let Some(shim) = self.shims.get(&serial) {
                send_to(shim, &ToShim::Kill);
            }
            self.end_is_due(serial);
        }
        if self.shims.get(&serial).is_some_and(|shim| matches!(shim.role, ShimRole::Serving(_))) {
            // Let the host run with its answer first, then prepare for the next spawn.
            sys::yield_processor();
            self.ensure_spares(self.orders.len().max(1));
        }
    }

    /// Watches the worker's main process, in case its shim cannot do so.
    fn watch_worker(&mut self, serial: u64) {
        let Some(shim) = self.shims.get_mut(&serial) else { return };
        shim.watched.take_if(|pidfd| self.worker_ends.add(pidfd.as_raw_fd(), serial).is_err());
    }

    pub(crate) fn reap(&mut self) {
        while let Ok(Some(waited)) = sys::wait_child(-1, sys::WNOHANG) {
            let Some(serial) = self.by_pid.remove(&waited.pid) else {
                self.reap_orphan(&waited);
                continue;
            };
            self.due.remove(&serial);
            self.on_shim_end(serial, waited.status);
        }
        if !self.cgroups_left.is_empty() {
            self.remove_cgroups_left();
        }
        if !self.killed_shims.is_empty() && self.no_orphan_left() {
            for shim in std::mem::take(&mut self.killed_shims) {
                if let ShimRole::Serving(kept) = shim.role {
                    self.finish_worker(kept, shim.end.or(shim.seen_end));
                }
            }
        }
    }

    /// Handles the end of a shim. Its worker has ended too, or is among the orphans.
    pub(crate) fn on_shim_end(&mut self, serial: u64, status: i32) {
        if self.phase == RunPhase::Orphaned {
            // Nothing is reported, and the directory will be removed. All processes in the run's cgroup are killed.
            self.shims.remove(&serial);
            self.left_behind |= status == PROCESSES_LEFT << 8;
            if status != 0 && self.cgroup.is_some() {
                self.cgroups_left.push(serial);
            }
            return;
        }
        if let Some(shim) = self.shims.get_mut(&serial) {
            shim.reaped = true;
        }
        // The last messages from shim and worker may still be in their sockets.
        self.on_shim_message(serial);
        self.on_gate_message(serial);
        let Some(shim) = self.shims.remove(&serial) else { return };
        for fd in shim.socket.iter().chain(&shim.gate) {
            self.epoll.remove(fd.as_raw_fd());
        }
        if let Some(pidfd) = &shim.watched {
            self.worker_ends.remove(pidfd.as_raw_fd());
        }
        if status != 0 {
            self.clear_cgroup_of(serial);
        }
        let told = shim.end.is_some() || self.tier == WireTier::Group;
        match shim.role {
            ShimRole::Serving(_) if !told => self.killed_shims.push(shim),
            ShimRole::Serving(kept) => self.finish_worker(kept, shim.end.or(shim.seen_end)),
            ShimRole::Starting { failure } => self.start_failed(failure),
            ShimRole::Spare { worker, .. } => {
                self.discarded.insert(worker.pid);
                self.start_failed(None);
            }
        }
    }

    /// Records the end of a process that a shim left.
    fn reap_orphan(&mut self, waited: &sys::ReapedChild) {
        for known in [&mut self.discarded, &mut self.unkillable, &mut self.escaped] {
            known.remove(&waited.pid);
        }
        let shims = self.shims.values_mut().chain(&mut self.killed_shims);
        for shim in shims.filter(|shim| shim.worker_ended) {
            if let ShimRole::Serving(kept) = &shim.role
                && kept.record.main.pid == waited.pid
            {
                shim.seen_end = Some(WorkerEnd::from(waited));
            }
        }
    }

    /// Handles a shim that ended before it had orders. If a spawn was waiting for it, that spawn fails.
    pub(crate) fn start_failed(&mut self, failure: Option<(SpawnStage, i32)>) {
        if self.orders.len() > self.idle()
            && let Some(order) = self.orders.pop_front()
        {
            let (stage, errno) = failure.unwrap_or(DIED);
            fail(&order.answer, stage, errno);
        }
    }

    /// Returns how many shims are spare or starting.
    pub(crate) fn idle(&self) -> usize {
        let idle =
            |role: &ShimRole| matches!(role, ShimRole::Starting { failure: None } | ShimRole::Spare { .. });
        self.shims.values().filter(|shim| idle(&shim.role)).count()
    }

    /// Records a worker's end and reports it to the host.
    pub(crate) fn finish_worker(&mut self, kept: KeptWorker, end: Option<WorkerEnd>) {
        let end = end.unwrap_or(WorkerEnd::LOST);
        self.by_key.remove(&kept.key);
        self.write_end(kept.record, end.status);
        match (kept.launch, kept.answer) {
            (LaunchState::Failed { stage, errno }, Some(answer)) => fail(&answer, stage, errno),
            (LaunchState::PastGate { .. }, Some(answer)) => fail(&answer, DIED.0, DIED.1),
            (LaunchState::Running | LaunchState::Failed { .. } | LaunchState::PastGate { .. }, _) => {
                self.notify_host(&ToHost::Exit { key: kept.key, end }, &[]);
            }
        }
    }

    pub(crate) fn write_end(&mut self, mut record: Record, status: i32) {
        record.kind = RecordKind::Exit;
        record.status = status;
        if let Some(ledger) = &mut self.ledger
            && let Err(error) = ledger.slots.append_exit(record)
        {
            self.notify_host(&ToHost::LedgerTrouble { errno: sys::errno(&error) }, &[]);
        }
    }
}

impl From<&sys::ReapedChild> for WorkerEnd {
    fn from(waited: &sys::ReapedChild) -> Self {
        let sys::ReapedChild { status, max_rss_kib, user_us, system_us, .. } = *waited;
        Self { status, max_rss_kib, user_us, system_us }
    }
}

/// Answers a spawn whose program runs. Returns false if the host no longer waits for the answer.
fn answer_spawned(shim: &mut ShimEntry) -> bool {
    let ShimRole::Serving(kept) = &mut shim.role else { return false };
    let LaunchState::PastGate { pidfd } = std::mem::replace(&mut kept.launch, LaunchState::Running) else {
        return false;
    };
    let answer = SpawnAnswer::Spawned { pid: kept.record.main.pid, shim: shim.process.pid };
    let _ = hit("keeper.spawned", kept.key);
    let told = kept
        .answer
        .take()
        .is_some_and(|socket| sys::send(socket.as_raw_fd(), &answer.encode(), &[pidfd.as_raw_fd()]).is_ok());
    shim.watched = Some(pidfd);
    told
}

/// Answers a spawn that failed.
pub(crate) fn fail(answer: &OwnedFd, stage: SpawnStage, errno: i32) {
    let _ = sys::send(answer.as_raw_fd(), &SpawnAnswer::Failed { stage, errno }.encode(), &[]);
}

pub(crate) fn send_to(shim: &ShimEntry, message: &ToShim) {
    // A full socket means a stopped shim. Important messages are repeated.
    if let Some(socket) = &shim.socket {
        let _ = sys::send(socket.as_raw_fd(), &message.encode(), &[]);
    }
    if shim.reaped || !matches!(message, ToShim::Kill) {
        return;
    }
    // A stopped shim cannot read, and a shim whose memory is borrowed does not read.
    let _ = sys::send_signal(shim.process.pid, sys::SIGCONT);
    match &shim.role {
        ShimRole::Spare { pidfd, .. } => {
            let _ = sys::pidfd_signal(pidfd.as_raw_fd(), sys::SIGKILL);
            end_shim(shim);
        }
        ShimRole::Serving(KeptWorker { launch: LaunchState::PastGate { pidfd }, .. }) => {
            let _ = sys::pidfd_signal(pidfd.as_raw_fd(), sys::SIGKILL);
        }
        ShimRole::Starting { .. } | ShimRole::Serving(_) => {}
    }
}

/// Ends a shim without a worker. A process at its gate dies with it.
fn end_shim(shim: &ShimEntry) {
    if !shim.reaped {
        let _ = sys::send_signal(shim.process.pid, sys::SIGKILL);
    }
}
