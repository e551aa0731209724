//! A worker's birth: forked by the keeper, held at a gate until it is on record, then the program.
//!
//! The gate is a socket pair. The newborn waits for one byte and ends without it; what goes wrong afterwards it
//! tells through the gate, which exec closes. The keeper makes one birth at a time, so that no sibling inherits a
//! gate.

use std::io::{Error, Read, Result, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use crate::keeper::Ground;
use crate::numbers::{Limit, SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGXFSZ};
use crate::sys;
use crate::wire::{Orders, Stage};

pub(crate) type Failure = (Stage, Error);

fn at<T>(stage: Stage, result: Result<T>) -> std::result::Result<T, Failure> {
    result.map_err(|error| (stage, error))
}

/// A process that has its orders and waits for leave to follow them.
pub(crate) struct Newborn {
    pub(crate) pid: i32,
    gate: UnixStream,
}

impl Newborn {
    /// Forks; the copy goes to the gate and never comes back.
    pub(crate) fn fork(orders: &Orders<'_>, fds: &[OwnedFd], ground: &Ground) -> Result<Self> {
        let (gate, inside) = UnixStream::pair()?;
        let pid = sys::fork_self()?;
        if pid == 0 {
            // Otherwise it would hold its own gate open when the keeper is gone.
            drop(gate);
            wait_and_become(inside, orders, fds, ground);
        }
        Ok(Self { pid, gate })
    }

    /// Opens the gate; returns when the program runs, or says why it does not.
    pub(crate) fn let_pass(mut self) -> std::result::Result<(), Failure> {
        // Whoever was killed at the gate is seen to have ended like any other.
        let _ = self.gate.write_all(b"!");
        let mut word = [0; 5];
        if self.gate.read_exact(&mut word).is_err() {
            return Ok(());
        }
        let [stage, errno @ ..] = word;
        let stage = Stage::from_byte(stage).unwrap_or(Stage::Exec);
        Err((stage, Error::from_raw_os_error(i32::from_le_bytes(errno))))
    }

    /// Closes the gate for good and waits until the newborn has ended.
    pub(crate) fn dismiss(self) {
        drop(self.gate);
        sys::reap(self.pid);
    }
}

fn wait_and_become(mut gate: UnixStream, orders: &Orders<'_>, fds: &[OwnedFd], ground: &Ground) -> ! {
    // The keeper's bell is not for it.
    sys::restore_default(crate::numbers::SIGCHLD);
    let made = if ground.caller_session { sys::new_group() } else { sys::new_session() };
    if gate.read_exact(&mut [0]).is_err() {
        sys::exit(127);
    }
    let prepared = at(Stage::Session, made).and_then(|()| prepare(&mut gate, orders, fds));
    let (stage, error) = prepared.map_or_else(|failure| failure, |()| become_program(orders, ground));
    let [a, b, c, d] = sys::errno(&error).to_le_bytes();
    let _ = gate.write_all(&[stage as u8, a, b, c, d]);
    sys::exit(127)
}

/// Everything between the gate and the program but its limits.
fn prepare(gate: &mut UnixStream, orders: &Orders<'_>, fds: &[OwnedFd]) -> std::result::Result<(), Failure> {
    at(Stage::Descriptors, arrange(gate, &orders.targets, fds))?;
    if orders.foreground {
        // A background group that takes the terminal is stopped by SIGTTOU unless it ignores it, as the
        // keeper and all that it forks do.
        at(Stage::Terminal, sys::take_terminal())?;
    }
    for cwd in orders.cwd.iter() {
        at(Stage::Cwd, sys::change_dir(cwd))?;
    }
    Ok(())
}

fn set_limits(orders: &Orders<'_>, ground: &Ground) -> std::result::Result<(), Failure> {
    if let Some(limit) = ground.open_files {
        // The keeper has raised its own.
        let _ = sys::set_open_files(limit);
    }
    for (resource, soft, hard) in &orders.rlimits {
        at(Stage::Rlimit, sys::set_limit(*resource, Limit { soft: *soft, hard: *hard }))?;
    }
    orders.nice.map_or(Ok(()), |nice| at(Stage::Nice, sys::set_nice(nice)))
}

/// Puts every descriptor where the worker shall find it. Everything else closes on exec.
fn arrange(gate: &mut UnixStream, targets: &[i32], fds: &[OwnedFd]) -> Result<()> {
    // First out of the way of all targets, so that no dup2 overwrites what is still to be moved.
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

/// Comes back only with a failure.
fn become_program(orders: &Orders<'_>, ground: &Ground) -> Failure {
    let Some(path) = orders.program.iter().next() else { return (Stage::Exec, sys::not_understood()) };
    let program = sys::Program::new(path, orders.argv.iter(), orders.envp.iter());
    // From here on nothing is allocated or opened: the limits are the worker's.
    if let Err(failure) = set_limits(orders, ground) {
        return failure;
    }
    KEEPER_IGNORES.into_iter().for_each(sys::restore_default);
    for signal in (1..=64).filter(|signal| ground.ignored & (1 << (signal - 1)) != 0) {
        // A worker that inherits the ignored SIGPIPE of a Rust host would loop for ever on a broken pipe.
        if signal != SIGPIPE {
            sys::ignore(signal);
        }
    }
    sys::set_blocked(ground.blocked);
    (Stage::Exec, program.run())
}
