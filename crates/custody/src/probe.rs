//! What this machine offers: every answer is found by trying, and a no has its reason.

use std::path::PathBuf;

use crate::{Containment, Tier, cgroup, tiers, trial};

/// What works here.
#[derive(Clone, Debug)]
pub struct Probe {
    /// What a host gets that chooses nothing, or why it gets nothing.
    pub auto: Result<(), String>,
    /// Each tier, the strongest first, or why it cannot be had.
    pub tiers: Vec<(Tier, Result<(), String>)>,
    /// Where a cgroup with `cgroup.kill` can be made, or why not.
    pub cgroup: Result<PathBuf, String>,
    /// Whether processes have an identity that is never used again, or why not.
    pub pidfs: Result<(), String>,
    /// The kernel's release.
    pub kernel: String,
}

/// Tries everything. In each tier a program is started and ended, in a run with a temporary directory of its own: about a
/// tenth of a second for all of them. Listeners hear the events of these runs as of any other.
pub fn probe() -> Probe {
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let run = crate::RunId::new();
    let cgroup = cgroup::Cgroup::create(run, 0).map(|cgroup| {
        cgroup.remove();
        cgroup.path().parent().map_or_else(PathBuf::new, PathBuf::from)
    });
    let auto = trial::run(Containment::Auto);
    let tiers = Tier::ALL.map(|tier| (tier, trial::run(tier.into()))).to_vec();
    Probe { auto, tiers, cgroup, pidfs: tiers::pidfs(), kernel }
}
