//! Arithmetic on times that cannot overflow.

use std::time::Duration;

use tokio::time::Instant;

/// Returns the time `wait` after `start`. Waits longer than ten years are cut to ten years, so that `Duration::MAX`
/// does not overflow.
pub fn after(start: Instant, wait: Duration) -> Instant {
    const LATEST: Duration = Duration::from_hours(24 * 365 * 10);
    start + wait.min(LATEST)
}
