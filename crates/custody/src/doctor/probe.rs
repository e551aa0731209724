//! The answers of `snakepit doctor`.

use std::path::PathBuf;

use crate::process::cgroup;
use crate::{Containment, Tier};

use super::{tiers, trial};

/// What this machine offers.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Whether `Containment::Auto` works, or why not.
    pub auto: Result<(), String>,
    /// Whether each tier works, the strongest first, or why not.
    pub tiers: Vec<(Tier, Result<(), String>)>,
    /// Where a cgroup with `cgroup.kill` can be created, or why not.
    pub cgroup: Result<PathBuf, String>,
    /// Whether processes have an identity that is never reused, or why not.
    pub pidfs: Result<(), String>,
    /// The kernel's release.
    pub kernel: String,
}

/// Tries everything. Each tier starts and ends a program in a run with a temporary directory of its own, which takes about a
/// tenth of a second for all. Listeners get the events of these runs as of any other.
///
/// ```no_run
/// for (tier, works) in snakepit_custody::probe().tiers {
///     println!("{tier}: {}", works.err().unwrap_or_else(|| "yes".to_owned()));
/// }
/// ```
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
