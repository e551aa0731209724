//! From clone to exec: the process that waits at the gate until it is told what to become.
//!
//! It is made ahead of need, so that a spawn costs no fork, and it borrows its shim's memory, so that nothing
//! is copied for it. It has no orders, and so nothing to run, until the keeper has it on record; what goes
//! wrong is told through the gate.

use std::cell::OnceCell;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::cgroup;
use crate::failpoint::hit;
use crate::shim::{ShimSays, say};
use crate::sys;
use crate::wire::{MAX_MESSAGE, MAX_ORDERS, Orders, Put, Stage};

/// What a worker is given back of the signals that its host was started with.
#[derive(Clone, Copy)]
pub(crate) struct InheritedSignals {
    pub(crate) ignored: u64,
    pub(crate) blocked: u64,
}

/// What the process at the gate needs besides its orders.
pub(crate) struct Ground {
    /// The number of its shim, for failpoints.
    pub(crate) serial: u64,
    pub(crate) signals: InheritedSignals,
    pub(crate) caller_session: bool,
    /// The limit that the host had; the keeper raises its own.
    pub(crate) nofile: (u64, u64),
    /// The shim's pid as the worker sees it.
    pub(crate) shim: i32,
    /// The shim's socket to the keeper.
    pub(crate) socket: RawFd,
    pub(crate) gate: RawFd,
    /// Closed by exec or by our end, and not before: it tells the shim that its memory is its own again.
    pub(crate) loan: RawFd,
    /// The worker's own cgroup and the run's, where there are such: the first that takes it is joined.
    pub(crate) cgroups: [Option<RawFd>; 2],
    /// Orders too large for a packet; kept here, so that the shim frees them when it has its memory back.
    pub(crate) large_orders: OnceCell<Vec<u8>>,
    /// The shim's own `oom_score_adj`, if the worker has another: the kernel gives one to all who share a memory,
    /// so the shim has to take its own back.
    pub(crate) oom_score: OnceCell<Vec<u8>>,
}

pub(crate) const OOM_SCORE_ADJ: &str = "/proc/self/oom_score_adj";

type Failure = (Stage, Error);

fn at<T>(stage: Stage, result: Result<T>) -> std::result::Result<T, Failure> {
    result.map_err(|error| (stage, error))
}

/// Never returns: the program runs, or the process ends.
pub(crate) fn wait_and_launch(ground: &Ground) -> ! {
    let mut gate = ground.gate;
    let failure = take_stand(ground).and_then(|()| pass_gate(ground, &mut gate)).err();
    if let Some((stage, error)) = failure {
        let mut message = Put::default();
        message.u8(stage as u8).i32(sys::errno(&error));
        let _ = sys::send(gate, &message.0, &[]);
    }
    sys::exit(127)
}

/// Binds itself to its shim, makes its own group, and tells the keeper who it is.
fn take_stand(ground: &Ground) -> std::result::Result<(), Failure> {
    at(Stage::ShimSetup, sys::die_with_parent())?;
    if sys::parent_pid() != ground.shim {
        // The shim died before the line above could bind us to it.
        sys::exit(127);
    }
    at(Stage::ShimSetup, hit("worker.start", ground.serial))?;
    let made = if ground.caller_session { sys::new_group() } else { sys::new_session() };
    at(Stage::Session, made)?;
    at(Stage::Cgroup, join_cgroup(ground.cgroups))?;
    at(Stage::ShimSetup, hit("worker.born", ground.serial))?;
    let pidfd = at(Stage::Identity, sys::pidfd_open(sys::pid()))?;
    at(Stage::ShimSetup, say(ground.socket, &ShimSays::Born, &[pidfd.as_raw_fd()]))
}

/// Joins the first of the cgroups that takes it.
fn join_cgroup(cgroups: [Option<RawFd>; 2]) -> Result<()> {
    let mut joined = Ok(());
    for dir in cgroups.into_iter().flatten() {
        joined = cgroup::join(dir);
        if joined.is_ok() {
            break;
        }
    }
    joined
}

/// The first byte of what passes the gate.
pub(crate) const ORDERS_INLINE: u8 = 1;
/// The orders are in the first descriptor.
pub(crate) const ORDERS_IN_DESCRIPTOR: u8 = 2;

/// The gate. Comes back only with a failure; ends the process if the keeper is gone or does not need it.
fn pass_gate(ground: &Ground, gate: &mut RawFd) -> std::result::Result<(), Failure> {
    at(Stage::Request, hit("worker.gate", ground.serial))?;
    // Written now, so that the pages are there when the orders come.
    #[expect(clippy::large_stack_arrays, reason = "the heap is the shim's; this stack was made large enough")]
    let mut bytes = [1; MAX_MESSAGE];
    let Ok((length @ 1.., mut fds)) = sys::receive_blocking(ground.gate, &mut bytes) else { sys::exit(127) };
    at(Stage::Request, hit("worker.gate_passed", ground.serial))?;
    let mut orders = &bytes[1..length];
    if bytes[0] == ORDERS_IN_DESCRIPTOR && !fds.is_empty() {
        let read = at(Stage::Request, read_all(fds.remove(0)))?;
        orders = ground.large_orders.get_or_init(|| read);
    }
    match Orders::decode(orders) {
        Some(orders) if orders.targets.len() == fds.len() => {
            *gate = prepare(&orders, &fds, ground)?;
            Err(become_program(&orders, ground))
        }
        _ => Err((Stage::Request, Error::from_raw_os_error(sys::EPROTO))),
    }
}

fn read_all(fd: OwnedFd) -> Result<Vec<u8>> {
    use std::io::{Read, Seek};
    let mut file = std::fs::File::from(fd);
    file.rewind()?;
    let mut bytes = Vec::new();
    file.take(MAX_ORDERS as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Everything between the gate and the program but its limits. Gives back where the gate is now.
fn prepare(orders: &Orders<'_>, fds: &[OwnedFd], ground: &Ground) -> std::result::Result<RawFd, Failure> {
    at(Stage::Descriptors, hit("worker.descriptors", ground.serial))?;
    let gate = at(Stage::Descriptors, arrange(&orders.targets, fds, ground))?;
    if orders.foreground {
        // A background group that takes the terminal is stopped by SIGTTOU unless it ignores it, as the
        // keeper and all that it forks do.
        at(Stage::Terminal, sys::take_terminal(0))?;
    }
    for cwd in orders.cwd.iter() {
        at(Stage::Cwd, sys::change_dir(cwd))?;
    }
    if let Some(adj) = orders.oom_score_adj {
        let own = at(Stage::OomScore, std::fs::read(OOM_SCORE_ADJ))?;
        ground.oom_score.get_or_init(|| own);
        at(Stage::OomScore, std::fs::write(OOM_SCORE_ADJ, adj.to_string()))?;
    }
    Ok(gate)
}

/// Puts every descriptor where the worker shall find it. Everything else closes on exec.
fn arrange(targets: &[i32], fds: &[OwnedFd], ground: &Ground) -> Result<RawFd> {
    // First out of the way of all targets, so that no dup2 overwrites what is still to be moved.
    let above = targets.iter().copied().max().unwrap_or(2).max(2).saturating_add(1);
    let clear = |fd: RawFd| if fd >= above { Ok(fd) } else { sys::duplicate_above(fd, above) };
    let gate = clear(ground.gate)?;
    clear(ground.loan)?;
    let moved = fds.iter().map(|fd| clear(fd.as_raw_fd())).collect::<Result<Vec<_>>>()?;
    for (fd, target) in moved.iter().zip(targets) {
        sys::duplicate_to(*fd, *target)?;
    }
    Ok(gate)
}

/// Comes back only with a failure.
fn become_program(orders: &Orders<'_>, ground: &Ground) -> Failure {
    let Some(path) = orders.program.iter().next() else {
        return (Stage::Exec, Error::from_raw_os_error(sys::EPROTO));
    };
    let program = sys::Program::new(path, orders.argv.iter(), orders.envp.iter());
    // From here on nothing is allocated or opened: the limits are the worker's.
    if let Err(failure) = set_limits(orders, ground) {
        return failure;
    }
    restore_signals(ground.signals);
    let error = hit("worker.exec", ground.serial).err().unwrap_or_else(|| program.run());
    (Stage::Exec, error)
}

fn set_limits(orders: &Orders<'_>, ground: &Ground) -> std::result::Result<(), Failure> {
    // It was lowered by nobody but a keeper that could raise it.
    let _ = sys::set_rlimit(sys::RLIMIT_NOFILE, ground.nofile.0, ground.nofile.1);
    for (resource, soft, hard) in &orders.rlimits {
        at(Stage::Rlimit, sys::set_rlimit(*resource, *soft, *hard))?;
    }
    orders.nice.map_or(Ok(()), |nice| at(Stage::Nice, sys::set_nice(nice)))
}

/// The signals that the keeper, its shims and the processes at the gate ignore.
pub(crate) const KEEPER_IGNORES: [i32; 9] = [
    sys::SIGHUP,
    sys::SIGINT,
    sys::SIGQUIT,
    sys::SIGPIPE,
    sys::SIGTERM,
    sys::SIGTSTP,
    sys::SIGTTIN,
    sys::SIGTTOU,
    // A ledger that outgrows `ulimit -f` is an error of a write.
    sys::SIGXFSZ,
];

/// As the host was started, except that SIGPIPE is always at its default: a worker that inherits the
/// ignored SIGPIPE of a Rust host would loop for ever on a broken pipe.
fn restore_signals(signals: InheritedSignals) {
    // What came for the process at the gate was not meant for the program: an ignored signal is not pending.
    let pending = sys::pending_signals();
    for signal in (1..=64).filter(|signal| pending & sys::bit(*signal) != 0) {
        sys::ignore(signal);
        sys::restore_default(signal);
    }
    // The keeper has put all others to their defaults when it started.
    for signal in KEEPER_IGNORES {
        sys::restore_default(signal);
    }
    for signal in (1..=64).filter(|signal| signals.ignored & sys::bit(*signal) != 0) {
        if signal != sys::SIGPIPE {
            sys::ignore(signal);
        }
    }
    sys::set_blocked(signals.blocked);
}
