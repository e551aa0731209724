//! The shim: one per worker, its init.
//!
//! It makes the process that will be the worker and puts it at the gate, reaps what the worker abandons,
//! and ends only when everything that the worker started is gone. It needs nobody: host or keeper gone, it does the same by itself.

use std::cell::OnceCell;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::cgroup::WorkerCgroup;
use crate::children::{self, Busy, Escalation, FIRST_DEATH_MS, NEXT_DEATH_MS};
use crate::failpoint::hit;
use crate::identity::has_ended;
use crate::launch::{Ground, InheritedSignals, OOM_SCORE_ADJ, wait_and_launch};
pub(crate) use crate::messages::{ShimHears, ShimSays};
use crate::sys::{self, Cloned, PollFd, Told};
use crate::wire::{End, Reach, Stage, WireTier};

/// The run's descriptors that a shim keeps for its whole life.
pub(crate) struct Lifelines {
    pub(crate) host: OwnedFd,
    pub(crate) keeper: OwnedFd,
    /// Held for its lock alone: the run is not over while a shim lives.
    pub(crate) lock: OwnedFd,
    /// Held open alone: its reader learns of the last holder's end.
    pub(crate) pulse: OwnedFd,
}

/// What a new shim is made of.
pub(crate) struct Birth<'a> {
    /// Counted from 1 within the keeper's life.
    pub(crate) serial: u64,
    pub(crate) tier: WireTier,
    pub(crate) user_namespace: bool,
    pub(crate) caller_session: bool,
    pub(crate) signals: InheritedSignals,
    pub(crate) nofile: (u64, u64),
    pub(crate) lifelines: &'a Lifelines,
    /// The run's cgroup.
    pub(crate) cgroup: Option<RawFd>,
    pub(crate) socket: OwnedFd,
    pub(crate) user: (u32, u32),
}

/// The flags with which a shim of this tier is cloned.
pub(crate) fn clone_flags(tier: WireTier, user_namespace: bool) -> u64 {
    match tier {
        WireTier::Namespace if user_namespace => sys::CLONE_NEWPID | sys::CLONE_NEWNS | sys::CLONE_NEWUSER,
        WireTier::Namespace => sys::CLONE_NEWPID | sys::CLONE_NEWNS,
        WireTier::Shim | WireTier::Group => 0,
    }
}

/// The life of a shim, from just after the clone.
pub(crate) fn live(birth: Birth<'_>, gate: OwnedFd) -> ! {
    sys::set_name(c"snakepit-shim");
    match start(&birth, gate) {
        Ok(Started { worker, child_signals, cgroup }) => {
            let Birth { tier, lifelines, socket, serial, .. } = birth;
            let _ = hit("shim.running", serial);
            Shim { tier, worker, socket, lifelines, child_signals, cgroup }.watch()
        }
        Err((stage, error)) => {
            let failed = ShimSays::Failed { stage, errno: sys::errno(&error) };
            let _ = say(birth.socket.as_raw_fd(), &failed, &[]);
            sys::exit(1)
        }
    }
}

/// Tells the keeper. A full socket means that it is stopped: then it learns the rest from our end.
pub(crate) fn say(socket: RawFd, message: &ShimSays, fds: &[RawFd]) -> Result<()> {
    sys::send(socket, &message.encode(), fds)
}

type Failure = (Stage, Error);

/// What a shim has when its worker runs.
struct Started {
    worker: i32,
    child_signals: OwnedFd,
    cgroup: Option<WorkerCgroup>,
}

/// Comes back when the worker runs its program or has ended: until then the process at the gate has our
/// memory.
fn start(birth: &Birth<'_>, gate: OwnedFd) -> std::result::Result<Started, Failure> {
    let setup = |error| (Stage::ShimSetup, error);
    let serial = birth.serial;
    let lifelines = birth.lifelines;
    let mut keep: Vec<RawFd> = [&lifelines.host, &lifelines.keeper, &lifelines.lock, &lifelines.pulse]
        .into_iter()
        .chain([&birth.socket, &gate])
        .map(AsRawFd::as_raw_fd)
        .chain(birth.cgroup)
        .collect();
    // Before anything that could block: a sibling's gate must not stay open through us.
    sys::close_all_except(&mut keep).map_err(setup)?;
    hit("shim.start", serial).map_err(setup)?;
    match birth.tier {
        WireTier::Namespace => {
            // KILL reaches a stopped process too, so the chain holds when everybody in it is stopped.
            sys::die_with_parent().map_err(setup)?;
            enter_namespace(birth.user_namespace, birth.user)?;
        }
        WireTier::Shim | WireTier::Group => sys::become_subreaper().map_err(setup)?,
    }
    if has_ended(&lifelines.keeper) || has_ended(&lifelines.host) {
        sys::exit(1);
    }
    sys::new_group().map_err(setup)?;
    hit("shim.setup", serial).map_err(setup)?;
    let child_signals = sys::child_signal_fd().map_err(setup)?;
    let cgroup = birth.cgroup.and_then(|run| WorkerCgroup::make(run, serial));
    let cloning = |error| (Stage::CloneWorker, error);
    // The other end goes with the worker's program: when ours reads the end, our memory is our own again.
    let (returned, loan) = sys::packet_pair().map_err(cloning)?;
    let ground = Ground {
        serial,
        signals: birth.signals,
        caller_session: birth.caller_session,
        nofile: birth.nofile,
        shim: sys::pid(),
        socket: birth.socket.as_raw_fd(),
        gate: gate.as_raw_fd(),
        loan: loan.as_raw_fd(),
        cgroups: [cgroup.as_ref().map(|cgroup| cgroup.dir.as_raw_fd()), birth.cgroup],
        large_orders: OnceCell::new(),
        oom_score: OnceCell::new(),
    };
    hit("shim.clone_worker", serial).map_err(cloning)?;
    let borrower = sys::lend_memory_to(wait_and_launch, &ground).map_err(cloning)?;
    // From here on the process at the gate alone holds its end of it: the keeper hears at once when it goes.
    drop((loan, gate));
    await_return(borrower.pid, &returned, lifelines);
    let worker = borrower.returned();
    if let Some(own) = ground.oom_score.get() {
        let _ = std::fs::write(OOM_SCORE_ADJ, own);
    }
    Ok(Started { worker, child_signals, cgroup })
}

/// Waits until the process at the gate runs its program or has ended, and ends it if host or keeper are
/// gone. Allocates nothing: see [`sys::lend_memory_to`].
fn await_return(borrower: i32, returned: &OwnedFd, lifelines: &Lifelines) {
    let watched = [returned, &lifelines.host, &lifelines.keeper];
    let mut fds = watched.map(|fd| PollFd { fd: fd.as_raw_fd(), events: sys::POLLIN, revents: 0 });
    let mut watch: &mut [PollFd] = &mut fds;
    loop {
        let _ = sys::poll_any(watch, -1);
        if watch[0].revents != 0 {
            return;
        }
        let _ = sys::send_signal(borrower, sys::SIGKILL);
        watch = &mut watch[..1];
    }
}

/// Makes the new namespaces a place where a program feels at home.
fn enter_namespace(user_namespace: bool, (user, group): (u32, u32)) -> std::result::Result<(), Failure> {
    if user_namespace {
        let map = || -> Result<()> {
            std::fs::write("/proc/self/setgroups", "deny")?;
            std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
            std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
        };
        map().map_err(|error| (Stage::UserMap, error))?;
    }
    let mount = || -> Result<()> {
        sys::mount_at(c"none", c"/", c"none", sys::MS_REC | sys::MS_SLAVE)?;
        sys::mount_at(c"proc", c"/proc", c"proc", sys::MS_NOSUID | sys::MS_NODEV | sys::MS_NOEXEC)
    };
    mount().map_err(|error| (Stage::MountProc, error))
}

struct Shim<'a> {
    tier: WireTier,
    worker: i32,
    socket: OwnedFd,
    lifelines: &'a Lifelines,
    child_signals: OwnedFd,
    cgroup: Option<WorkerCgroup>,
}

/// The exit status of a shim that leaves its worker's cgroup behind.
const CGROUP_LEFT: i32 = 3;
/// The exit status of a shim that leaves processes behind which it may not signal.
pub(crate) const PROCESSES_LEFT: i32 = 4;

/// What the shim has to do next.
enum Next {
    Watch,
    /// There is more of the same, but others come first.
    GoOn,
    EndAll,
}

impl Shim<'_> {
    fn watch(&self) -> ! {
        let watched = [&self.lifelines.host, &self.lifelines.keeper, &self.socket, &self.child_signals];
        let mut fds = watched.map(|fd| PollFd { fd: fd.as_raw_fd(), events: sys::POLLIN, revents: 0 });
        let mut more = false;
        loop {
            let polled = sys::poll_any(&mut fds, if more { 0 } else { -1 });
            let [host, keeper, socket, child] = fds.map(|fd| fd.revents != 0);
            if polled.is_err() || host || keeper {
                self.end_all();
            }
            if child || more {
                sys::drain(&self.child_signals);
                more = match self.reap() {
                    Next::Watch => false,
                    Next::GoOn => true,
                    Next::EndAll => self.end_all(),
                };
            }
            if socket && let Next::EndAll = self.hear() {
                self.end_all();
            }
        }
    }

    fn hear(&self) -> Next {
        let mut bytes = [0; 64];
        loop {
            let heard = match sys::receive(self.socket.as_raw_fd(), &mut bytes) {
                Ok((0, _)) => return Next::EndAll,
                Ok((length, _)) => ShimHears::decode(&bytes[..length]),
                Err(error) if sys::errno(&error) == sys::EAGAIN => return Next::Watch,
                Err(_) => return Next::EndAll,
            };
            match heard {
                Some(ShimHears::Signal { signal, reach }) => {
                    // The worker is not reaped before the end, so pid and group are still its own.
                    let target = match reach {
                        Reach::Group => -self.worker,
                        Reach::Process => self.worker,
                    };
                    let _ = sys::send_signal(target, signal);
                }
                Some(ShimHears::Kill) | None => return Next::EndAll,
            }
        }
    }

    /// Reaps orphans and notes what the worker does; the worker itself is left for the end.
    fn reap(&self) -> Next {
        for _ in 0..children::REAPED_AT_ONCE {
            let Some((pid, told)) = sys::peek_child() else { return Next::Watch };
            match told {
                Told::Ended if pid == self.worker => return Next::EndAll,
                Told::Ended => {
                    let _ = sys::wait_child(pid, sys::WNOHANG);
                }
                Told::Stopped { .. } | Told::Continued => match sys::take_stop(pid) {
                    Some(Told::Stopped { signal }) if pid == self.worker => {
                        self.say(&ShimSays::Stopped { signal });
                    }
                    Some(Told::Continued) if pid == self.worker => {
                        self.say(&ShimSays::Continued);
                    }
                    _ => {}
                },
            }
        }
        Next::GoOn
    }

    /// Ends the worker and everything that it started, and then itself.
    fn end_all(&self) -> ! {
        let mut end = End::LOST;
        let note = |waited: &sys::Waited| {
            if waited.pid == self.worker {
                end = End::from(waited);
            }
        };
        let given_up = match self.tier {
            WireTier::Namespace => {
                // Atomic: a fork in the namespace is either seen or finds the signal pending. Whoever may not be
                // signalled ends with its init.
                let _ = sys::send_signal(-1, sys::SIGKILL);
                self.end_children(note);
                Vec::new()
            }
            WireTier::Shim => {
                let _ = sys::send_signal(-self.worker, sys::SIGKILL);
                self.end_children(note)
            }
            WireTier::Group => {
                // It may have left its group. It is not reaped, so that both numbers are its own.
                let _ = sys::send_signal(-self.worker, sys::SIGKILL);
                let _ = sys::send_signal(self.worker, sys::SIGKILL);
                self.end_group(note)
            }
        };
        let left = !given_up.is_empty();
        let removed = if has_ended(&self.lifelines.host) {
            // Nobody is left to be told; a stopped keeper shall go on and clear the run. It removes the cgroups, too: shims that
            // do it at the same time wait for each other.
            let _ = sys::pidfd_signal(self.lifelines.keeper.as_raw_fd(), sys::SIGCONT);
            self.cgroup.is_none()
        } else {
            for pid in given_up {
                self.say(&ShimSays::Unkillable { pid });
            }
            self.say(&ShimSays::Ended(end));
            self.cgroup.as_ref().is_none_or(WorkerCgroup::remove)
        };
        sys::exit(match (left, removed) {
            (true, _) => PROCESSES_LEFT,
            (false, false) => CGROUP_LEFT,
            (false, true) => 0,
        })
    }

    /// Ends the worker's group; those who left it go free. As a subreaper it can wait for the orphans of the group.
    fn end_group(&self, mut note: impl FnMut(&sys::Waited)) -> Vec<i32> {
        let mut escalation = Escalation::new();
        let mut busy = Busy::new();
        let mut is_reaped = false;
        if sys::peek_child().is_none() {
            self.await_death(FIRST_DEATH_MS);
        }
        loop {
            sys::drain(&self.child_signals);
            let mut left = false;
            for whom in [-self.worker, self.worker] {
                // Most often it is of its group still, and reaped with it.
                if is_reaped && whom == self.worker {
                    break;
                }
                while let Ok(waited) = sys::wait_child(whom, sys::WNOHANG) {
                    left |= waited.is_none();
                    let Some(waited) = waited else { break };
                    is_reaped |= waited.pid == self.worker;
                    note(&waited);
                }
            }
            if !left {
                return Vec::new();
            }
            // Somebody of the group is not reaped, so that its number is still its own.
            let round = escalation.kill_group(self.worker);
            if round.is_last {
                return round.given_up;
            }
            self.await_death(NEXT_DEATH_MS);
            busy.tell(|| self.say(&ShimSays::Busy));
        }
    }

    fn await_death(&self, timeout_ms: i32) {
        let mut deaths = [PollFd { fd: self.child_signals.as_raw_fd(), events: sys::POLLIN, revents: 0 }];
        let _ = sys::poll_any(&mut deaths, timeout_ms);
    }

    fn say(&self, message: &ShimSays) {
        let _ = say(self.socket.as_raw_fd(), message, &[]);
    }

    /// Ends all children and whatever they leave; gives back those who may not be signalled.
    fn end_children(&self, note: impl FnMut(&sys::Waited)) -> Vec<i32> {
        let kill_at_once = || self.cgroup.iter().for_each(WorkerCgroup::kill);
        let still_busy = || self.say(&ShimSays::Busy);
        let deaths = &self.child_signals;
        children::EndAll { deaths, kill_at_once: &kill_at_once, still_busy: &still_busy }.run(note)
    }
}

/// Tries what the namespace tier needs: 0 it works, 10 + stage it does not, with the reason on stdout.
pub(crate) fn probe_namespace() -> i32 {
    let user = sys::user_and_group();
    let mut outcome = 1;
    for user_namespace in [false, true] {
        let flags = clone_flags(WireTier::Namespace, user_namespace);
        let failed = |stage: Stage, error: &Error| {
            println!("{} {} {}", u8::from(user_namespace), stage as u8, sys::errno(error));
        };
        match sys::clone_process(flags) {
            Ok(Cloned::Child) => match enter_namespace(user_namespace, user) {
                Ok(()) => sys::exit(0),
                Err((stage, error)) => {
                    failed(stage, &error);
                    std::io::Write::flush(&mut std::io::stdout()).ok();
                    sys::exit(1)
                }
            },
            Ok(Cloned::Parent { pid, .. }) => {
                outcome = match sys::wait_child(pid, 0) {
                    Ok(Some(waited)) => waited.status,
                    _ => 1,
                };
            }
            Err(error) => failed(Stage::CloneShim, &error),
        }
        if outcome == 0 {
            // The caller learns which of the two works.
            return i32::from(user_namespace) * 100;
        }
    }
    1
}
