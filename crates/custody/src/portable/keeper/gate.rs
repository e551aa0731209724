//! The start of a worker: the keeper forks a process, holds it at a gate until it is recorded, then lets it run the
//! program.
//!
//! The gate is a socket pair. The forked process waits for one byte, and ends if the byte does not come. It reports
//! later failures through the gate, which exec closes. The keeper starts one worker at a time, so no sibling inherits a
//! gate.

use std::io::{Error, Read, Result, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use crate::keeper::LaunchContext;
use crate::libc_abi::{
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
    /// Forks. The copy waits at the gate and never returns.
    pub(crate) fn fork(orders: &LaunchOrders<'_>, fds: &[OwnedFd], context: &LaunchContext) -> Result<Self> {
        let (gate, inside) = UnixStream::pair()?;
        let pid = sys::fork_self()?;
        if pid == 0 {
            // Otherwise the copy would hold its own gate open after the end of the keeper.
            drop(gate);
            wait_and_become(inside, orders, fds, context);
        }
        Ok(Self { pid, gate })
    }

    /// Opens the gate. Returns once the program runs, or returns the reason why it does not run.
    pub(crate) fn open_gate(mut self) -> std::result::Result<(), StageError> {
        // A process that was killed at the gate is reaped like any other process.
        let _ = self.gate.write_all(b"!");
        let mut word = [0; 5];
        if self.gate.read_exact(&mut word).is_err() {
            return Ok(());
        }
        let [stage, errno @ ..] = word;
        let stage = SpawnStage::from_byte(stage).unwrap_or(SpawnStage::Exec);
        Err((stage, Error::from_raw_os_error(i32::from_le_bytes(errno))))
    }

    /// Closes the gate without opening it, and waits for the end of the process.
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
    // The keeper's handler for SIGCHLD must not stay in the worker.
    sys::restore_default(crate::libc_abi::SIGCHLD);
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

/// Does everything between the gate and the program except setting limits.
fn prepare(
    gate: &mut UnixStream,
    orders: &LaunchOrders<'_>,
    fds: &[OwnedFd],
) -> std::result::Result<(), StageError> {
    at(SpawnStage::Descriptors, arrange(gate, &orders.targets, fds))?;
    if orders.foreground {
        // SIGTTOU stops a background group that takes the terminal, unless the group ignores the signal. The keeper and
        // all its forks ignore it.
        at(SpawnStage::Terminal, sys::take_terminal())?;
    }
    for cwd in orders.cwd.iter() {
        at(SpawnStage::Cwd, sys::change_dir(cwd))?;
    }
    Ok(())
}

fn set_limits(orders: &LaunchOrders<'_>, context: &LaunchContext) -> std::result::Result<(), StageError> {
    if let Some(limit) = context.open_files {
        // The keeper has raised its own limit.
        let _ = sys::set_open_files(limit);
    }
    for (resource, soft, hard) in &orders.rlimits {
        at(SpawnStage::Rlimit, sys::set_limit(*resource, ResourceLimit { soft: *soft, hard: *hard }))?;
    }
    orders.nice.map_or(Ok(()), |nice| at(SpawnStage::Nice, sys::set_nice(nice)))
}

/// Puts every descriptor where the worker expects it. All other descriptors close on exec.
fn arrange(gate: &mut UnixStream, targets: &[i32], fds: &[OwnedFd]) -> Result<()> {
    // First move all descriptors above the targets, so that no dup2 overwrites one that is still needed.
    let above = targets.iter().copied().max().unwrap_or(2).max(2).saturating_add(1);
    let clear = |fd: RawFd| sys::duplicate_above(fd, above);
    // SAFETY: the copy was just made and has no other owner.
    *gate = unsafe { UnixStream::from_raw_fd(clear(gate.as_raw_fd())?) };
    let moved = fds.iter().map(|fd| clear(fd.as_raw_fd())).collect::<Result<Vec<_>>>()?;
    for (fd, target) in moved.iter().zip(targets) {
        sys::duplicate_to(*fd, *target)?;
    }
    Ok(())
}

/// The signals that the keeper ignores. A worker ignores only those that its host ignored at its start.
pub(crate) const KEEPER_IGNORES: [i32; 9] =
    [SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGXFSZ];

/// Runs the program. Returns only if something fails.
fn become_program(orders: &LaunchOrders<'_>, context: &LaunchContext) -> StageError {
    let Some(path) = orders.program.iter().next() else { return (SpawnStage::Exec, sys::not_understood()) };
    let program = sys::ExecProgram::new(path, orders.argv.iter(), orders.envp.iter());
    // From here on, nothing is allocated or opened: the worker's limits apply.
    if let Err(failure) = set_limits(orders, context) {
        return failure;
    }
    KEEPER_IGNORES.into_iter().for_each(sys::restore_default);
    for signal in (1..=64).filter(|signal| context.ignored & (1 << (signal - 1)) != 0) {
        // A worker that inherits the ignored SIGPIPE of a Rust host would loop forever on a broken pipe.
        if signal != SIGPIPE {
            sys::ignore(signal);
        }
    }
    sys::set_blocked(context.blocked);
    (SpawnStage::Exec, program.run())
}
