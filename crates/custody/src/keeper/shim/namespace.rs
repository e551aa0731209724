//! The namespaces of the tier `namespace`: cloned, entered, and tried beforehand.

use std::io::{Error, Result};

use crate::sys::{self, Cloned};
use crate::wire::{SpawnStage, WireTier};

use crate::keeper::StageError;

/// Returns the flags with which a shim of this tier is cloned.
pub(crate) fn clone_flags(tier: WireTier, user_namespace: bool) -> u64 {
    match tier {
        WireTier::Namespace if user_namespace => sys::CLONE_NEWPID | sys::CLONE_NEWNS | sys::CLONE_NEWUSER,
        WireTier::Namespace => sys::CLONE_NEWPID | sys::CLONE_NEWNS,
        WireTier::Shim | WireTier::Group => 0,
    }
}

/// Maps the user and mounts `/proc` in the new namespaces.
pub(super) fn enter_namespace(
    user_namespace: bool,
    (user, group): (u32, u32),
) -> std::result::Result<(), StageError> {
    if user_namespace {
        let map = || -> Result<()> {
            std::fs::write("/proc/self/setgroups", "deny")?;
            std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
            std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
        };
        map().map_err(|error| (SpawnStage::UserMap, error))?;
    }
    let mount = || -> Result<()> {
        sys::mount_at(c"none", c"/", c"none", sys::MS_REC | sys::MS_SLAVE)?;
        sys::mount_at(c"proc", c"/proc", c"proc", sys::MS_NOSUID | sys::MS_NODEV | sys::MS_NOEXEC)
    };
    mount().map_err(|error| (SpawnStage::MountProc, error))
}

/// Tries what the tier `namespace` needs. Returns 0 if it works, 100 if it works with a user namespace, and otherwise
/// 1, with the reasons on stdout.
pub(crate) fn probe_namespace() -> i32 {
    let user = sys::user_and_group();
    let mut outcome = 1;
    for user_namespace in [false, true] {
        let flags = clone_flags(WireTier::Namespace, user_namespace);
        let failed = |stage: SpawnStage, error: &Error| {
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
            Err(error) => failed(SpawnStage::CloneShim, &error),
        }
        if outcome == 0 {
            // Tells the caller which of the two variants works.
            return i32::from(user_namespace) * 100;
        }
    }
    1
}
