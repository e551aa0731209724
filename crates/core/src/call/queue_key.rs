//! The order in which waiting calls are served.

use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::Instant;

/// The head start of a call over a call whose priority is one step lower.
///
/// If higher priorities always won, the other calls would starve for as long as the load lasts. A head start avoids
/// that: a key never changes while its call waits, and ageing costs nothing.
const HEAD_START: Duration = Duration::from_secs(1);

/// The time from which keys count.
pub(crate) static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The position of a call in the queue: when it came, minus the head start of its priority.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct QueueKey {
    /// Nanoseconds. For a call of priority 0, the time when it came.
    since: i64,
    number: u64,
}

impl QueueKey {
    /// Nested calls come before all others, because they free workers.
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
