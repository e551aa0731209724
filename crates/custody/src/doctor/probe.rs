//! The answers of `snakepit doctor`.

use std::path::PathBuf;

use crate::process::cgroup;
use crate::{Containment, Tier};

use super::{tiers, trial};

/// Whether a tier works on this machine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TierProbe {
    /// The tier.
    pub tier: Tier,
    /// `Ok` if it works, or the reason why not.
    pub works: Result<(), String>,
}

/// The features that this machine supports.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Probe {
    /// `Ok` if `Containment::Auto` works, or the reason why not.
    pub auto: Result<(), String>,
    /// Each tier, the strongest first.
    pub tiers: Vec<TierProbe>,
    /// The directory in which a cgroup with `cgroup.kill` can be created, or the reason why there is none.
    pub cgroup: Result<PathBuf, String>,
    /// `Ok` if processes have an identity that is never reused, or the reason why not.
    pub pidfs: Result<(), String>,
    /// The release of the kernel.
    pub kernel: String,
}

/// Tries every feature. Each tier starts and ends a program in a run with its own temporary directory. All trials
/// together take about a tenth of a second. Listeners receive the events of these runs like those of any other run.
///
/// ```no_run
/// for found in snakepit_custody::probe().tiers {
///     println!("{}: {}", found.tier, found.works.err().unwrap_or_else(|| "yes".to_owned()));
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
    let tiers = Tier::ALL.map(|tier| TierProbe { tier, works: trial::run(tier.into()) }).to_vec();
    Probe { auto, tiers, cgroup, pidfs: tiers::pidfs(), kernel }
}
