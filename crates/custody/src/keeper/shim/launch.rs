//! From clone to exec: the process that waits at the gate until it gets its orders.
//!
//! The process is created ahead of need, so a spawn needs no fork. It borrows its shim's memory, so nothing is copied.
//! It has no orders, and so no program to run, until the keeper has recorded it. It reports failures through the gate.

use std::cell::OnceCell;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::failpoint::hit;
use crate::keeper::StageError;
use crate::kill::cgroup;
use crate::sys;
use crate::wire::{LaunchOrders, MAX_MESSAGE, MAX_ORDERS, MessageWriter, SpawnStage};

use super::messages::FromShim;
use super::start::send_to_keeper;

/// The signals that the host ignored and blocked at its start. A worker gets the same ones.
#[derive(Clone, Copy)]
pub(crate) struct InheritedSignals {
    pub(crate) ignored: u64,
    pub(crate) blocked: u64,
}

/// What the process at the gate needs besides its orders.
pub(crate) struct LaunchContext {
    /// The serial number of its shim, for failpoints.
    pub(crate) serial: u64,
    pub(crate) signals: InheritedSignals,
    pub(crate) caller_session: bool,
    /// The host's limits. The keeper raises its own.
    pub(crate) nofile: (u64, u64),
    /// The shim's pid as the worker sees it.
    pub(crate) shim: i32,
    /// The shim's socket to the keeper.
    pub(crate) socket: RawFd,
    pub(crate) gate: RawFd,
    /// Closed by exec or by the end of this process, and not before. The close tells the shim that its memory is no
    /// longer borrowed.
    pub(crate) loan: RawFd,
    /// The cgroups of the worker and of the run, if they exist. The process joins the first one that accepts it.
    pub(crate) cgroups: [Option<RawFd>; 2],
    /// Orders too large for a packet. They are kept here, so the shim frees them when its memory is no longer borrowed.
    pub(crate) large_orders: OnceCell<Vec<u8>>,
    /// The `oom_score_adj` of the shim, if the worker gets another one. The kernel keeps one value per memory, so the
    /// shim has to restore its own.
    pub(crate) oom_score: OnceCell<Vec<u8>>,
}

pub(crate) const OOM_SCORE_ADJ: &str = "/proc/self/oom_score_adj";

fn at<T>(stage: SpawnStage, result: Result<T>) -> std::result::Result<T, StageError> {
    result.map_err(|error| (stage, error))
}

/// Waits for orders and runs the program. Never returns: the program runs, or the process ends.
pub(crate) fn wait_and_launch(context: &LaunchContext) -> ! {
    let mut gate = context.gate;
    let failure = prepare_at_gate(context).and_then(|()| pass_gate(context, &mut gate)).err();
    if let Some((stage, error)) = failure {
        let mut message = MessageWriter::default();
        message.u8(stage as u8).i32(sys::errno(&error));
        let _ = sys::send(gate, &message.0, &[]);
    }
    sys::exit(127)
}

/// Binds the process to its shim, creates its group, and reports it to the keeper.
fn prepare_at_gate(context: &LaunchContext) -> std::result::Result<(), StageError> {
    at(SpawnStage::ShimSetup, sys::die_with_parent())?;
    if sys::parent_pid() != context.shim {
        // The shim died before the line above took effect.
        sys::exit(127);
    }
    at(SpawnStage::ShimSetup, hit("worker.start", context.serial))?;
    let made = if context.caller_session { sys::new_group() } else { sys::new_session() };
    at(SpawnStage::Session, made)?;
    at(SpawnStage::Cgroup, join_cgroup(context.cgroups))?;
    at(SpawnStage::ShimSetup, hit("worker.born", context.serial))?;
    let pidfd = at(SpawnStage::Identity, sys::pidfd_open(sys::pid()))?;
    at(SpawnStage::ShimSetup, send_to_keeper(context.socket, &FromShim::AtGate, &[pidfd.as_raw_fd()]))
}

/// Joins the first cgroup that accepts the process.
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

/// The first byte of a packet that passes the gate, if the orders follow in the packet.
pub(crate) const ORDERS_INLINE: u8 = 1;
/// The first byte if the orders are in the first descriptor.
pub(crate) const ORDERS_IN_DESCRIPTOR: u8 = 2;

/// Waits at the gate and becomes the program. Returns only if something fails. Ends the process if the keeper is gone
/// or does not need it.
fn pass_gate(context: &LaunchContext, gate: &mut RawFd) -> std::result::Result<(), StageError> {
    at(SpawnStage::Request, hit("worker.gate", context.serial))?;
    // Writing now makes the pages exist before the orders come.
    #[expect(clippy::large_stack_arrays, reason = "the heap belongs to the shim; this stack is large enough")]
    let mut bytes = [1; MAX_MESSAGE];
    let Ok((length @ 1.., mut fds)) = sys::receive_blocking(context.gate, &mut bytes) else { sys::exit(127) };
    at(SpawnStage::Request, hit("worker.gate_passed", context.serial))?;
    let mut orders = &bytes[1..length];
    if bytes[0] == ORDERS_IN_DESCRIPTOR && !fds.is_empty() {
        let read = at(SpawnStage::Request, read_all(fds.remove(0)))?;
        orders = context.large_orders.get_or_init(|| read);
    }
    match LaunchOrders::decode(orders) {
        Some(orders) if orders.targets.len() == fds.len() => {
            *gate = prepare(&orders, &fds, context)?;
            Err(become_program(&orders, context))
        }
        _ => Err((SpawnStage::Request, Error::from_raw_os_error(sys::EPROTO))),
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

/// Does everything between the gate and the program except setting limits. Returns the gate's new descriptor.
fn prepare(
    orders: &LaunchOrders<'_>,
    fds: &[OwnedFd],
    context: &LaunchContext,
) -> std::result::Result<RawFd, StageError> {
    at(SpawnStage::Descriptors, hit("worker.descriptors", context.serial))?;
    let gate = at(SpawnStage::Descriptors, arrange(&orders.targets, fds, context))?;
    if orders.foreground {
        // SIGTTOU stops a background group that takes the terminal, unless the group ignores the signal. The keeper and
        // all its forks ignore it.
        at(SpawnStage::Terminal, sys::take_terminal(0))?;
    }
    for cwd in orders.cwd.iter() {
        at(SpawnStage::Cwd, sys::change_dir(cwd))?;
    }
    if let Some(adj) = orders.oom_score_adj {
        let own = at(SpawnStage::OomScore, std::fs::read(OOM_SCORE_ADJ))?;
        context.oom_score.get_or_init(|| own);
        at(SpawnStage::OomScore, std::fs::write(OOM_SCORE_ADJ, adj.to_string()))?;
    }
    Ok(gate)
}

/// Puts every descriptor where the worker expects it. All other descriptors close on exec.
fn arrange(targets: &[i32], fds: &[OwnedFd], context: &LaunchContext) -> Result<RawFd> {
    // First move all descriptors above the targets, so that no dup2 overwrites one that is still needed.
    let above = targets.iter().copied().max().unwrap_or(2).max(2).saturating_add(1);
    let clear = |fd: RawFd| if fd >= above { Ok(fd) } else { sys::duplicate_above(fd, above) };
    let gate = clear(context.gate)?;
    clear(context.loan)?;
    let moved = fds.iter().map(|fd| clear(fd.as_raw_fd())).collect::<Result<Vec<_>>>()?;
    for (fd, target) in moved.iter().zip(targets) {
        sys::duplicate_to(*fd, *target)?;
    }
    Ok(gate)
}

/// Runs the program. Returns only if something fails.
fn become_program(orders: &LaunchOrders<'_>, context: &LaunchContext) -> StageError {
    let Some(path) = orders.program.iter().next() else {
        return (SpawnStage::Exec, Error::from_raw_os_error(sys::EPROTO));
    };
    let program = sys::ExecProgram::new(path, orders.argv.iter(), orders.envp.iter());
    // From here on, nothing is allocated or opened: the worker's limits apply.
    if let Err(failure) = set_limits(orders, context) {
        return failure;
    }
    restore_signals(context.signals);
    let error = hit("worker.exec", context.serial).err().unwrap_or_else(|| program.run());
    (SpawnStage::Exec, error)
}

fn set_limits(orders: &LaunchOrders<'_>, context: &LaunchContext) -> std::result::Result<(), StageError> {
    // The keeper raised the limit, so this call cannot fail for lack of privileges.
    let _ = sys::set_rlimit(sys::RLIMIT_NOFILE, context.nofile.0, context.nofile.1);
    for (resource, soft, hard) in &orders.rlimits {
        at(SpawnStage::Rlimit, sys::set_rlimit(*resource, *soft, *hard))?;
    }
    orders.nice.map_or(Ok(()), |nice| at(SpawnStage::Nice, sys::set_nice(nice)))
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
    // Without this signal, a write that makes the ledger outgrow `ulimit -f` returns an error.
    sys::SIGXFSZ,
];

/// Restores the signal dispositions that the host was started with, except SIGPIPE, which always gets its default. A
/// worker that inherits the ignored SIGPIPE of a Rust host would loop forever on a broken pipe.
fn restore_signals(signals: InheritedSignals) {
    // Signals for the process at the gate are not meant for the program. Ignoring a signal discards it.
    let pending = sys::pending_signals();
    for signal in (1..=64).filter(|signal| pending & sys::bit(*signal) != 0) {
        sys::ignore(signal);
        sys::restore_default(signal);
    }
    // The keeper reset all other signals when it started.
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
