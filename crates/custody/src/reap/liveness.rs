//! Decides whether a run is over, by its host, its lock, its boot and its PID namespace.

use std::io;

use crate::ledger::contents::LedgerContents;
use crate::process::identity;
use crate::process::pid_scope::PidScope;
use crate::state::LockState;

/// Whether a run is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunLife {
    /// The host is alive.
    Live,
    /// The host is dead.
    Dead,
    /// The run belongs to an earlier boot, so none of its processes can be alive.
    OtherBoot,
    /// The run belongs to another PID namespace and is alive there. It is left alone.
    OtherNamespace,
    /// The run belongs to another PID namespace, and no process holds its lock. Whether any of its processes are left
    /// can only be seen from that namespace, so the run is left alone.
    OtherNamespaceUnseen,
    /// The run belongs to another PID namespace, which is gone with all its processes.
    OtherNamespaceOver,
    /// The run cannot be judged: its records cannot be read, or they do not name its host while its lock is held. It is
    /// left alone.
    Unreadable,
}

/// Decides whether a run is over. An error means that some information could not be read, and decides nothing.
pub(crate) fn life(contents: &LedgerContents, lock: LockState, scope: PidScope) -> io::Result<RunLife> {
    let Some(any) = contents.any_record() else {
        // Without a record, nothing was started, or nothing is known.
        return Ok(if lock == LockState::Held { RunLife::Unreadable } else { RunLife::Dead });
    };
    if any.boot != scope.boot {
        // If the lock is held nevertheless, another machine shares the directory.
        return Ok(if lock == LockState::Held { RunLife::Unreadable } else { RunLife::OtherBoot });
    }
    if any.pidns != scope.pidns {
        return Ok(match lock {
            LockState::Held => RunLife::OtherNamespace,
            LockState::Free if scope.sees_all() && !identity::namespace_lives(any.pidns)? => {
                RunLife::OtherNamespaceOver
            }
            LockState::Free => RunLife::OtherNamespaceUnseen,
        });
    }
    Ok(match &contents.open {
        Some(open) if identity::host_lives(&open.main, lock)? => RunLife::Live,
        None if lock == LockState::Held => RunLife::Unreadable,
        Some(_) | None => RunLife::Dead,
    })
}
