//! The start of a worker: forked by the keeper, held at a gate until it is on record, then the program.
//!
//! The gate is a socket pair. The forked process waits for one byte and ends without it; later failures are reported through
//! the gate, which exec closes. The keeper starts one worker at a time, so that no sibling inherits a gate.

use std::io::{Error, Read, Result, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use crate::exec::ExecProgram;
use crate::keeper::LaunchContext;
use crate::numbers::{
    ResourceLimit, SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGXFSZ,
};
use crate::sys;
use crate::wire::{LaunchOrders, SpawnStage};

pub(crate) type StageError = (SpawnStage, Error);

fn at<T>(stage: SpawnStage, result: Result<T>) -> std::result::Result<T, StageError> {
    result.map_err(|error| (stage, error))
}

/// A process that has its orders and waits at the gate.
pub(crate) struct GatedProcess {
    pub(crate) pid: i32,
    gate: UnixStream,
}

impl GatedProcess {
    /// Forks; the copy waits at the gate and never returns.
    pub(crate) fn fork(orders: &LaunchOrders<'_>, fds: &[OwnedFd], context: &LaunchContext) -> Result<Self> {
        let (gate, inside) = UnixStream::pair()?;
        let pid = sys::fork_self()?;
        if pid == 0 {
            // Otherwise the copy would hold its own gate open when the keeper is gone.
            drop(gate);
            wait_and_become(inside, orders, fds, context);
        }
        Ok(Self { pid, gate })
    }

    /// Opens the gate; returns when the program runs, or says why it does not.
    pub(crate) fn open_gate(mut self) -> std::result::Result<(), StageError> {
        // A process that was killed at the gate is reaped like any other.
        let _ = self.gate.write_all(b"!");
        let mut word = [0; 5];
        if self.gate.read_exact(&mut word).is_err() {
            return Ok(());
        }
        let [stage, errno @ ..] = word;
        let stage = SpawnStage::from_byte(stage).unwrap_or(SpawnStage::Exec);
        Err((stage, Error::from_raw_os_error(i32::from_le_bytes(errno))))
    }

    /// Closes the gate for good and waits for the end of the process.
    pub(crate) fn discard(self) {
        drop(self.gate);
        sys::reap(self.pid);
    }
}

fn wait_and_become(
    mut gate: UnixStream,
    orders: &LaunchOrders<'_>,
    fds: &[OwnedFd],
    context: &LaunchContext,
) -> ! {
    // The keeper's handler for SIGCHLD is not for the worker.
    sys::restore_default(crate::numbers::SIGCHLD);
    let made = if context.caller_session { sys::new_group() } else { sys::new_session() };
    if gate.read_exact(&mut [0]).is_err() {
        sys::exit(127);
    }
    let prepared = at(SpawnStage::Session, made).and_then(|()| prepare(&mut gate, orders, fds));
    let (stage, error) = prepared.map_or_else(|failure| failure, |()| become_program(orders, context));
    let [a, b, c, d] = sys::errno(&error).to_le_bytes();
    let _ = gate.write_all(&[stage as u8, a, b, c, d]);
    sys::exit(127)
}

/// Everything between the gate and the program except its limits.
fn prepare(
    gate: &mut UnixStream,
    orders: &LaunchOrders<'_>,
    fds: &[OwnedFd],
) -> std::result::Result<(), StageError> {
    at(SpawnStage::Descriptors, arrange(gate, &orders.targets, fds))?;
    if orders.foreground {
        // SIGTTOU stops a background group that takes the terminal unless it ignores the signal, as the keeper and all its
        // forks do.
        at(SpawnStage::Terminal, sys::take_terminal())?;
    }
    for cwd in orders.cwd.iter() {
        at(SpawnStage::Cwd, sys::change_dir(cwd))?;
    }
    Ok(())
}

fn set_limits(orders: &LaunchOrders<'_>, context: &LaunchContext) -> std::result::Result<(), StageError> {
    if let Some(limit) = context.open_files {
        // The keeper has raised its own.
        let _ = sys::set_open_files(limit);
    }
    for (resource, soft, hard) in &orders.rlimits {
        at(SpawnStage::Rlimit, sys::set_limit(*resource, ResourceLimit { soft: *soft, hard: *hard }))?;
    }
    orders.nice.map_or(Ok(()), |nice| at(SpawnStage::Nice, sys::set_nice(nice)))
}

/// Puts every descriptor where the worker expects it. Everything else closes on exec.
fn arrange(gate: &mut UnixStream, targets: &[i32], fds: &[OwnedFd]) -> Result<()> {
    // First move all descriptors above the targets, so that no dup2 overwrites one that is still needed.
    let above = targets.iter().copied().max().unwrap_or(2).max(2).saturating_add(1);
    let clear = |fd: RawFd| sys::duplicate_above(fd, above);
    // SAFETY: the copy was made just now and belongs to nobody else.
    *gate = unsafe { UnixStream::from_raw_fd(clear(gate.as_raw_fd())?) };
    let moved = fds.iter().map(|fd| clear(fd.as_raw_fd())).collect::<Result<Vec<_>>>()?;
    for (fd, target) in moved.iter().zip(targets) {
        sys::duplicate_to(*fd, *target)?;
    }
    Ok(())
}

/// The signals that the keeper ignores. A worker does not, unless its host was started so.
pub(crate) const KEEPER_IGNORES: [i32; 9] =
    [SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGXFSZ];

/// Returns only with a failure.
fn become_program(orders: &LaunchOrders<'_>, context: &LaunchContext) -> StageError {
    let Some(path) = orders.program.iter().next() else { return (SpawnStage::Exec, sys::not_understood()) };
    let program = ExecProgram::new(path, orders.argv.iter(), orders.envp.iter());
    // From here on, nothing is allocated or opened: the worker's limits apply.
    if let Err(failure) = set_limits(orders, context) {
        return failure;
    }
    KEEPER_IGNORES.into_iter().for_each(sys::restore_default);
    for signal in (1..=64).filter(|signal| context.ignored & (1 << (signal - 1)) != 0) {
        // A worker that inherits the ignored SIGPIPE of a Rust host would loop for ever on a broken pipe.
        if signal != SIGPIPE {
            sys::ignore(signal);
        }
    }
    sys::set_blocked(context.blocked);
    (SpawnStage::Exec, program.run())
}
