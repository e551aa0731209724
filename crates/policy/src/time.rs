//! Arithmetic on times that cannot overflow.

use std::time::Duration;

use tokio::time::Instant;

/// The time `wait` after `start`. A wait as long as `Duration::MAX` is ten years: late, but no overflow.
pub fn after(start: Instant, wait: Duration) -> Instant {
    const LATEST: Duration = Duration::from_hours(24 * 365 * 10);
    start + wait.min(LATEST)
}
