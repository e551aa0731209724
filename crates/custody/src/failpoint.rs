//! Faults on demand where the library looks at runs and processes: `step=errno:N`, `step@3=errno:N` for the third look.
//!
//! From `SNAKEPIT_FAILPOINTS`, which the keeper reads, too. Without the feature `failpoints` this file is one empty
//! function.

#[cfg(not(feature = "failpoints"))]
#[expect(clippy::unnecessary_wraps, reason = "with the feature, it can fail")]
pub(crate) fn hit(_step: &str) -> std::io::Result<()> {
    Ok(())
}

#[cfg(feature = "failpoints")]
pub(crate) use active::{LOOKS, hit};

#[cfg(feature = "failpoints")]
mod active {
    use std::io::{Error, Result};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Every place at which a look can be made to fail.
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

    struct Fault {
        step: String,
        only: Option<u64>,
        errno: i32,
        seen: AtomicU64,
    }

    fn faults() -> &'static [Fault] {
        static FAULTS: OnceLock<Vec<Fault>> = OnceLock::new();
        FAULTS.get_or_init(|| {
            let text = std::env::var("SNAKEPIT_FAILPOINTS").unwrap_or_default();
            text.split(';').filter_map(parse).collect()
        })
    }

    fn parse(fault: &str) -> Option<Fault> {
        let (at, action) = fault.split_once('=')?;
        let (step, only) = match at.split_once('@') {
            Some((step, only)) => (step, Some(only.parse().ok()?)),
            None => (at, None),
        };
        let errno = action.strip_prefix("errno:")?.parse().ok()?;
        Some(Fault { step: step.to_owned(), only, errno, seen: AtomicU64::new(0) })
    }

    pub(crate) fn hit(step: &str) -> Result<()> {
        debug_assert!(LOOKS.contains(&step), "{step}");
        for fault in faults().iter().filter(|fault| fault.step == step) {
            let seen = fault.seen.fetch_add(1, Ordering::Relaxed) + 1;
            if fault.only.is_none_or(|only| only == seen) {
                return Err(Error::from_raw_os_error(fault.errno));
            }
        }
        Ok(())
    }
}
