//! What this machine offers: every answer is found by trying, and a no has its reason.

use std::path::PathBuf;

use crate::{Tier, cgroup, tiers};

/// What works here.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Each tier, the strongest first, or why it cannot be had.
    pub tiers: Vec<(Tier, Result<(), String>)>,
    /// Where a cgroup with `cgroup.kill` can be made, or why not.
    pub cgroup: Result<PathBuf, String>,
    /// Whether processes have an identity that is never used again, or why not.
    pub pidfs: Result<(), String>,
    /// The kernel's release.
    pub kernel: String,
}

/// Tries everything.
pub fn probe() -> Probe {
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let run = crate::RunId::new();
    let cgroup = cgroup::Cgroup::create(run, 0).map(|cgroup| {
        cgroup.remove();
        cgroup.path().parent().map_or_else(PathBuf::new, PathBuf::from)
    });
    let tiers = Tier::ALL.map(|tier| (tier, tiers::check(tier))).to_vec();
    Probe { tiers, cgroup, pidfs: tiers::pidfs(), kernel }
}
