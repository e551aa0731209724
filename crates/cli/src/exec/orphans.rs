//! The duty of a container's first process: to bury the orphans that the kernel hands to it.

use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
use snakepit::custody::Run;

/// Whether the kernel gives us the orphans of others.
pub(super) fn are_ours() -> bool {
    std::process::id() == 1
}

/// Buries every dead child that is not the keeper, which custody waits for by itself.
pub(super) fn bury(run: &Run) {
    // First only a look: to wait for just anybody would take the keeper's status away from custody.
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while let Ok(dead) = waitid(Id::All, look)
        && let Some(pid) = dead.pid()
        && run.keeper_pid().is_none_or(|keeper| keeper.as_raw() != pid.as_raw())
        && waitpid(pid, Some(WaitPidFlag::WNOHANG)).is_ok()
    {}
}
