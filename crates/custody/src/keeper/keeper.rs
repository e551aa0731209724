//! The keeper's loop: it hears host, shims and gates, writes the ledger, and sees the run to its end.
//!
//! A shim's way: made ahead of need (`Unborn`) → its process waits at the gate (`Spare`) → an order comes:
//! intent and record are written, the order passes the gate (`Ward`) → the program runs → the shim is
//! reaped → the end is written → the host is told.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Error, Result, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::children;
use crate::failpoint::{self, hit};
use crate::identity::{Identities, has_ended, own_pidfd, pid_of};
use crate::launch::{InheritedSignals, KEEPER_IGNORES, ORDERS_IN_DESCRIPTOR, ORDERS_INLINE};
use crate::ledger::{Common, Ledger};
use crate::record::{Kind, Process, Record};
use crate::shim::{self, Birth, Lifelines, ShimHears, ShimSays};
use crate::sys::{self, Cloned, Epoll, EpollEvent, PollFd};
use crate::wire::{Answer, End, Init, MAX_MESSAGE, Stage, Take, ToHost, ToKeeper, WireTier};

/// How long the end of a run waits for progress before it presses on, in milliseconds.
const PRESS_AFTER_MS: i32 = 50;

/// What an epoll event is about: the low two bits of its data; the rest is the ward's key.
const ABOUT_RUN: u64 = 0;
const ABOUT_SHIM: u64 = 1;
const ABOUT_GATE: u64 = 2;
const CONTROL: u64 = 4;
const HOST: u64 = 8;
const CHILD: u64 = 12;

/// Serves the host on descriptor 0 until the run is over.
pub(crate) fn serve() -> ! {
    sys::set_name(c"snakepit-keeper");
    // Whatever the host ignores by now is not for its workers; see `launch::restore_signals`.
    (1..=64).for_each(sys::restore_default);
    KEEPER_IGNORES.into_iter().for_each(sys::ignore);
    sys::set_blocked(sys::bit(sys::SIGCHLD));
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

/// Moves the control socket up and puts /dev/null on 0, 1 and 2, so that no other descriptor lands there.
fn settle_descriptors() -> Result<RawFd> {
    let control = sys::duplicate_above(0, 3)?;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    for standard in 0..3 {
        sys::duplicate_to(null.as_raw_fd(), standard)?;
    }
    Ok(control)
}

/// A shim and the process that it has put at the gate.
struct Shim {
    process: Process,
    socket: OwnedFd,
    gate: Option<OwnedFd>,
    role: Role,
    end: Option<End>,
}

enum Role {
    /// It is being made.
    Unborn { failure: Option<(Stage, i32)> },
    /// Its process waits at the gate.
    Spare { worker: Process, pidfd: OwnedFd },
    /// Its process has its orders.
    Ward(Ward),
}

struct Ward {
    key: u64,
    record: Record,
    /// Where the host waits, until it has its answer.
    answer: Option<OwnedFd>,
    standing: Standing,
}

/// Where a ward stands.
enum Standing {
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

/// A spawn that waits for a process at the gate.
struct Order {
    key: u64,
    worker: Vec<u8>,
    /// Where the host waits for the answer.
    answer: OwnedFd,
    /// What passes the gate.
    packet: Vec<u8>,
    fds: Vec<OwnedFd>,
}

/// Whether the run goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Course {
    Serving,
    /// The host asked for the end and listens until it comes.
    Finishing,
    /// The host is gone.
    Orphaned,
}

struct Keeper {
    /// Open for as long as the keeper lives.
    control: RawFd,
    lifelines: Lifelines,
    cgroup: Option<OwnedFd>,
    child_signals: OwnedFd,
    epoll: Epoll,
    ledger: Option<Ledger>,
    common: Common,
    identities: Identities,
    tier: WireTier,
    user_namespace: bool,
    caller_session: bool,
    signals: InheritedSignals,
    nofile: (u64, u64),
    user: (u32, u32),
    /// By serial number, so that the oldest spare comes first.
    shims: BTreeMap<u64, Shim>,
    by_pid: BTreeMap<i32, u64>,
    by_key: BTreeMap<u64, u64>,
    last_serial: u64,
    orders: VecDeque<Order>,
    /// Shims that were killed: their wards' end is told once no orphan of theirs is left.
    bereaved: Vec<Shim>,
    course: Course,
    buffer: Vec<u8>,
}

type Failed = (Stage, Error);

impl Keeper {
    fn begin(control: RawFd) -> std::result::Result<Self, Failed> {
        let mut buffer = vec![0; MAX_MESSAGE];
        let request = |error| (Stage::Request, error);
        let (length, fds) = sys::receive_blocking(control, &mut buffer).map_err(request)?;
        match ToKeeper::decode(&buffer[..length]) {
            Some(ToKeeper::Init(init)) => Self::set_up(control, &init, fds, buffer),
            _ => Err(request(Error::from_raw_os_error(sys::EPROTO))),
        }
    }

    fn set_up(
        control: RawFd,
        init: &Init,
        fds: Vec<OwnedFd>,
        buffer: Vec<u8>,
    ) -> std::result::Result<Self, Failed> {
        let kernel = |error| (Stage::Kernel, error);
        let mut fds = fds.into_iter();
        let (Some(lock), Some(dir), Some(host), Some(pulse)) =
            (fds.next(), fds.next(), fds.next(), fds.next())
        else {
            return Err((Stage::Request, Error::from_raw_os_error(sys::EPROTO)));
        };
        let cgroup = fds.next();
        if init.caller_session {
            sys::new_group().map_err(|error| (Stage::Session, error))?;
        } else {
            sys::new_session().map_err(|error| (Stage::Session, error))?;
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
        let identities = Identities::new(&host, &keeper);
        let common = Common { tier: init.tier as u8, boot: init.boot, pidns: init.pidns };
        let in_ledger = |error| (Stage::Ledger, error);
        let mut ledger = Ledger::open(dir, init.next_slot, init.sync).map_err(in_ledger)?;
        let mut record = common.record(Kind::Keeper, 0, &init.run);
        record.main = identities.read(sys::pid(), &keeper).map_err(kernel)?;
        ledger.append_head(&record).map_err(in_ledger)?;
        let child_signals = sys::child_signal_fd().map_err(kernel)?;
        let epoll = Epoll::new().map_err(kernel)?;
        for (fd, about) in [(control, CONTROL), (host.as_raw_fd(), HOST), (child_signals.as_raw_fd(), CHILD)]
        {
            epoll.add(fd, about | ABOUT_RUN).map_err(kernel)?;
        }
        let lifelines = Lifelines { host, keeper, lock, pulse };
        let (tier, caller_session) = (init.tier, init.caller_session);
        let signals = InheritedSignals { ignored: init.ignored, blocked: init.blocked };
        Ok(Self {
            control,
            lifelines,
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
            bereaved: Vec::new(),
            course: Course::Serving,
            buffer,
        })
    }

    fn run(&mut self) -> ! {
        self.tell(&ToHost::Ready, &[]);
        self.provide(1);
        let mut events = [EpollEvent::default(); 64];
        loop {
            if self.course != Course::Serving && self.shims.is_empty() && self.no_orphan_left() {
                self.close();
            }
            let timeout = if self.course == Course::Serving { -1 } else { PRESS_AFTER_MS };
            let count = match self.epoll.wait(&mut events, timeout) {
                Ok(0) => {
                    self.press();
                    continue;
                }
                Ok(count) => count,
                Err(_) => sys::exit(1),
            };
            for event in &events[..count] {
                let data = event.data;
                match (data & 3, data >> 2) {
                    (ABOUT_SHIM, serial) => self.hear_shim(serial),
                    (ABOUT_GATE, serial) => self.hear_gate(serial),
                    _ if data == CONTROL => self.hear_host(),
                    _ if data == HOST => self.orphaned(),
                    _ => {
                        sys::drain(&self.child_signals);
                        self.reap();
                    }
                }
            }
        }
    }

    // --- the host -------------------------------------------------------------------------------

    /// Tells the host, waiting for room; gives up only when the host is gone.
    fn tell(&self, message: &ToHost, fds: &[RawFd]) {
        if self.course == Course::Orphaned {
            return;
        }
        let bytes = message.encode();
        while let Err(error) = sys::send(self.control, &bytes, fds) {
            if sys::errno(&error) != sys::EAGAIN || has_ended(&self.lifelines.host) {
                return;
            }
            let mut fds = [
                PollFd { fd: self.control, events: sys::POLLOUT, revents: 0 },
                PollFd { fd: self.lifelines.host.as_raw_fd(), events: sys::POLLIN, revents: 0 },
            ];
            if sys::poll_any(&mut fds, -1).is_err() {
                return;
            }
        }
    }

    fn hear_host(&mut self) {
        // One message per turn, so that a host that asks much does not keep the shims waiting.
        let mut buffer = std::mem::take(&mut self.buffer);
        let received = sys::receive(self.control, &mut buffer);
        match received {
            Ok((0, _)) => self.orphaned(),
            Ok((length, fds)) => self.obey(&buffer[..length], fds),
            Err(error) if sys::errno(&error) == sys::EAGAIN => {}
            Err(_) => self.orphaned(),
        }
        self.buffer = buffer;
    }

    fn obey(&mut self, bytes: &[u8], fds: Vec<OwnedFd>) {
        match ToKeeper::decode(bytes) {
            Some(ToKeeper::Spawn { key, worker, orders }) => self.spawn(key, worker, &orders, fds),
            Some(ToKeeper::Signal { key, signal, reach }) => {
                self.tell_shim(key, &ShimHears::Signal { signal, reach });
            }
            Some(ToKeeper::Kill { key }) => self.tell_shim(key, &ShimHears::Kill),
            Some(ToKeeper::Finish) => {
                if self.course == Course::Serving {
                    self.course = Course::Finishing;
                }
                self.press();
            }
            // Not a message of ours: the host is not the one that we were built with.
            Some(ToKeeper::Init(_)) | None => self.orphaned(),
        }
    }

    // --- the start of a worker ------------------------------------------------------------------

    fn spawn(&mut self, key: u64, worker: Vec<u8>, orders: &[u8], mut fds: Vec<OwnedFd>) {
        if fds.is_empty() {
            // The keeper is out of descriptors, and the socket for the answer was lost on the way: closed,
            // it is an answer too.
            return;
        }
        let answer = fds.remove(0);
        // Ends first: a dead worker's end precedes its replacement's intent.
        self.reap();
        let refused = if self.course == Course::Serving {
            hit("keeper.request", key).err().map(|error| (Stage::Request, error))
        } else {
            Some((Stage::Stopping, Error::from_raw_os_error(sys::ECHILD)))
        };
        if let Some((stage, error)) = refused {
            return fail(&answer, stage, sys::errno(&error));
        }
        let mut packet = Vec::with_capacity(orders.len() + 1);
        packet.push(if orders.is_empty() { ORDERS_IN_DESCRIPTOR } else { ORDERS_INLINE });
        packet.extend_from_slice(orders);
        self.orders.push_back(Order { key, worker, answer, packet, fds });
        self.hand_out();
        self.provide(self.orders.len());
    }

    /// Sees to it that so many shims are unborn or spare. If one cannot be made, the oldest order fails.
    fn provide(&mut self, wanted: usize) {
        let idle = self.shims.values().filter(|shim| !matches!(shim.role, Role::Ward(_))).count();
        for _ in idle..wanted {
            if self.course != Course::Serving {
                return;
            }
            if let Err((stage, error)) = self.make_shim()
                && let Some(order) = self.orders.pop_front()
            {
                fail(&order.answer, stage, sys::errno(&error));
            }
        }
    }

    fn make_shim(&mut self) -> std::result::Result<(), Failed> {
        self.last_serial += 1;
        let serial = self.last_serial;
        let sockets = |error| (Stage::Sockets, error);
        hit("keeper.sockets", serial).map_err(sockets)?;
        let (socket, shim_socket) = sys::packet_pair().map_err(sockets)?;
        let (gate, worker_gate) = sys::packet_pair().map_err(sockets)?;
        self.epoll.add(socket.as_raw_fd(), (serial << 2) | ABOUT_SHIM).map_err(sockets)?;
        self.epoll.add(gate.as_raw_fd(), (serial << 2) | ABOUT_GATE).map_err(sockets)?;
        let cloning = |error| (Stage::CloneShim, error);
        hit("keeper.clone_shim", serial).map_err(cloning)?;
        let flags = shim::clone_flags(self.tier, self.user_namespace);
        let (pid, pidfd) = match sys::clone_process(flags, None).map_err(cloning)? {
            Cloned::Child => {
                let birth = Birth {
                    serial,
                    tier: self.tier,
                    user_namespace: self.user_namespace,
                    caller_session: self.caller_session,
                    signals: self.signals,
                    nofile: self.nofile,
                    lifelines: &self.lifelines,
                    cgroup: self.cgroup.as_ref().map(AsRawFd::as_raw_fd),
                    socket: shim_socket,
                    gate: worker_gate,
                };
                shim::live(birth, self.user)
            }
            Cloned::Parent { pid, pidfd } => (pid, pidfd),
        };
        #[cfg(feature = "failpoints")]
        failpoint::know_shim(pid);
        // While the shim makes its process: who the shim is.
        let read = hit("keeper.shim_cloned", serial).and_then(|()| self.identities.read(pid, &pidfd));
        let (process, failure) = match read {
            Ok(process) => (process, None),
            Err(error) => {
                let _ = sys::send_signal(pid, sys::SIGKILL);
                (Process { pid, ..Process::default() }, Some((Stage::ShimSetup, sys::errno(&error))))
            }
        };
        let role = Role::Unborn { failure };
        self.by_pid.insert(pid, serial);
        self.shims.insert(serial, Shim { process, socket, gate: Some(gate), role, end: None });
        Ok(())
    }

    /// Gives the waiting orders to the processes that wait at the gate.
    fn hand_out(&mut self) {
        while !self.orders.is_empty() {
            let mut spares = self.shims.iter_mut();
            let Some((serial, shim)) = spares.find(|(_, shim)| matches!(shim.role, Role::Spare { .. }))
            else {
                return;
            };
            let serial = *serial;
            let Some(order) = self.orders.pop_front() else { return };
            let role = std::mem::replace(&mut shim.role, Role::Unborn { failure: None });
            let Role::Spare { worker, pidfd } = role else { return };
            let mut record = self.common.record(Kind::Intent, order.key, &order.worker);
            record.main = worker;
            record.shim = shim.process;
            record.pgid = worker.pid;
            match self.write_birth(&mut record) {
                Ok(()) => self.open_gate(serial, order, record, pidfd),
                Err(error) => {
                    // Nothing ran: the process goes on waiting at the gate.
                    if let Some(shim) = self.shims.get_mut(&serial) {
                        shim.role = Role::Spare { worker, pidfd };
                    }
                    if record.kind == Kind::Record {
                        self.write_end(record, -1);
                    }
                    fail(&order.answer, Stage::Ledger, sys::errno(&error));
                }
            }
        }
    }

    /// Intent, then record: both are on file before the process gets its orders.
    fn write_birth(&mut self, record: &mut Record) -> Result<()> {
        let key = record.key;
        hit("keeper.intent", key)?;
        let Some(ledger) = &mut self.ledger else { return Ok(()) };
        if ledger.wants_compaction(self.by_key.len()) {
            let living: Vec<Record> = self
                .shims
                .values()
                .filter_map(|shim| match &shim.role {
                    Role::Ward(ward) => Some(ward.record.clone()),
                    Role::Unborn { .. } | Role::Spare { .. } => None,
                })
                .collect();
            ledger.compact(&living)?;
        }
        ledger.append(record)?;
        record.kind = Kind::Record;
        hit("keeper.intent_written", key)?;
        hit("keeper.record", key)?;
        ledger.append(record)?;
        hit("keeper.record_written", key)
    }

    fn open_gate(&mut self, serial: u64, order: Order, record: Record, pidfd: OwnedFd) {
        let Some(shim) = self.shims.get_mut(&serial) else { return };
        self.by_key.insert(order.key, serial);
        let fds: Vec<RawFd> = order.fds.iter().map(AsRawFd::as_raw_fd).collect();
        let sent = shim.gate.as_ref().map_or(Ok(()), |gate| sys::send(gate.as_raw_fd(), &order.packet, &fds));
        // If it cannot be sent, the process is gone or going, and its shim's end tells the host.
        let standing = match sent {
            Ok(()) => Standing::PastTheGate { pidfd },
            Err(error) => Standing::Failed { stage: Stage::ShimDied, errno: sys::errno(&error) },
        };
        let dead_end = matches!(standing, Standing::Failed { .. });
        shim.role = Role::Ward(Ward { key: order.key, record, answer: Some(order.answer), standing });
        let _ = hit("keeper.gate_opened", order.key);
        if dead_end {
            self.tell_shim(order.key, &ShimHears::Kill);
        }
    }

    // --- the shims ------------------------------------------------------------------------------

    fn tell_shim(&self, key: u64, message: &ShimHears) {
        if let Some(shim) = self.by_key.get(&key).and_then(|serial| self.shims.get(serial)) {
            send_to(shim, message);
        }
    }

    fn hear_shim(&mut self, serial: u64) {
        let mut bytes = [0; 64];
        while let Some(shim) = self.shims.get_mut(&serial) {
            let (length, mut fds) = match sys::receive(shim.socket.as_raw_fd(), &mut bytes) {
                Ok((length @ 1.., fds)) => (length, fds),
                Err(error) if sys::errno(&error) == sys::EAGAIN => return,
                Ok(_) | Err(_) => {
                    // Its end is told by the kernel, not by its socket.
                    self.epoll.remove(shim.socket.as_raw_fd());
                    return;
                }
            };
            let key = if let Role::Ward(ward) = &shim.role { Some(ward.key) } else { None };
            match ShimSays::decode(&bytes[..length]) {
                Some(ShimSays::Born) => {
                    if let Some(pidfd) = fds.pop() {
                        self.born(serial, pidfd);
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
                None => {}
            }
        }
    }

    /// A process waits at the gate: know it, and give it what is to be done.
    fn born(&mut self, serial: u64, pidfd: OwnedFd) {
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
                send_to(shim, &ShimHears::Kill);
            }
        }
    }

    /// The worker's word before its program runs; the end of the gate says that it does.
    fn hear_gate(&mut self, serial: u64) {
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
        self.epoll.remove(gate.as_raw_fd());
        shim.gate = None;
        match (&mut shim.role, word) {
            (Role::Unborn { failure }, Some(word)) => {
                failure.get_or_insert(word);
            }
            (Role::Ward(ward), Some((stage, errno))) => ward.standing = Standing::Failed { stage, errno },
            (Role::Ward(ward), None) => {
                if let Standing::PastTheGate { pidfd } = &ward.standing {
                    let answer = Answer::Spawned { pid: ward.record.main.pid, shim: shim.process.pid };
                    let _ = hit("keeper.spawned", ward.key);
                    let socket = ward.answer.take();
                    let told = socket.is_some_and(|socket| {
                        sys::send(socket.as_raw_fd(), &answer.encode(), &[pidfd.as_raw_fd()]).is_ok()
                    });
                    ward.standing = Standing::Running;
                    if !told {
                        // Nobody waits for it any more.
                        send_to(shim, &ShimHears::Kill);
                    }
                }
                // The host has its answer and shall run with it; then there is time to prepare for the next.
                sys::give_way();
                self.provide(self.orders.len().max(1));
            }
            (Role::Unborn { .. } | Role::Spare { .. }, _) => {}
        }
    }

    // --- the end of a worker --------------------------------------------------------------------

    fn reap(&mut self) {
        while let Ok(Some(waited)) = sys::wait_child(-1, sys::WNOHANG) {
            let Some(serial) = self.by_pid.remove(&waited.pid) else { continue };
            // What the shim and the worker said last may still lie in their sockets.
            self.hear_shim(serial);
            self.hear_gate(serial);
            let Some(shim) = self.shims.remove(&serial) else { continue };
            self.epoll.remove(shim.socket.as_raw_fd());
            if let Some(gate) = &shim.gate {
                self.epoll.remove(gate.as_raw_fd());
            }
            let told = shim.end.is_some() || self.tier == WireTier::Group || self.course == Course::Orphaned;
            match shim.role {
                Role::Ward(_) if !told => self.bereaved.push(shim),
                Role::Ward(ward) => self.settle(ward, shim.end),
                Role::Unborn { failure } => self.stillborn(failure),
                Role::Spare { .. } => self.stillborn(None),
            }
        }
        if !self.bereaved.is_empty() && self.no_orphan_left() {
            for shim in std::mem::take(&mut self.bereaved) {
                if let Role::Ward(ward) = shim.role {
                    self.settle(ward, shim.end);
                }
            }
        }
    }

    /// A shim ended before it had orders. If an order was waiting for it, that one fails.
    fn stillborn(&mut self, failure: Option<(Stage, i32)>) {
        let idle = self.shims.values().filter(|shim| !matches!(shim.role, Role::Ward(_))).count();
        if self.orders.len() > idle
            && let Some(order) = self.orders.pop_front()
        {
            let (stage, errno) = failure.unwrap_or((Stage::ShimDied, sys::ECHILD));
            fail(&order.answer, stage, errno);
        }
    }

    /// Kills whoever outlived a shim; true when there is nobody.
    fn no_orphan_left(&self) -> bool {
        let mut none = true;
        for pid in children::list() {
            if self.by_pid.contains_key(&pid) {
                continue;
            }
            none = false;
            if sys::send_signal(pid, sys::SIGKILL).is_ok() {
                self.tell(&ToHost::Escaped { pid }, &[]);
            }
        }
        none
    }

    /// Writes a worker's end and tells the host.
    fn settle(&mut self, ward: Ward, end: Option<End>) {
        let end = end.unwrap_or(End::LOST);
        self.by_key.remove(&ward.key);
        self.write_end(ward.record, end.status);
        match (ward.standing, ward.answer) {
            (Standing::Failed { stage, errno }, Some(answer)) => fail(&answer, stage, errno),
            (Standing::PastTheGate { .. }, Some(answer)) => fail(&answer, Stage::ShimDied, sys::ECHILD),
            (Standing::Running | Standing::Failed { .. } | Standing::PastTheGate { .. }, _) => {
                self.tell(&ToHost::Exit { key: ward.key, end }, &[]);
            }
        }
    }

    fn write_end(&mut self, mut record: Record, status: i32) {
        if self.course == Course::Orphaned {
            // The whole run's directory is about to go.
            return;
        }
        record.kind = Kind::Exit;
        record.status = status;
        if let Some(ledger) = &mut self.ledger
            && let Err(error) = ledger.append_exit(record)
        {
            self.tell(&ToHost::LedgerTrouble { errno: sys::errno(&error) }, &[]);
        }
    }

    // --- the end of the run ---------------------------------------------------------------------

    /// The host is gone. The shims have seen it too; the cgroup is for whoever is out of their reach.
    fn orphaned(&mut self) {
        if self.course != Course::Orphaned {
            self.course = Course::Orphaned;
            self.epoll.remove(self.control);
            self.epoll.remove(self.lifelines.host.as_raw_fd());
            if !has_ended(&self.lifelines.host) {
                // The socket closed though the host lives, as after exec: nobody else tells the shims.
                self.press();
            }
        }
    }

    /// KILL to everybody that is left; repeated for as long as there is somebody.
    fn press(&mut self) {
        for order in std::mem::take(&mut self.orders) {
            fail(&order.answer, Stage::Stopping, sys::ECHILD);
        }
        self.kill_cgroup();
        for shim in self.shims.values() {
            send_to(shim, &ShimHears::Kill);
        }
    }

    fn kill_cgroup(&self) {
        if let Some(cgroup) = &self.cgroup
            && let Ok(file) = sys::open_at(cgroup.as_raw_fd(), c"cgroup.kill", sys::O_WRONLY)
        {
            let _ = std::fs::File::from(file).write_all(b"1");
        }
    }

    /// Nobody is left: the run's directory goes, and the keeper with it.
    fn close(&mut self) -> ! {
        self.kill_cgroup();
        if let Some(cgroup) = &self.cgroup
            && let Ok(path) = std::fs::read_link(format!("/proc/self/fd/{}", cgroup.as_raw_fd()))
        {
            let _ = std::fs::remove_dir(path);
        }
        let removed = self.ledger.take().map_or(Ok(()), Ledger::remove);
        sys::exit(i32::from(removed.is_err()))
    }
}

/// Tells whoever waits for a spawn that it failed.
fn fail(answer: &OwnedFd, stage: Stage, errno: i32) {
    let _ = sys::send(answer.as_raw_fd(), &Answer::Failed { stage, errno }.encode(), &[]);
}

fn send_to(shim: &Shim, message: &ShimHears) {
    // A full socket means a stopped shim; whoever asks for something that matters repeats it.
    let _ = sys::send(shim.socket.as_raw_fd(), &message.encode(), &[]);
    if matches!(message, ShimHears::Kill) {
        // A stopped shim cannot hear.
        let _ = sys::send_signal(shim.process.pid, sys::SIGCONT);
    }
}
