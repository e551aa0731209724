//! Which tiers are available on systems other than Linux: `group`, and why the others are not.

use crate::Tier;

/// The tier that `auto` selects.
pub(crate) const AUTO: Tier = Tier::Group;

/// Returns why processes have no identity that is never reused.
pub(crate) fn pidfs() -> Result<(), String> {
    Err("only Linux has pidfs: start times tell processes apart".to_owned())
}

/// Returns success: processes are held by their parent here, not by a descriptor.
#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux; all systems share the callers")]
pub(crate) fn pidfds() -> Result<(), String> {
    Ok(())
}

/// Returns whether a tier is available, or why not.
pub(crate) fn check(tier: Tier) -> Result<(), String> {
    match tier {
        Tier::Namespace => Err("only Linux has PID namespaces".to_owned()),
        Tier::Shim => Err("only Linux has subreapers and pidfds".to_owned()),
        Tier::Group => Ok(()),
    }
}
