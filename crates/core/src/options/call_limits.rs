//! The settings that every call needs: how long it may take, and how large it may be.
//!
//! A reload may change the settings at any time, so they are behind an atomic pointer, which is not free to read: three
//! reads were 3 % of what a small call costs its host. So the settings that every call needs are copied here as plain
//! numbers. Each number is consistent by itself. A call that is made during a reload may see some old and some new
//! numbers.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::PoolOptions;

/// The settings that every call needs, as plain numbers.
#[derive(Debug, Default)]
pub(crate) struct CallLimits {
    call_timeout: AtomicDuration,
    stream_timeout: AtomicDuration,
    queue_timeout: AtomicDuration,
    max_frame: AtomicUsize,
}

/// A duration in nanoseconds. The longest one, six hundred years, stands for everything longer.
#[derive(Debug, Default)]
struct AtomicDuration(AtomicU64);

impl AtomicDuration {
    fn set(&self, time: Duration) {
        self.0.store(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

impl CallLimits {
    pub(crate) fn of(config: &PoolOptions) -> Self {
        let limits = Self::default();
        limits.adopt(config);
        limits
    }

    /// Adopts new settings.
    pub(crate) fn adopt(&self, config: &PoolOptions) {
        self.call_timeout.set(config.call_timeout);
        self.stream_timeout.set(config.stream_timeout);
        self.queue_timeout.set(config.queue_timeout);
        self.max_frame.store(config.max_frame, Ordering::Relaxed);
    }

    pub(crate) fn call_timeout(&self) -> Duration {
        self.call_timeout.get()
    }

    pub(crate) fn stream_timeout(&self) -> Duration {
        self.stream_timeout.get()
    }

    pub(crate) fn queue_timeout(&self) -> Duration {
        self.queue_timeout.get()
    }

    pub(crate) fn max_frame(&self) -> usize {
        self.max_frame.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::testing::NoWorkers;

    #[test]
    fn call_limits_follow_the_settings_and_change_at_once() {
        let pool = || PoolOptions::new("worker", NoWorkers);
        let limits =
            CallLimits::of(&pool().call_timeout(Duration::MAX).queue_timeout(Duration::from_millis(1500)));
        assert!(limits.call_timeout() > Duration::from_hours(24 * 365 * 100));
        assert_eq!(limits.queue_timeout(), Duration::from_millis(1500));
        limits.adopt(&pool().call_timeout(Duration::from_nanos(7)).max_frame(1 << 20));
        assert_eq!((limits.call_timeout(), limits.max_frame()), (Duration::from_nanos(7), 1 << 20));
        assert_eq!(limits.queue_timeout(), pool().queue_timeout, "nobody has set it");
    }
}
