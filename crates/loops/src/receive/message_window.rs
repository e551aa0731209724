//! How many messages a run has at a time.

use std::time::Duration;

use tokio::time::Instant;

/// The time that an adaptive run plans ahead: it has as many messages as it handles in this time. That is enough for a
/// mailbox in a file to sync many messages at once, and for a worker to get its next call at once, but other loops
/// could not have handled the messages much sooner.
const HORIZON: Duration = Duration::from_millis(25);
/// The horizon is at most this fraction of a lease.
const HORIZONS_PER_LEASE: u32 = 10;
/// The period at which the rate is measured.
const MEASURE_EVERY: Duration = Duration::from_millis(5);
/// The most messages that an adaptive run handles at the same time.
const MAX_HANDLING: usize = 512;
/// The factor by which one measurement may grow a window at most.
const GROWTH: usize = 2;
/// The fraction of the surplus by which a window shrinks, because one slow measurement may be chance.
const SHRINK_PART: usize = 4;
/// The fraction of the messages in handling that an adaptive run prefetches in addition.
const PREFETCH_PART: usize = 3;

/// The number of messages that a loop handles at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Concurrency {
    /// Exactly this many.
    Fixed(usize),
    /// At least this many, and more if handling takes almost no time.
    AtLeast(usize),
}

impl Concurrency {
    fn least(self) -> usize {
        match self {
            Self::Fixed(messages) | Self::AtLeast(messages) => messages.max(1),
        }
    }
}

/// The number of messages that may be handled at the same time, and the number that may be prefetched.
#[derive(Debug)]
pub(super) struct MessageWindow {
    concurrency: Concurrency,
    least_prefetch: usize,
    horizon: Duration,
    handling: usize,
    prefetch: usize,
    measured_at: Instant,
    handled: u64,
}

impl MessageWindow {
    /// Returns a window. `handled` is the number of messages that the loop has handled before.
    pub(super) fn new(concurrency: Concurrency, prefetch: usize, visibility: Duration, handled: u64) -> Self {
        Self {
            concurrency,
            least_prefetch: prefetch,
            horizon: HORIZON.min(visibility / HORIZONS_PER_LEASE),
            handling: concurrency.least(),
            prefetch,
            measured_at: Instant::now(),
            handled,
        }
    }

    /// Returns how many messages may be handled at the same time.
    pub(super) fn handling(&self) -> usize {
        self.handling
    }

    /// Returns how many messages the run may have in total.
    pub(super) fn all(&self) -> usize {
        self.handling + self.prefetch
    }

    /// Adapts the window to the number of messages handled since the last measurement. Reports whether it changed.
    pub(super) fn adapt(&mut self, handled: u64) -> bool {
        let Concurrency::AtLeast(_) = self.concurrency else { return false };
        let (took, some) = (self.measured_at.elapsed(), handled - self.handled);
        // A few messages that happen to end together say nothing about the rate.
        if took < MEASURE_EVERY || (took < self.horizon && some < self.handling as u64) {
            return false;
        }
        let wanted = in_horizon(some, took, self.horizon);
        self.handled = handled;
        self.measured_at = Instant::now();
        let (before, least) = (self.handling, self.concurrency.least());
        let next = if wanted > before {
            wanted.min(GROWTH * before)
        } else {
            before - (before - wanted) / SHRINK_PART
        };
        self.handling = next.clamp(least, MAX_HANDLING.max(least));
        let adaptive = if self.handling > least { self.handling / PREFETCH_PART } else { 0 };
        self.prefetch = self.least_prefetch.max(adaptive);
        self.handling != before
    }
}

/// Returns how many messages are handled within the horizon, at the rate of `handled` messages in `took`.
#[expect(clippy::cast_precision_loss, reason = "counts of messages")]
fn in_horizon(handled: u64, took: Duration, horizon: Duration) -> usize {
    (handled as f64 * horizon.as_secs_f64() / took.as_secs_f64()).ceil() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_mins(5);

    /// Simulates a mailbox that is never empty and a pool that serves `rate` messages a second.
    #[expect(clippy::cast_precision_loss, reason = "counts of messages")]
    async fn after_a_second(window: &mut MessageWindow, rate: f64) -> (usize, usize) {
        let mut handled = window.handled as f64;
        for _ in 0..200 {
            tokio::time::advance(MEASURE_EVERY).await;
            handled += rate * MEASURE_EVERY.as_secs_f64();
            window.adapt(handled as u64);
        }
        (window.handling(), window.all())
    }

    #[tokio::test(start_paused = true)]
    async fn an_adaptive_run_has_as_many_messages_as_it_handles_within_the_horizon() {
        let mut window = MessageWindow::new(Concurrency::AtLeast(4), 0, LEASE, 0);
        assert_eq!(after_a_second(&mut window, 2.0).await, (4, 4), "slow messages are left to other loops");
        let (handling, all) = after_a_second(&mut window, 8_000.0).await;
        assert!((190..=220).contains(&handling) && all > handling, "{handling} of {all}");
        let (handling, _) = after_a_second(&mut window, 1_000_000.0).await;
        assert_eq!(handling, MAX_HANDLING);
        assert_eq!(after_a_second(&mut window, 2.0).await, (4, 4), "the window is small again");
    }

    #[tokio::test(start_paused = true)]
    async fn short_leases_and_a_fixed_concurrency_bound_the_window() {
        let mut short = MessageWindow::new(Concurrency::AtLeast(4), 0, Duration::from_millis(50), 0);
        let (handling, _) = after_a_second(&mut short, 8_000.0).await;
        assert!((36..=48).contains(&handling), "{handling}");
        let mut fixed = MessageWindow::new(Concurrency::Fixed(3), 5, LEASE, 0);
        assert_eq!(after_a_second(&mut fixed, 8_000.0).await, (3, 8));
    }
}
