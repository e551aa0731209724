//! Which tiers are available on systems other than Linux: `group`, and why not the others.

use crate::Tier;

/// What `auto` means.
pub(crate) const AUTO: Tier = Tier::Group;

/// Whether processes have an identity that is never reused, or why not.
pub(crate) fn pidfs() -> Result<(), String> {
    Err("only Linux has pidfs: start times tell processes apart".to_owned())
}

/// Processes are held by their parent here, never by a descriptor.
#[expect(clippy::unnecessary_wraps, reason = "on Linux it can fail, and callers are the same")]
pub(crate) fn pidfds() -> Result<(), String> {
    Ok(())
}

/// Whether a tier is available, or why not.
pub(crate) fn check(tier: Tier) -> Result<(), String> {
    match tier {
        Tier::Namespace => Err("only Linux has PID namespaces".to_owned()),
        Tier::Shim => Err("only Linux has subreapers and pidfds".to_owned()),
        Tier::Group => Ok(()),
    }
}
