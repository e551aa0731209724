//! An estimate of how long a command takes. It decides how much work a worker is sent in advance.
//!
//! A slow call raises the estimate fast, and quick ones lower it slowly, so a command that is sometimes slow is treated as
//! slow. Times that include waiting for the host or for a core hardly raise it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How much work a worker may be sent beyond what it can do at once. More work hides the latency of the socket better,
/// but a call that turns out to be slow delays the calls behind it.
const AHEAD: Duration = Duration::from_micros(500);

/// Inputs of a map that take no longer are quick.
pub(crate) const QUICK_INPUT: Duration = Duration::from_micros(60);

/// The part of a chunk's work that counts when it is decided whether the chunk may wait at a worker. A chunk of quick
/// inputs is 2 ms of work, and one that is sent ahead delays hardly more than its map.
pub(crate) const CHUNK_SHARE: u32 = 8;

/// The largest number of calls that a worker may hold.
pub(crate) const MAX_HELD: usize = 128;

const MICROSECOND: u32 = 1000;

/// The time that a command takes, in nanoseconds. `u32::MAX` means four seconds or more, or unknown.
#[derive(Debug)]
pub(crate) struct ServiceEstimate(AtomicU32);

impl Default for ServiceEstimate {
    fn default() -> Self {
        Self(AtomicU32::new(u32::MAX))
    }
}

/// What a measured time says about a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Certainty {
    /// The time of one call.
    One,
    /// The average time of calls that were answered together.
    Mean,
    /// An upper bound of the time of a call. For part of it, the worker may have waited for the host.
    AtMost,
}

impl ServiceEstimate {
    pub(crate) fn learn(&self, sample: Duration, certainty: Certainty) {
        let sample = u32::try_from(sample.as_nanos()).unwrap_or(u32::MAX);
        let known = self.0.load(Ordering::Relaxed);
        let next = if known == u32::MAX {
            sample
        } else if sample > known {
            let known = known.max(MICROSECOND);
            match certainty {
                // The sample includes the time until a busy host noticed the answer, so one sample raises the estimate
                // at most eightfold.
                Certainty::One => sample.min(known.saturating_mul(8)),
                // A worker that was waiting for a core answers several calls together, and a slow call is answered
                // alone. So the mean of several answers raises the estimate by at most an eighth.
                Certainty::Mean => sample.min(known.saturating_add(known / 8)),
                Certainty::AtMost => return,
            }
        } else {
            // The estimate falls by an eighth of the difference. Lost updates do no harm.
            known - (known - sample) / 8
        };
        // All threads read the estimate, so it is not written for next to nothing.
        if next.abs_diff(known) > known / 128 {
            self.0.store(next, Ordering::Relaxed);
        }
    }

    pub(crate) fn nanos(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Reports whether the command is known to take hardly any time.
    pub(crate) fn is_quick(&self) -> bool {
        u128::from(self.nanos()) <= QUICK_INPUT.as_nanos()
    }

    /// Returns how many inputs make up about this much work. Returns 1 while the estimate is unknown.
    pub(crate) fn fits_into(&self, time: Duration) -> usize {
        match self.nanos() {
            u32::MAX => 1,
            nanos => (time.as_nanos() / u128::from(nanos.max(1))).clamp(1, 4096) as usize,
        }
    }
}

/// Reports whether a worker that holds `held` nanoseconds of work may be sent `more` nanoseconds in advance.
pub(crate) fn may_wait_at_worker(held: u64, more: u32) -> bool {
    more != u32::MAX && u128::from(held + u64::from(more)) <= AHEAD.as_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_is_never_sent_ahead() {
        assert!(!may_wait_at_worker(0, ServiceEstimate::default().nanos()));
    }

    #[test]
    fn the_estimate_rises_eightfold_at_a_time_and_fades_slowly() {
        let estimate = ServiceEstimate::default();
        estimate.learn(Duration::from_micros(10), Certainty::One);
        assert_eq!(estimate.nanos(), 10_000, "the first sample is believed");
        estimate.learn(Duration::from_millis(10), Certainty::One);
        assert_eq!(estimate.nanos(), 80_000, "a host that was busy may be the cause");
        (0..3).for_each(|_| estimate.learn(Duration::from_millis(10), Certainty::One));
        assert_eq!(estimate.nanos(), 10_000_000);
        (0..8).for_each(|_| estimate.learn(Duration::from_micros(10), Certainty::One));
        assert!(estimate.nanos() > 3_000_000);
        (0..80).for_each(|_| estimate.learn(Duration::from_micros(10), Certainty::One));
        assert!(estimate.nanos() < 20_000);
    }

    #[test]
    fn calls_that_were_answered_together_hardly_raise_the_estimate() {
        let estimate = ServiceEstimate::default();
        estimate.learn(Duration::from_micros(8), Certainty::One);
        estimate.learn(Duration::from_millis(3), Certainty::AtMost);
        assert_eq!(estimate.nanos(), 8_000, "the worker may have waited");
        estimate.learn(Duration::from_millis(3), Certainty::Mean);
        assert_eq!(estimate.nanos(), 9_000, "the worker may have had no core");
        (0..40).for_each(|_| estimate.learn(Duration::from_millis(3), Certainty::Mean));
        assert!(estimate.nanos() > 500_000, "it is slow indeed");
        (0..60).for_each(|_| estimate.learn(Duration::from_micros(8), Certainty::AtMost));
        assert!(estimate.nanos() < 9_000);
    }

    #[test]
    fn two_chunks_of_quick_inputs_may_wait_at_a_worker_and_three_may_not() {
        let estimate = ServiceEstimate::default();
        assert!(!estimate.is_quick(), "nothing is known");
        estimate.learn(Duration::from_micros(40), Certainty::One);
        assert!(estimate.is_quick());
        let chunk = Duration::from_millis(2).as_nanos() as u32 / CHUNK_SHARE;
        assert!(may_wait_at_worker(u64::from(chunk), chunk));
        assert!(!may_wait_at_worker(2 * u64::from(chunk), chunk));
    }

    #[test]
    fn hours_are_not_short() {
        let estimate = ServiceEstimate::default();
        estimate.learn(Duration::from_hours(1), Certainty::One);
        assert!(!may_wait_at_worker(0, estimate.nanos()));
        assert_eq!(estimate.fits_into(Duration::from_millis(2)), 1);
    }
}
