//! The wards: what their shims and gates say, and their end.

use std::os::fd::{AsRawFd, OwnedFd};

use crate::failpoint::hit;
use crate::identity::pid_of;
use crate::keeper::{Course, Keeper};
use crate::overdue::Due;
use crate::record::{Kind, Process, Record};
use crate::shim::{PROCESSES_LEFT, ShimHears, ShimSays};
use crate::sys;
use crate::wire::{Answer, End, Stage, Take, ToHost, WireTier};

/// A shim and the process that it has put at the gate.
pub(crate) struct Shim {
    pub(crate) process: Process,
    /// Closed once the host is gone.
    pub(crate) socket: Option<OwnedFd>,
    pub(crate) gate: Option<OwnedFd>,
    pub(crate) role: Role,
    pub(crate) end: Option<End>,
    /// The worker's main process, once its program runs.
    pub(crate) watched: Option<OwnedFd>,
    /// Whether the worker's main process ended while its shim lived.
    pub(crate) worker_ended: bool,
    /// How it ended then, if the keeper had to reap it.
    pub(crate) seen_end: Option<End>,
    /// Its pid is not its own any more.
    pub(crate) reaped: bool,
}

pub(crate) enum Role {
    /// It is being made.
    Unborn { failure: Option<(Stage, i32)> },
    /// Its process waits at the gate.
    Spare { worker: Process, pidfd: OwnedFd },
    /// Its process has its orders.
    Ward(Ward),
}

pub(crate) struct Ward {
    pub(crate) key: u64,
    pub(crate) record: Record,
    /// Where the host waits, until it has its answer.
    pub(crate) answer: Option<OwnedFd>,
    pub(crate) standing: Standing,
}

/// Where a ward stands.
pub(crate) enum Standing {
    /// It is recorded and has its orders.
    PastTheGate {
        pidfd: OwnedFd,
    },
    Failed {
        stage: Stage,
        errno: i32,
    },
    /// Its program runs, and the host knows.
    Running,
}

/// Why a start failed whose shim or process was killed.
const DIED: (Stage, i32) = (Stage::ShimDied, sys::ECHILD);

/// A spawn that waits for a process at the gate.
pub(crate) struct Order {
    pub(crate) key: u64,
    pub(crate) worker: Vec<u8>,
    /// Where the host waits for the answer.
    pub(crate) answer: OwnedFd,
    /// What passes the gate.
    pub(crate) packet: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
}

impl Keeper {
    pub(crate) fn tell_shim(&mut self, key: u64, message: &ShimHears) {
        let Some(serial) = self.by_key.get(&key).copied() else { return };
        if let Some(shim) = self.shims.get(&serial) {
            send_to(shim, message);
            if matches!(message, ShimHears::Kill) {
                self.end_is_due(serial);
            }
        }
    }

    pub(crate) fn hear_shim(&mut self, serial: u64) {
        let mut bytes = [0; 64];
        while let Some(shim) = self.shims.get_mut(&serial) {
            let Some(socket) = &shim.socket else { return };
            let (length, mut fds) = match sys::receive(socket.as_raw_fd(), &mut bytes) {
                Ok((length @ 1.., fds)) => (length, fds),
                Err(error) if sys::errno(&error) == sys::EAGAIN => return,
                Ok(_) | Err(_) => {
                    // Its end is told by the kernel, not by its socket.
                    self.epoll.remove(socket.as_raw_fd());
                    return;
                }
            };
            let key = if let Role::Ward(ward) = &shim.role { Some(ward.key) } else { None };
            match ShimSays::decode(&bytes[..length]) {
                Some(ShimSays::Born) => {
                    if let Some(pidfd) = fds.pop() {
                        self.born(serial, pidfd);
                    } else {
                        // The keeper is out of descriptors: whom it cannot hold it must not keep.
                        shim.role = Role::Unborn { failure: Some((Stage::Identity, sys::EMFILE)) };
                        end_shim(shim);
                    }
                }
                Some(ShimSays::Failed { stage, errno }) => {
                    shim.role = Role::Unborn { failure: Some((stage, errno)) };
                }
                Some(ShimSays::Stopped { signal }) => {
                    if let Some(key) = key {
                        self.tell(&ToHost::Stopped { key, signal }, &[]);
                    }
                }
                Some(ShimSays::Continued) => {
                    if let Some(key) = key {
                        self.tell(&ToHost::Continued { key }, &[]);
                    }
                }
                Some(ShimSays::Ended(end)) => shim.end = Some(end),
                Some(ShimSays::Busy) => {
                    self.due.insert(serial, Due::now());
                }
                Some(ShimSays::Unkillable { pid }) => self.give_up(key.unwrap_or(0), pid),
                None => {}
            }
        }
    }

    /// A process waits at the gate: know it, and give it what is to be done.
    pub(crate) fn born(&mut self, serial: u64, pidfd: OwnedFd) {
        let identity = hit("keeper.identity", serial).and_then(|()| {
            let pid = pid_of(pidfd.as_raw_fd())?;
            self.identities.read(pid, &pidfd)
        });
        let Some(shim) = self.shims.get_mut(&serial) else { return };
        match identity {
            Ok(worker) if matches!(shim.role, Role::Unborn { failure: None }) => {
                shim.role = Role::Spare { worker, pidfd };
                self.hand_out();
            }
            outcome => {
                if let (Err(error), Role::Unborn { failure }) = (&outcome, &mut shim.role) {
                    failure.get_or_insert((Stage::Identity, sys::errno(error)));
                }
                // Its shim, which has lent it its memory, sees it end.
                let _ = sys::pidfd_signal(pidfd.as_raw_fd(), sys::SIGKILL);
            }
        }
    }

    /// The worker's word before its program runs; the end of the gate says that it does.
    pub(crate) fn hear_gate(&mut self, serial: u64) {
        let Some(shim) = self.shims.get_mut(&serial) else { return };
        let Some(gate) = &shim.gate else { return };
        let mut bytes = [0; 16];
        let word = match sys::receive(gate.as_raw_fd(), &mut bytes) {
            Err(error) if sys::errno(&error) == sys::EAGAIN => return,
            Ok((length @ 1.., _)) => {
                let mut take = Take(&bytes[..length]);
                let stage = take.u8().and_then(Stage::from_byte).unwrap_or(Stage::Exec);
                Some((stage, take.i32().unwrap_or(sys::EPROTO)))
            }
            Ok(_) | Err(_) => None,
        };
        let gate = shim.gate.take();
        let mut untold = false;
        match (&mut shim.role, word) {
            // What it says itself is truer than that nobody is there who could be looked at.
            (Role::Unborn { failure }, word) => *failure = word.or(*failure).or(Some(DIED)),
            (Role::Spare { worker, .. }, word) => {
                // Its process is gone or going: no order is for it any more.
                self.dismissed.insert(worker.pid);
                shim.role = Role::Unborn { failure: Some(word.unwrap_or(DIED)) };
            }
            (Role::Ward(ward), Some((stage, errno))) => ward.standing = Standing::Failed { stage, errno },
            (Role::Ward(ward), None) => {
                if let Standing::PastTheGate { .. } = &ward.standing {
                    untold = !answer_spawned(shim);
                }
            }
        }
        if let Some(gate) = gate {
            self.epoll.remove(gate.as_raw_fd());
        }
        self.watch_worker(serial);
        if untold {
            // Nobody waits for it any more.
            if let Some(shim) = self.shims.get(&serial) {
                send_to(shim, &ShimHears::Kill);
            }
            self.end_is_due(serial);
        }
        if self.shims.get(&serial).is_some_and(|shim| matches!(shim.role, Role::Ward(_))) {
            // The host has its answer and shall run with it; then there is time to prepare for the next.
            sys::give_way();
            self.provide(self.orders.len().max(1));
        }
    }

    /// Hears of the end of a worker's main process from now on, should its shim not.
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
            self.shim_ended(serial, waited.status);
        }
        if !self.cgroups_left.is_empty() {
            self.remove_cgroups_left();
        }
        if !self.bereaved.is_empty() && self.no_orphan_left() {
            for shim in std::mem::take(&mut self.bereaved) {
                if let Role::Ward(ward) = shim.role {
                    self.settle(ward, shim.end.or(shim.seen_end));
                }
            }
        }
    }

    /// A shim has ended: so has its worker, or it is among the orphans.
    pub(crate) fn shim_ended(&mut self, serial: u64, status: i32) {
        if self.course == Course::Orphaned {
            // Nobody is to be told, and the whole directory is about to go. Everybody in the run's cgroup is killed.
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
        // What the shim and the worker said last may still lie in their sockets.
        self.hear_shim(serial);
        self.hear_gate(serial);
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
            Role::Ward(_) if !told => self.bereaved.push(shim),
            Role::Ward(ward) => self.settle(ward, shim.end.or(shim.seen_end)),
            Role::Unborn { failure } => self.stillborn(failure),
            Role::Spare { worker, .. } => {
                self.dismissed.insert(worker.pid);
                self.stillborn(None);
            }
        }
    }

    /// Somebody has ended who was left by a shim.
    fn reap_orphan(&mut self, waited: &sys::Waited) {
        for known in [&mut self.dismissed, &mut self.unkillable, &mut self.escaped] {
            known.remove(&waited.pid);
        }
        let shims = self.shims.values_mut().chain(&mut self.bereaved);
        for shim in shims.filter(|shim| shim.worker_ended) {
            if let Role::Ward(ward) = &shim.role
                && ward.record.main.pid == waited.pid
            {
                shim.seen_end = Some(End::from(waited));
            }
        }
    }

    /// A shim ended before it had orders. If an order was waiting for it, that one fails.
    pub(crate) fn stillborn(&mut self, failure: Option<(Stage, i32)>) {
        if self.orders.len() > self.idle()
            && let Some(order) = self.orders.pop_front()
        {
            let (stage, errno) = failure.unwrap_or(DIED);
            fail(&order.answer, stage, errno);
        }
    }

    /// How many shims are there, or coming, for orders to come.
    pub(crate) fn idle(&self) -> usize {
        let idle = |role: &Role| matches!(role, Role::Unborn { failure: None } | Role::Spare { .. });
        self.shims.values().filter(|shim| idle(&shim.role)).count()
    }

    /// Writes a worker's end and tells the host.
    pub(crate) fn settle(&mut self, ward: Ward, end: Option<End>) {
        let end = end.unwrap_or(End::LOST);
        self.by_key.remove(&ward.key);
        self.write_end(ward.record, end.status);
        match (ward.standing, ward.answer) {
            (Standing::Failed { stage, errno }, Some(answer)) => fail(&answer, stage, errno),
            (Standing::PastTheGate { .. }, Some(answer)) => fail(&answer, DIED.0, DIED.1),
            (Standing::Running | Standing::Failed { .. } | Standing::PastTheGate { .. }, _) => {
                self.tell(&ToHost::Exit { key: ward.key, end }, &[]);
            }
        }
    }

    pub(crate) fn write_end(&mut self, mut record: Record, status: i32) {
        record.kind = Kind::Exit;
        record.status = status;
        if let Some(ledger) = &mut self.ledger
            && let Err(error) = ledger.append_exit(record)
        {
            self.tell(&ToHost::LedgerTrouble { errno: sys::errno(&error) }, &[]);
        }
    }
}

impl From<&sys::Waited> for End {
    fn from(waited: &sys::Waited) -> Self {
        let sys::Waited { status, max_rss_kib, user_us, system_us, .. } = *waited;
        Self { status, max_rss_kib, user_us, system_us }
    }
}

/// Tells whoever waits for a spawn that its program runs; false if nobody does.
fn answer_spawned(shim: &mut Shim) -> bool {
    let Role::Ward(ward) = &mut shim.role else { return false };
    let Standing::PastTheGate { pidfd } = std::mem::replace(&mut ward.standing, Standing::Running) else {
        return false;
    };
    let answer = Answer::Spawned { pid: ward.record.main.pid, shim: shim.process.pid };
    let _ = hit("keeper.spawned", ward.key);
    let told = ward
        .answer
        .take()
        .is_some_and(|socket| sys::send(socket.as_raw_fd(), &answer.encode(), &[pidfd.as_raw_fd()]).is_ok());
    shim.watched = Some(pidfd);
    told
}

/// Tells whoever waits for a spawn that it failed.
pub(crate) fn fail(answer: &OwnedFd, stage: Stage, errno: i32) {
    let _ = sys::send(answer.as_raw_fd(), &Answer::Failed { stage, errno }.encode(), &[]);
}

pub(crate) fn send_to(shim: &Shim, message: &ShimHears) {
    // A full socket means a stopped shim; whoever asks for something that matters repeats it.
    if let Some(socket) = &shim.socket {
        let _ = sys::send(socket.as_raw_fd(), &message.encode(), &[]);
    }
    if shim.reaped || !matches!(message, ShimHears::Kill) {
        return;
    }
    // A stopped shim cannot hear, and one that has lent its memory does not.
    let _ = sys::send_signal(shim.process.pid, sys::SIGCONT);
    match &shim.role {
        Role::Spare { pidfd, .. } => {
            let _ = sys::pidfd_signal(pidfd.as_raw_fd(), sys::SIGKILL);
            end_shim(shim);
        }
        Role::Ward(Ward { standing: Standing::PastTheGate { pidfd }, .. }) => {
            let _ = sys::pidfd_signal(pidfd.as_raw_fd(), sys::SIGKILL);
        }
        Role::Unborn { .. } | Role::Ward(_) => {}
    }
}

/// Ends a shim that has nobody to see to; a process at its gate dies with it.
fn end_shim(shim: &Shim) {
    if !shim.reaped {
        let _ = sys::send_signal(shim.process.pid, sys::SIGKILL);
    }
}
