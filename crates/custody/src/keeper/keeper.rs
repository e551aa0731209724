//! The keeper's loop: it hears host, shims and gates, writes the ledger, and sees the run to its end.
//!
//! A shim's way: made ahead of need (`Unborn`) → its process waits at the gate (`Spare`) → an order comes:
//! intent and record are written, the order passes the gate (`Ward`) → the program runs → the shim is
//! reaped → the end is written → the host is told.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Instant;

use crate::cgroup;
use crate::children::Escalation;
#[cfg(feature = "failpoints")]
use crate::failpoint;
use crate::identity::{Identities, has_ended, own_pidfd};
use crate::launch::{InheritedSignals, KEEPER_IGNORES};
use crate::ledger::{Common, Ledger};
use crate::overdue::Due;
use crate::record::Kind;
use crate::shim::{self, Lifelines, ShimHears};
use crate::sys::{self, Epoll, EpollEvent, PollFd, Turns};
use crate::wards::{Order, Role, Shim, fail, send_to};
use crate::wire::{Init, MAX_MESSAGE, Stage, ToHost, ToKeeper, WireTier};

/// How long the end of a run waits for progress before it presses on, in milliseconds.
const PRESS_AFTER_MS: i32 = 50;

/// What an epoll event is about: the low two bits of its data; the rest is the ward's key.
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
    sys::ask_for_turns(Turns::Short);
    // Whatever the host ignores by now is not for its workers; see `launch::restore_signals`.
    (1..=64).for_each(sys::restore_default);
    KEEPER_IGNORES.into_iter().for_each(sys::ignore);
    // No signal but KILL and STOP may end or hold keeper and shims, whoever sends it; SIGXFSZ becomes an error of the
    // write. Children are heard of through a descriptor.
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

/// Moves the control socket up and puts /dev/null on 0, 1 and 2, so that no other descriptor lands there.
fn settle_descriptors() -> Result<RawFd> {
    let control = sys::duplicate_above(0, 3)?;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    for standard in 0..3 {
        sys::duplicate_to(null.as_raw_fd(), standard)?;
    }
    Ok(control)
}

/// Whether the run goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Course {
    Serving,
    /// The host asked for the end and listens until it comes.
    Finishing,
    /// The host is gone.
    Orphaned,
}

pub(crate) struct Keeper {
    /// Open for as long as the keeper lives.
    pub(crate) control: RawFd,
    pub(crate) lifelines: Lifelines,
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
    /// By serial number, so that the oldest spare comes first.
    pub(crate) shims: BTreeMap<u64, Shim>,
    pub(crate) by_pid: BTreeMap<i32, u64>,
    pub(crate) by_key: BTreeMap<u64, u64>,
    pub(crate) last_serial: u64,
    pub(crate) orders: VecDeque<Order>,
    /// Processes that waited at the gate and die with their shim: no escape, if they are seen once more.
    pub(crate) dismissed: BTreeSet<i32>,
    /// Shims that were killed: their wards' end is told once no orphan of theirs is left.
    pub(crate) bereaved: Vec<Shim>,
    /// The pidfds of running workers, by their shims' numbers: a set of its own, so that it can be left as a whole.
    pub(crate) worker_ends: Epoll,
    /// The shims that have to end, by number.
    pub(crate) due: BTreeMap<u64, Due>,
    pub(crate) next_look: Instant,
    /// The hunt for what a dead shim has left.
    pub(crate) orphans: Option<Escalation>,
    /// Orphans of whom the host was told.
    pub(crate) escaped: BTreeSet<i32>,
    /// Children of another user, who may not be signalled and are not waited for.
    pub(crate) unkillable: BTreeSet<i32>,
    /// Whether a shim has left somebody behind who may not be signalled, and nobody could be told.
    pub(crate) left_behind: bool,
    /// Shims whose workers' cgroups are to be removed.
    pub(crate) cgroups_left: Vec<u64>,
    pub(crate) course: Course,
    pub(crate) buffer: Vec<u8>,
}

pub(crate) type Failed = (Stage, Error);

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
        let identities = Identities { pidfs: init.pidfs, clock_offset: init.clock_offset };
        let common = Common { tier: init.tier as u8, boot: init.boot, pidns: init.pidns };
        let in_ledger = |error| (Stage::Ledger, error);
        let mut ledger = Ledger::open(dir, init.next_slot, init.sync).map_err(in_ledger)?;
        let mut record = common.record(Kind::Keeper, 0, &init.run);
        record.main = identities.read(sys::pid(), &keeper).map_err(kernel)?;
        ledger.append_head(&record).map_err(in_ledger)?;
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
            dismissed: BTreeSet::new(),
            bereaved: Vec::new(),
            worker_ends,
            due: BTreeMap::new(),
            next_look: Instant::now(),
            orphans: None,
            escaped: BTreeSet::new(),
            unkillable: BTreeSet::new(),
            left_behind: false,
            cgroups_left: Vec::new(),
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
            self.end_overdue();
            let nothing_to_press =
                self.course == Course::Serving && self.due.is_empty() && self.bereaved.is_empty();
            let timeout = if nothing_to_press { -1 } else { PRESS_AFTER_MS };
            let count = match self.epoll.wait(&mut events, timeout) {
                Ok(0) => {
                    if self.course == Course::Serving {
                        self.reap();
                    } else {
                        self.press();
                    }
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
                    _ if data == WORKER_ENDS => self.hear_ends(),
                    _ => {
                        sys::drain(&self.child_signals);
                        self.reap();
                    }
                }
            }
        }
    }

    /// Tells the host, waiting for room; gives up only when the host is gone.
    pub(crate) fn tell(&self, message: &ToHost, fds: &[RawFd]) {
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

    /// The host is gone. The shims have seen it too; the cgroup is for whoever is out of their reach.
    fn orphaned(&mut self) {
        if self.course != Course::Orphaned {
            self.course = Course::Orphaned;
            // Many ends are coming, and nobody waits for an answer: better much at once.
            sys::ask_for_turns(Turns::Usual);
            self.epoll.remove(self.control);
            self.epoll.remove(self.lifelines.host.as_raw_fd());
            // Every worker ends now, and every shim is looked after: no need to hear of each.
            self.epoll.remove(self.worker_ends.fd());
            self.all_ends_are_due();
            // Often the socket closes some time before the host's pidfd tells of its end, as it does for good
            // after exec. So everybody is told now, by the shortest word there is: the end of their socket.
            self.kill_cgroup();
            for shim in self.shims.values_mut() {
                shim.gate = None;
                shim.socket = None;
                if let Role::Spare { worker, .. } = &shim.role {
                    self.dismissed.insert(worker.pid);
                    send_to(shim, &ShimHears::Kill);
                }
            }
        }
    }

    /// KILL to everybody that is left; repeated for as long as there is somebody.
    fn press(&mut self) {
        for order in std::mem::take(&mut self.orders) {
            fail(&order.answer, Stage::Stopping, sys::ECHILD);
        }
        self.kill_cgroup();
        self.all_ends_are_due();
        for shim in self.shims.values_mut() {
            if !matches!(shim.role, Role::Ward(_)) {
                // Whoever comes to the gate now finds it closed.
                shim.gate = None;
            }
            if let Role::Spare { worker, .. } = &shim.role {
                self.dismissed.insert(worker.pid);
            }
            send_to(shim, &ShimHears::Kill);
        }
    }

    fn kill_cgroup(&self) {
        if let Some(cgroup) = &self.cgroup {
            cgroup::kill(cgroup.as_raw_fd());
        }
    }

    /// Removes the cgroup and those below it; whoever is still in it is killed and waited for, but not for ever.
    fn remove_cgroup(&self, dir: &OwnedFd) -> bool {
        const ROUNDS: usize = 10;
        let Ok(path) = cgroup::path(dir.as_raw_fd()) else { return false };
        for _ in 0..ROUNDS {
            if cgroup::remove_tree(&path) {
                return true;
            }
            self.kill_cgroup();
            cgroup::await_change(dir.as_raw_fd(), PRESS_AFTER_MS);
        }
        false
    }

    /// Nobody is left: the run's directory goes, and the keeper with it.
    fn close(&mut self) -> ! {
        self.remove_cgroups_left();
        if let Some(cgroup) = &self.cgroup
            && !self.remove_cgroup(cgroup)
        {
            // Somebody is in it whom no shim has seen: the ledger stays for the next start's reaper.
            sys::exit(1);
        }
        if self.course == Course::Orphaned && (self.left_behind || !self.unkillable.is_empty()) {
            // Nobody could be told of them: the next start's reaper may be allowed more.
            sys::exit(1);
        }
        let remove = match self.course {
            Course::Orphaned => Ledger::remove_soon,
            Course::Serving | Course::Finishing => Ledger::remove,
        };
        let removed = self.ledger.take().map_or(Ok(()), remove);
        sys::exit(i32::from(removed.is_err()))
    }
}
