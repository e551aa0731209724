//! What every verb that answers signals must know about them.

use nix::sys::signal::{SigSet, Signal};

/// The signals that whoever started us had set to be ignored.
pub(crate) fn ignored_at_start() -> SigSet {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    Signal::iterator().filter(|signal| mask & (1 << (*signal as i32 - 1)) != 0).collect()
}
