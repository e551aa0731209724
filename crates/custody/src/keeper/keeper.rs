//! The keeper's loop: it reads the messages of host, shims and gates, writes the ledger, and ends the run.
//!
//! The life of a shim: it is made ahead of need (`ShimRole::Starting`) → its process waits at the gate (`Spare`) → a
//! spawn arrives: the keeper writes intent and record and sends the orders through the gate (`Serving`) → the program
//! runs → the keeper reaps the shim, writes the end to the ledger, and reports it to the host.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Instant;

#[cfg(feature = "failpoints")]
use crate::failpoint;
use crate::identity::{Identities, has_ended, own_pidfd};
use crate::kill::DueEnd;
use crate::kill::cgroup;
use crate::kill::children::Escalation;
use crate::ledger::{Common, Ledger};
use crate::record::RecordKind;
use crate::shim::{self, RunDescriptors, ToShim};
use crate::shim::{InheritedSignals, KEEPER_IGNORES};
use crate::sys::{self, Epoll, EpollEvent, PollFd, TimeSlice};
use crate::wire::{KeeperInit, MAX_MESSAGE, SpawnStage, ToHost, ToKeeper, WireTier};
use crate::workers::{QueuedSpawn, ShimEntry, ShimRole, fail, send_to};

/// How long the end of a run waits for progress before it kills all remaining processes again, in milliseconds.
const KILL_AGAIN_MS: i32 = 50;

/// The subject of an epoll event, in the low two bits of its data. The other bits are the shim's serial number.
const ABOUT_RUN: u64 = 0;
pub(crate) const ABOUT_SHIM: u64 = 1;
pub(crate) const ABOUT_GATE: u64 = 2;
const CONTROL: u64 = 4;
const HOST: u64 = 8;
const CHILD: u64 = 12;
const WORKER_ENDS: u64 = 16;

/// Serves the host on descriptor 0 until the run is over.
pub(crate) fn serve() -> ! {
    sys::set_name(c"snakepit-keeper");
    sys::request_time_slice(TimeSlice::Short);
    // Workers do not inherit the signals that the host ignores now; see `restore_signals` in `shim/launch.rs`.
    (1..=64).for_each(sys::restore_default);
    KEEPER_IGNORES.into_iter().for_each(sys::ignore);
    // Only KILL and STOP may end or stop keeper and shims. With SIGXFSZ blocked, a write past the limit fails with an
    // error. Changes of children are reported through a descriptor.
    sys::set_blocked(sys::ALL_SIGNALS);
    let Ok(control) = settle_descriptors() else { sys::exit(1) };
    match Keeper::begin(control) {
        Ok(mut keeper) => keeper.run(),
        Err((stage, error)) => {
            let message = ToHost::Unable { stage, errno: sys::errno(&error) };
            let _ = sys::send(control, &message.encode(), &[]);
            sys::exit(1)
        }
    }
}

/// Moves the control socket up and opens /dev/null on 0, 1 and 2, so that no other descriptor gets these numbers.
fn settle_descriptors() -> Result<RawFd> {
    let control = sys::duplicate_above(0, 3)?;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    for standard in 0..3 {
        sys::duplicate_to(null.as_raw_fd(), standard)?;
    }
    Ok(control)
}

/// The phase of the run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunPhase {
    Serving,
    /// The host asked for the end of the run and waits for it.
    Finishing,
    /// The host is gone.
    Orphaned,
}

pub(crate) struct Keeper {
    /// Open as long as the keeper lives.
    pub(crate) control: RawFd,
    pub(crate) descriptors: RunDescriptors,
    pub(crate) cgroup: Option<OwnedFd>,
    pub(crate) child_signals: OwnedFd,
    pub(crate) epoll: Epoll,
    pub(crate) ledger: Option<Ledger>,
    pub(crate) common: Common,
    pub(crate) identities: Identities,
    pub(crate) tier: WireTier,
    pub(crate) user_namespace: bool,
    pub(crate) caller_session: bool,
    pub(crate) signals: InheritedSignals,
    pub(crate) nofile: (u64, u64),
    pub(crate) user: (u32, u32),
    /// All shims by serial number, so that the oldest spare shim comes first.
    pub(crate) shims: BTreeMap<u64, ShimEntry>,
    pub(crate) by_pid: BTreeMap<i32, u64>,
    pub(crate) by_key: BTreeMap<u64, u64>,
    pub(crate) last_serial: u64,
    pub(crate) orders: VecDeque<QueuedSpawn>,
    /// Processes that waited at the gate and die with their shim. If one of them is seen again, it has not escaped.
    pub(crate) discarded: BTreeSet<i32>,
    /// Shims that were killed. The end of their workers is reported once no orphan is left.
    pub(crate) killed_shims: Vec<ShimEntry>,
    /// The pidfds of running workers, by serial number. A separate epoll set, so that all of them can be dropped at
    /// once.
    pub(crate) worker_ends: Epoll,
    /// The shims whose end is due, by serial number.
    pub(crate) due: BTreeMap<u64, DueEnd>,
    pub(crate) next_look: Instant,
    /// The rounds of KILL to the processes that a dead shim left.
    pub(crate) orphans: Option<Escalation>,
    /// Orphans that have been reported to the host.
    pub(crate) escaped: BTreeSet<i32>,
    /// Children of another user. The keeper may not signal them and does not wait for them.
    pub(crate) unkillable: BTreeSet<i32>,
    /// Whether a shim left a process that may not be signalled when there was no host to report it to.
    pub(crate) left_behind: bool,
    /// The serial numbers of shims whose workers' cgroups still have to be removed.
    pub(crate) cgroups_left: Vec<u64>,
    pub(crate) phase: RunPhase,
    pub(crate) buffer: Vec<u8>,
}

/// The step of a spawn that failed, and the error.
pub(crate) type StageError = (SpawnStage, Error);

impl Keeper {
    fn begin(control: RawFd) -> std::result::Result<Self, StageError> {
        let mut buffer = vec![0; MAX_MESSAGE];
        let request = |error| (SpawnStage::Request, error);
        let (length, fds) = sys::receive_blocking(control, &mut buffer).map_err(request)?;
        match ToKeeper::decode(&buffer[..length]) {
            Some(ToKeeper::Init { init }) => Self::set_up(control, &init, fds, buffer),
            _ => Err(request(Error::from_raw_os_error(sys::EPROTO))),
        }
    }

    fn set_up(
        control: RawFd,
        init: &KeeperInit,
        fds: Vec<OwnedFd>,
        buffer: Vec<u8>,
    ) -> std::result::Result<Self, StageError> {
        let kernel = |error| (SpawnStage::Kernel, error);
        let mut fds = fds.into_iter();
        let (Some(lock), Some(dir), Some(host), Some(liveness)) =
            (fds.next(), fds.next(), fds.next(), fds.next())
        else {
            return Err((SpawnStage::Request, Error::from_raw_os_error(sys::EPROTO)));
        };
        let cgroup = fds.next();
        if init.caller_session {
            sys::new_group().map_err(|error| (SpawnStage::Session, error))?;
        } else {
            sys::new_session().map_err(|error| (SpawnStage::Session, error))?;
        }
        let _ = sys::change_dir(c"/");
        let mut user_namespace = false;
        match init.tier {
            WireTier::Namespace => {
                sys::die_with_parent().map_err(kernel)?;
                user_namespace = shim::probe_namespace() == 100;
                sys::become_subreaper().map_err(kernel)?;
            }
            WireTier::Shim => sys::become_subreaper().map_err(kernel)?,
            WireTier::Group => {}
        }
        let nofile = sys::rlimit(sys::RLIMIT_NOFILE).map_err(kernel)?;
        let _ = sys::set_rlimit(sys::RLIMIT_NOFILE, nofile.1, nofile.1);
        let keeper = own_pidfd().map_err(kernel)?;
        #[cfg(feature = "failpoints")]
        failpoint::arm(&init.failpoints, host.as_raw_fd(), keeper.as_raw_fd());
        let identities = Identities { pidfs: init.pidfs, clock_offset: init.clock_offset };
        let common = Common { tier: init.tier as u8, boot: init.boot, pidns: init.pidns };
        let in_ledger = |error| (SpawnStage::Ledger, error);
        let mut ledger = Ledger::open(dir, init.next_slot, init.sync).map_err(in_ledger)?;
        let mut record = common.record(RecordKind::Keeper, 0, &init.run);
        record.main = identities.read(sys::pid(), &keeper).map_err(kernel)?;
        ledger.slots.append_head(&record).map_err(in_ledger)?;
        let child_signals = sys::child_signal_fd().map_err(kernel)?;
        let epoll = Epoll::new().map_err(kernel)?;
        let worker_ends = Epoll::new().map_err(kernel)?;
        for (fd, about) in [
            (control, CONTROL),
            (host.as_raw_fd(), HOST),
            (child_signals.as_raw_fd(), CHILD),
            (worker_ends.fd(), WORKER_ENDS),
        ] {
            epoll.add(fd, about | ABOUT_RUN).map_err(kernel)?;
        }
        let descriptors = RunDescriptors { host, keeper, lock, liveness };
        let (tier, caller_session) = (init.tier, init.caller_session);
        let signals = InheritedSignals { ignored: init.ignored, blocked: init.blocked };
        Ok(Self {
            control,
            descriptors,
            cgroup,
            child_signals,
            epoll,
            ledger: Some(ledger),
            common,
            identities,
            tier,
            user_namespace,
            caller_session,
            signals,
            nofile,
            user: sys::user_and_group(),
            shims: BTreeMap::new(),
            by_pid: BTreeMap::new(),
            by_key: BTreeMap::new(),
            last_serial: 0,
            orders: VecDeque::new(),
            discarded: BTreeSet::new(),
            killed_shims: Vec::new(),
            worker_ends,
            due: BTreeMap::new(),
            next_look: Instant::now(),
            orphans: None,
            escaped: BTreeSet::new(),
            unkillable: BTreeSet::new(),
            left_behind: false,
            cgroups_left: Vec::new(),
            phase: RunPhase::Serving,
            buffer,
        })
    }

    fn run(&mut self) -> ! {
        self.notify_host(&ToHost::Ready, &[]);
        self.ensure_spares(1);
        let mut events = [EpollEvent::default(); 64];
        loop {
            if self.phase != RunPhase::Serving && self.shims.is_empty() && self.no_orphan_left() {
                self.close();
            }
            self.end_overdue();
            let nothing_to_press =
                self.phase == RunPhase::Serving && self.due.is_empty() && self.killed_shims.is_empty();
            let timeout = if nothing_to_press { -1 } else { KILL_AGAIN_MS };
            let count = match self.epoll.wait(&mut events, timeout) {
                Ok(0) => {
                    if self.phase == RunPhase::Serving {
                        self.reap();
                    } else {
                        self.kill_rest();
                    }
                    continue;
                }
                Ok(count) => count,
                Err(_) => sys::exit(1),
            };
            for event in &events[..count] {
                let data = event.data;
                match (data & 3, data >> 2) {
                    (ABOUT_SHIM, serial) => self.on_shim_message(serial),
                    (ABOUT_GATE, serial) => self.on_gate_message(serial),
                    _ if data == CONTROL => self.on_host_message(),
                    _ if data == HOST => self.host_gone(),
                    _ if data == WORKER_ENDS => self.on_worker_ends(),
                    _ => {
                        sys::drain(&self.child_signals);
                        self.reap();
                    }
                }
            }
        }
    }

    /// Sends a message to the host. Blocks while the socket is full, and gives up only when the host is gone.
    pub(crate) fn notify_host(&self, message: &ToHost, fds: &[RawFd]) {
        if self.phase == RunPhase::Orphaned {
            return;
        }
        let bytes = message.encode();
        while let Err(error) = sys::send(self.control, &bytes, fds) {
            if sys::errno(&error) != sys::EAGAIN || has_ended(&self.descriptors.host) {
                return;
            }
            let mut fds = [
                PollFd { fd: self.control, events: sys::POLLOUT, revents: 0 },
                PollFd { fd: self.descriptors.host.as_raw_fd(), events: sys::POLLIN, revents: 0 },
            ];
            if sys::poll_any(&mut fds, -1).is_err() {
                return;
            }
        }
    }

    fn on_host_message(&mut self) {
        // One message per event, so that a busy host does not keep the shims waiting.
        let mut buffer = std::mem::take(&mut self.buffer);
        let received = sys::receive(self.control, &mut buffer);
        match received {
            Ok((0, _)) => self.host_gone(),
            Ok((length, fds)) => self.handle_message(&buffer[..length], fds),
            Err(error) if sys::errno(&error) == sys::EAGAIN => {}
            Err(_) => self.host_gone(),
        }
        self.buffer = buffer;
    }

    fn handle_message(&mut self, bytes: &[u8], fds: Vec<OwnedFd>) {
        match ToKeeper::decode(bytes) {
            Some(ToKeeper::Spawn { key, worker, orders }) => self.spawn(key, worker, &orders, fds),
            Some(ToKeeper::Signal { key, signal, reach }) => {
                self.send_to_shim(key, &ToShim::Signal { signal, reach });
            }
            Some(ToKeeper::Kill { key }) => self.send_to_shim(key, &ToShim::Kill),
            Some(ToKeeper::Finish) => {
                if self.phase == RunPhase::Serving {
                    self.phase = RunPhase::Finishing;
                }
                self.kill_rest();
            }
            // An unknown message means that this keeper was built with another version of the host.
            Some(ToKeeper::Init { .. }) | None => self.host_gone(),
        }
    }

    /// Handles the end of the host. The shims notice it as well; the kill of the cgroup is for processes out of their
    /// reach.
    fn host_gone(&mut self) {
        if self.phase != RunPhase::Orphaned {
            self.phase = RunPhase::Orphaned;
            // Many processes are about to end and no host waits for an answer, so long time slices are better now.
            sys::request_time_slice(TimeSlice::Usual);
            self.epoll.remove(self.control);
            self.epoll.remove(self.descriptors.host.as_raw_fd());
            // Every worker ends now and every shim is watched, so the events of single workers are not needed.
            self.epoll.remove(self.worker_ends.fd());
            self.all_ends_are_due();
            // The socket often closes some time before the host's pidfd reports its end, and after an exec of the host
            // the pidfd never does. So closing each shim's socket informs the shim now.
            self.kill_cgroup();
            for shim in self.shims.values_mut() {
                shim.gate = None;
                shim.socket = None;
                if let ShimRole::Spare { worker, .. } = &shim.role {
                    self.discarded.insert(worker.pid);
                    send_to(shim, &ToShim::Kill);
                }
            }
        }
    }

    /// Kills all remaining processes. The loop repeats this call until none is left.
    fn kill_rest(&mut self) {
        for order in std::mem::take(&mut self.orders) {
            fail(&order.answer, SpawnStage::Stopping, sys::ECHILD);
        }
        self.kill_cgroup();
        self.all_ends_are_due();
        for shim in self.shims.values_mut() {
            if !matches!(shim.role, ShimRole::Serving(_)) {
                // A process that reaches its gate from now on finds it closed.
                shim.gate = None;
            }
            if let ShimRole::Spare { worker, .. } = &shim.role {
                self.discarded.insert(worker.pid);
            }
            send_to(shim, &ToShim::Kill);
        }
    }

    fn kill_cgroup(&self) {
        if let Some(cgroup) = &self.cgroup {
            cgroup::kill(cgroup.as_raw_fd());
        }
    }

    /// Removes the run's cgroup and all cgroups below it. Kills the processes that remain in it and waits for a limited
    /// time.
    fn remove_cgroup(&self, dir: &OwnedFd) -> bool {
        const ROUNDS: usize = 10;
        let Ok(path) = cgroup::path(dir.as_raw_fd()) else { return false };
        for _ in 0..ROUNDS {
            if cgroup::remove_tree(&path) {
                return true;
            }
            self.kill_cgroup();
            cgroup::await_change(dir.as_raw_fd(), KILL_AGAIN_MS);
        }
        false
    }

    /// Removes the run's directory and ends the keeper, after the last process has ended.
    fn close(&mut self) -> ! {
        self.remove_cgroups_left();
        if let Some(cgroup) = &self.cgroup
            && !self.remove_cgroup(cgroup)
        {
            // A process that no shim has seen is still in the cgroup. The ledger stays for the next reaper.
            sys::exit(1);
        }
        if self.phase == RunPhase::Orphaned && (self.left_behind || !self.unkillable.is_empty()) {
            // No host is left to report these processes to. The next reaper may have more privileges.
            sys::exit(1);
        }
        let remove = match self.phase {
            RunPhase::Orphaned => Ledger::remove_soon,
            RunPhase::Serving | RunPhase::Finishing => Ledger::remove,
        };
        let removed = self.ledger.take().map_or(Ok(()), remove);
        sys::exit(i32::from(removed.is_err()))
    }
}
