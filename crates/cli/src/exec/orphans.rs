//! Reaps the orphans that the kernel gives to the first process of a container.

use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
use snakepit::custody::Run;

/// Reports whether the kernel gives orphans to this process.
pub(super) fn are_ours() -> bool {
    std::process::id() == 1
}

/// Reaps every dead child except the keeper, which custody waits for.
pub(super) fn reap(run: &Run) {
    // Looks before it reaps, because waiting for any child could take the keeper's status away from custody.
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while let Ok(dead) = waitid(Id::All, look)
        && let Some(pid) = dead.pid()
        && run.keeper_pid().is_none_or(|keeper| keeper.as_raw() != pid.as_raw())
        && waitpid(pid, Some(WaitPidFlag::WNOHANG)).is_ok()
    {}
}
