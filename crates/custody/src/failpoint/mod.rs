//! Faults on demand in the library's checks of runs and processes: `step=errno:N` fails every check, `step@3=errno:N`
//! only the third.
//!
//! Owns the plan in `SNAKEPIT_FAILPOINTS`, which the keeper reads as well (`keeper/failpoint.rs`). It must not know the
//! purpose of a check. Without the feature `failpoints` this folder is one empty function.
//!
//! `plan` (the text) → `steps` (where the keeper can fail) → this file (where the library can fail).

#[cfg(feature = "failpoints")]
mod plan;
#[cfg(feature = "failpoints")]
mod steps;

#[cfg(feature = "failpoints")]
pub(crate) use active::{LOOKS, hit};
#[cfg(feature = "failpoints")]
pub(crate) use steps::STEPS;

#[cfg(not(feature = "failpoints"))]
#[expect(clippy::unnecessary_wraps, reason = "with the feature, it can fail")]
pub(crate) fn hit(_step: &str) -> std::io::Result<()> {
    Ok(())
}

#[cfg(feature = "failpoints")]
mod active {
    use std::io::{Error, Result};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::plan::PlannedFault;

    /// The name of every check that can be made to fail.
    pub(crate) const LOOKS: &[&str] = &[
        "look.run",
        "look.ledger",
        "look.lock",
        "look.pidfd",
        "look.pidfs",
        "look.no_pidfs",
        "look.stat",
        "look.users",
        "look.environment",
        "look.command_line",
        "look.processes",
        "look.cgroup",
    ];

    /// An error to inject into a check, and how many times the check has run so far.
    struct LookFault {
        planned: PlannedFault,
        errno: i32,
        seen: AtomicU64,
    }

    fn faults() -> &'static [LookFault] {
        static FAULTS: OnceLock<Vec<LookFault>> = OnceLock::new();
        FAULTS.get_or_init(|| {
            let plan = std::env::var("SNAKEPIT_FAILPOINTS").unwrap_or_default();
            let faults = PlannedFault::parse_all(&plan).into_iter();
            let fault = |planned: PlannedFault| {
                let errno = planned.errno()?;
                Some(LookFault { planned, errno, seen: AtomicU64::new(0) })
            };
            faults.filter_map(fault).collect()
        })
    }

    pub(crate) fn hit(step: &str) -> Result<()> {
        debug_assert!(LOOKS.contains(&step), "{step}");
        for fault in faults().iter().filter(|fault| fault.planned.step == step) {
            let seen = fault.seen.fetch_add(1, Ordering::Relaxed) + 1;
            if fault.planned.only.is_none_or(|only| only == seen) {
                return Err(Error::from_raw_os_error(fault.errno));
            }
        }
        Ok(())
    }
}
