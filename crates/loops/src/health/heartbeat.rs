//! The time of a loop's last sign of life. A handler reports progress of its message with [`Beats`](crate::Beats).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Returns the real time, whatever clock the runtime has. A watchdog has no runtime, and a runtime that is blocked has no
/// time.
#[expect(clippy::disallowed_methods, reason = "threads without a runtime compare these times")]
pub(crate) fn real_now() -> Instant {
    Instant::now()
}

/// The last sign of life, in real time whatever clock the runtime has, because a watchdog has no runtime.
#[derive(Debug)]
pub struct Heartbeat {
    start: Instant,
    last: AtomicU64,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self { start: real_now(), last: AtomicU64::new(0) }
    }
}

impl Heartbeat {
    /// Records a sign of life.
    pub fn beat(&self) {
        self.beat_at(real_now());
    }

    /// Records a sign of life at this time.
    pub(crate) fn beat_at(&self, time: Instant) {
        let time = u64::try_from(time.saturating_duration_since(self.start).as_nanos()).unwrap_or(u64::MAX);
        self.last.fetch_max(time, Ordering::Relaxed);
    }

    /// Returns how long ago the last beat was.
    pub fn age(&self) -> Duration {
        self.start.elapsed().saturating_sub(Duration::from_nanos(self.last.load(Ordering::Relaxed)))
    }
}
