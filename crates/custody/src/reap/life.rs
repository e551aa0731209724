//! Whether a run is over: by its host, its lock, its boot and its PID namespace.

use std::io;

use crate::ledger::contents::LedgerContents;
use crate::process::identity;
use crate::process::pid_scope::PidScope;
use crate::state::LockState;

/// Whether a run is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunLife {
    /// The host lives.
    Live,
    /// The host is dead.
    Dead,
    /// The run belongs to an earlier boot: none of its processes can be alive.
    OtherBoot,
    /// The run belongs to another PID namespace and lives there: it is left alone.
    OtherNamespace,
    /// The run belongs to another PID namespace, and nobody holds its lock. Only from there can be seen whether anybody is
    /// left: it is left alone.
    OtherNamespaceUnseen,
    /// The run belongs to another PID namespace, which is gone with all its processes.
    OtherNamespaceOver,
    /// The run cannot be judged: its records cannot be read, or do not name its host while its lock is held. It is left
    /// alone.
    Unreadable,
}

/// Decides whether a run is over. An error means that something could not be looked at, and decides nothing.
pub(crate) fn life(contents: &LedgerContents, lock: LockState, scope: PidScope) -> io::Result<RunLife> {
    let Some(any) = contents.any_record() else {
        // Without a record, nothing was started, or nothing can be said.
        return Ok(if lock == LockState::Held { RunLife::Unreadable } else { RunLife::Dead });
    };
    if any.boot != scope.boot {
        // If the lock is held all the same, another machine shares the directory.
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
