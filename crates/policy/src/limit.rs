//! How many calls a worker should have at a time, found by measuring latency.
//!
//! As long as a worker keeps up, one more call does not slow the others down. Beyond that point each call waits for the
//! others, and nothing is gained. The *base* is the latency of a call with few others beside it. With `L` calls in
//! flight, the worker works on `L × base / latency` of them, and the rest wait inside the worker. This is the measure
//! of TCP Vegas. The step is that of Netflix's gradient limit: halfway towards `L × base / latency + allowance`.
//!
//! The base is the hard part. The lowest latency ever seen is wrong once calls become slower for other reasons. A base
//! that is measured at the limit contains the very wait that it should reveal, so the limit would climb forever. So the
//! limit is halved now and then for a moment, and the base is measured at half the limit, as BBR does for its
//! round-trip time. Times with few calls in flight give the same measurement for free. Means are compared, not minima:
//! the mean of a mix of short and long commands is comparable, while its minimum is that of the short ones alone. A
//! difference that may be chance counts as none.

use std::time::Duration;

use tokio::time::Instant;

/// The fewest calls of a measurement. A measurement takes [`ROUNDS`] times the limit if that is more.
const FEWEST_SAMPLES: usize = 48;
const ROUNDS: usize = 6;

/// The calls that may wait inside the worker, so that it never runs dry and the limit can rise: one, plus a tenth of
/// the limit.
const ALLOWANCE: (f64, f64) = (1.0, 0.1);

/// The smallest gradient: one measurement at most halves the limit.
const STEEPEST: f64 = 0.5;

/// The share of the way to its result that one measurement moves the limit.
const STEP: f64 = 0.5;

/// The factor by which a call that timed out shrinks the limit.
const BACK_OFF: f64 = 0.8;

/// The base is measured again after this time and this many measurements, whichever comes later. A few calls in a
/// hundred then run at half the limit.
const PROBE_EVERY: Duration = Duration::from_secs(10);
const PROBE_AFTER_MEASUREMENTS: u32 = 24;

/// The relative difference up to which a new base counts as noise and is averaged with the old one. A larger difference
/// means that something has changed.
const SAME_BASE: f64 = 0.25;

/// The number of standard errors up to which a difference may be chance.
const CHANCE: f64 = 1.5;

/// How a timed call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LatencyOutcome {
    /// The call was answered.
    Answered,
    /// The call timed out while the worker had it, perhaps because the worker had too many calls.
    TimedOut,
}

/// Finds how many calls a worker should have at a time.
#[derive(Debug)]
pub struct AdaptiveLimit {
    min: usize,
    max: usize,
    limit: f64,
    /// The latency of a call with few others beside it.
    base: Option<LatencyMean>,
    full: LatencySamples,
    light: LatencySamples,
    probing: bool,
    probed: Option<Instant>,
    measurements: u32,
    backed_off: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct LatencySamples {
    count: usize,
    sum: f64,
    squares: f64,
}

/// A mean and its uncertainty.
#[derive(Clone, Copy, Debug)]
struct LatencyMean {
    seconds: f64,
    doubt: f64,
}

impl LatencySamples {
    fn add(&mut self, seconds: f64) {
        self.count += 1;
        self.sum += seconds;
        self.squares += seconds * seconds;
    }

    /// Returns the mean once there are `enough` samples, and starts over.
    fn take_mean(&mut self, enough: usize) -> Option<LatencyMean> {
        if self.count < enough {
            return None;
        }
        let full = std::mem::take(self);
        let count = full.count as f64;
        let seconds = full.sum / count;
        Some(LatencyMean { seconds, doubt: (full.squares / count - seconds * seconds).max(0.0) / count })
    }
}

impl AdaptiveLimit {
    /// Returns a limit that stays between `min` and `max` calls and begins with `min`.
    pub fn new(min: usize, max: usize) -> Self {
        let min = min.max(1);
        Self {
            min,
            max: max.max(min),
            limit: min as f64,
            base: None,
            full: LatencySamples::default(),
            light: LatencySamples::default(),
            probing: false,
            probed: None,
            measurements: 0,
            backed_off: false,
        }
    }

    /// Returns how many calls the worker should have now.
    pub fn limit(&self) -> usize {
        if self.probing { self.half() } else { self.whole() }
    }

    fn whole(&self) -> usize {
        (self.limit as usize).clamp(self.min, self.max)
    }

    fn half(&self) -> usize {
        self.whole().div_ceil(2)
    }

    /// Records the end of a call. `in_flight` is the number of calls that the worker had, including this one, when it
    /// got this call or when the call ended, whichever is larger. (The first call of a burst starts alone, but is not
    /// served alone.)
    pub fn sample(&mut self, latency: Duration, in_flight: usize, outcome: LatencyOutcome, now: Instant) {
        if outcome == LatencyOutcome::TimedOut {
            return self.back_off();
        }
        let seconds = latency.as_secs_f64();
        if in_flight <= self.half() {
            // Few calls ran beside it, by chance or because the limit is being probed.
            self.light.add(seconds);
            if let Some(mean) = self.light.take_mean(FEWEST_SAMPLES.max(ROUNDS * self.half())) {
                self.rebase(mean, now);
            }
        }
        // A call far below the limit says nothing about the limit, and neither does a call that began before a probe.
        if !self.probing && in_flight * 2 > self.whole() {
            self.full.add(seconds);
            if let Some(mean) = self.full.take_mean(FEWEST_SAMPLES.max(ROUNDS * self.whole())) {
                self.measured(mean, now);
            }
        }
    }

    fn rebase(&mut self, mean: LatencyMean, now: Instant) {
        let base = match self.base {
            Some(old) if (mean.seconds / old.seconds - 1.0).abs() <= SAME_BASE => LatencyMean {
                seconds: f64::midpoint(old.seconds, mean.seconds),
                doubt: f64::midpoint(old.doubt, mean.doubt) / 2.0,
            },
            _ => mean,
        };
        self.base = Some(base);
        self.probing = false;
        self.probed = Some(now);
        self.measurements = 0;
    }

    fn measured(&mut self, mean: LatencyMean, now: Instant) {
        self.backed_off = false;
        self.measurements += 1;
        let base = *self.base.get_or_insert(mean);
        let surely = mean.seconds - CHANCE * (mean.doubt + base.doubt).sqrt();
        let gradient = (base.seconds / surely.max(f64::MIN_POSITIVE)).clamp(STEEPEST, 1.0);
        let aim = self.limit * gradient + ALLOWANCE.0 + ALLOWANCE.1 * self.limit;
        self.limit += STEP * (aim - self.limit);
        self.limit = self.limit.clamp(self.min as f64, self.max as f64);
        let probed = *self.probed.get_or_insert(now);
        let long_ago = now.saturating_duration_since(probed) >= PROBE_EVERY;
        if long_ago && self.measurements >= PROBE_AFTER_MEASUREMENTS {
            self.probing = true;
            (self.full, self.light) = Default::default();
        }
    }

    /// Shrinks the limit, but only once per measurement, because calls often time out together.
    fn back_off(&mut self) {
        if !self.backed_off {
            self.backed_off = true;
            self.limit = (self.limit * BACK_OFF).max(self.min as f64);
            self.full = LatencySamples::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn calls_far_below_the_limit_do_not_raise_it() {
        let mut limit = AdaptiveLimit::new(8, 64);
        let now = Instant::now();
        (0..10_000).for_each(|_| limit.sample(MS, 2, LatencyOutcome::Answered, now));
        assert_eq!(limit.limit(), 8);
    }

    #[test]
    fn the_limit_stays_within_its_bounds_whatever_is_measured() {
        let mut limit = AdaptiveLimit::new(2, 6);
        let now = Instant::now();
        for round in 0..10_000_u32 {
            let latency = if round % 7 == 0 { Duration::ZERO } else { MS * (round % 1000) };
            let outcome = if round % 97 == 0 { LatencyOutcome::TimedOut } else { LatencyOutcome::Answered };
            limit.sample(latency, limit.limit(), outcome, now + MS * round);
            assert!((1..=6).contains(&limit.limit()));
        }
        assert_eq!(AdaptiveLimit::new(0, 0).limit(), 1);
    }

    #[test]
    fn many_calls_that_time_out_together_count_once() {
        let mut limit = AdaptiveLimit::new(1, 64);
        let now = Instant::now();
        while limit.limit() < 40 {
            limit.sample(MS, limit.limit(), LatencyOutcome::Answered, now);
        }
        (0..40).for_each(|_| limit.sample(100 * MS, 40, LatencyOutcome::TimedOut, now));
        assert!((32..=34).contains(&limit.limit()), "{}", limit.limit());
    }
}
