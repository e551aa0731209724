//! How many messages a run has in hand at a time.

use std::time::Duration;

use tokio::time::Instant;

/// How much work an adaptive run has in hand: what it handles in this time. A mailbox in a file does many messages in one sync, and a
/// worker has its next call at hand; and yet nobody else could have handled them much sooner.
const MOMENT: Duration = Duration::from_millis(25);
/// Of a lease no more than this part passes before what is in hand is begun.
const OF_LEASE: u32 = 10;
/// How often the rate is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// An adaptive run never handles more at the same time.
const MOST: usize = 512;

/// How many messages a loop handles at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Concurrency {
    /// So many.
    Fixed(usize),
    /// At least so many, and if handling them takes next to no time, more.
    AtLeast(usize),
}

impl Concurrency {
    fn least(self) -> usize {
        match self {
            Self::Fixed(messages) | Self::AtLeast(messages) => messages.max(1),
        }
    }
}

/// How many messages may be handled at the same time, and how many more may be in hand.
#[derive(Debug)]
pub(super) struct Window {
    concurrency: Concurrency,
    least_prefetch: usize,
    moment: Duration,
    handling: usize,
    prefetch: usize,
    looked_at: Instant,
    handled: u64,
}

impl Window {
    /// `handled`: how many messages the loop has handled before.
    pub(super) fn new(concurrency: Concurrency, prefetch: usize, visibility: Duration, handled: u64) -> Self {
        Self {
            concurrency,
            least_prefetch: prefetch,
            moment: MOMENT.min(visibility / OF_LEASE),
            handling: concurrency.least(),
            prefetch,
            looked_at: Instant::now(),
            handled,
        }
    }

    /// How many may be handled at the same time.
    pub(super) fn handling(&self) -> usize {
        self.handling
    }

    /// How many may be in hand.
    pub(super) fn all(&self) -> usize {
        self.handling + self.prefetch
    }

    /// Goes by how many messages were handled since it looked last; says whether it has changed.
    pub(super) fn look(&mut self, handled: u64) -> bool {
        let Concurrency::AtLeast(_) = self.concurrency else { return false };
        let (took, some) = (self.looked_at.elapsed(), handled - self.handled);
        // A few that ended by chance at the same time say nothing of the rate.
        if took < LOOK || (took < self.moment && some < self.handling as u64) {
            return false;
        }
        let wanted = in_a_moment(some, took, self.moment);
        self.handled = handled;
        self.looked_at = Instant::now();
        let before = self.handling;
        // It grows as fast as it finds that there is more to gain, and takes one slow look for chance.
        self.handling = if wanted > before { wanted.min(2 * before) } else { before - (before - wanted) / 4 };
        self.handling = self.handling.clamp(self.concurrency.least(), MOST.max(self.concurrency.least()));
        let is_more = self.handling > self.concurrency.least();
        self.prefetch =
            if is_more { self.least_prefetch.max(self.handling / 3) } else { self.least_prefetch };
        self.handling != before
    }
}

/// How many messages are handled in a moment, if so many were in this time.
#[expect(clippy::cast_precision_loss, reason = "counts of messages")]
fn in_a_moment(handled: u64, took: Duration, moment: Duration) -> usize {
    (handled as f64 * moment.as_secs_f64() / took.as_secs_f64()).ceil() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_mins(5);

    /// A mailbox that is never empty, and a pool that serves so many messages a second.
    #[expect(clippy::cast_precision_loss, reason = "counts of messages")]
    async fn after_a_second(window: &mut Window, rate: f64) -> (usize, usize) {
        let mut handled = window.handled as f64;
        for _ in 0..200 {
            tokio::time::advance(LOOK).await;
            handled += rate * LOOK.as_secs_f64();
            window.look(handled as u64);
        }
        (window.handling(), window.all())
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_has_as_much_in_hand_as_it_handles_in_a_moment() {
        let mut window = Window::new(Concurrency::AtLeast(4), 0, LEASE, 0);
        assert_eq!(after_a_second(&mut window, 2.0).await, (4, 4), "slow ones are not kept from others");
        let (handling, all) = after_a_second(&mut window, 8_000.0).await;
        assert!((190..=220).contains(&handling) && all > handling, "{handling} of {all}");
        let (handling, _) = after_a_second(&mut window, 1_000_000.0).await;
        assert_eq!(handling, MOST);
        assert_eq!(after_a_second(&mut window, 2.0).await, (4, 4), "it is small again");
    }

    #[tokio::test(start_paused = true)]
    async fn short_leases_and_a_number_that_was_asked_for_are_kept_to() {
        let mut short = Window::new(Concurrency::AtLeast(4), 0, Duration::from_millis(50), 0);
        let (handling, _) = after_a_second(&mut short, 8_000.0).await;
        assert!((36..=48).contains(&handling), "{handling}");
        let mut fixed = Window::new(Concurrency::Fixed(3), 5, LEASE, 0);
        assert_eq!(after_a_second(&mut fixed, 8_000.0).await, (3, 8));
    }
}
