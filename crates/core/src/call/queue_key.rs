//! In which order calls that wait are served.

use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::Instant;

/// How much longer than another one a call must have waited to be served before it, for each step that its priority is lower.
///
/// Priorities that always win let the others starve for as long as the load lasts. So a priority is a head start: a key
/// never changes while its call waits, and ageing costs nothing.
const HEAD_START: Duration = Duration::from_secs(1);

/// What the times of keys count from.
pub(crate) static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The order in which queued calls are served: by when they came, less the head start of their priority.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct QueueKey {
    /// In nanoseconds; a call of priority 0 counts from when it came.
    since: i64,
    number: u64,
}

impl QueueKey {
    /// Calls that others wait for come before all: they free workers.
    const NESTED: i64 = i64::MIN;

    pub(crate) fn new(priority: i8, came: Instant, number: u64) -> Self {
        let came = came.saturating_duration_since(*BEGINNING).as_nanos();
        let head_start = i64::from(priority) * HEAD_START.as_nanos() as i64;
        Self { since: i64::try_from(came).unwrap_or(i64::MAX).saturating_sub(head_start), number }
    }

    pub(crate) fn nested(number: u64) -> Self {
        Self { since: Self::NESTED, number }
    }

    pub(crate) fn is_nested(self) -> bool {
        self.since == Self::NESTED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_is_a_head_start_of_a_second_for_each_step() {
        let now = Instant::now();
        let at = |seconds: u64| now + Duration::from_secs(seconds);
        let low = QueueKey::new(0, at(0), 1);
        assert!(QueueKey::new(1, at(0), 2) < low, "at the same time the higher one goes first");
        assert!(QueueKey::new(3, at(2), 3) < low);
        assert!(QueueKey::new(3, at(4), 4) > low, "it has waited for longer than the head start");
        assert!(QueueKey::new(0, at(0), 2) > low, "those that came together go by number");
        assert!(QueueKey::new(-128, at(0), 0) < QueueKey::new(127, at(256), 5));
        assert!(QueueKey::nested(9) < QueueKey::new(127, at(0), 0));
        assert!(QueueKey::nested(9).is_nested() && !low.is_nested());
    }
}
