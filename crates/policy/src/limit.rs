//! How many calls a worker should have at a time, found by watching what latency does.
//!
//! While a worker keeps up, one call more costs the others nothing; past that point each call waits for the others and
//! nothing is gained. The time of a call with few beside it is the *base*; with the limit `L` in flight it is `latency`, so
//! `L × base / latency` calls are worked on and the rest wait inside the worker. That is the measure of Vegas, and the step
//! is that of Netflix's gradient limit: `L × base / latency + allowance`, halfway.
//!
//! The base is the hard part. The lowest latency ever seen is a lie once calls have become slower for their own reasons, and
//! one that is measured at the limit contains the wait that it should show, so that the limit climbs forever. So now and then
//! the limit is halved for a moment and the base is measured there, as BBR does for its round-trip time. Times when few
//! calls are in flight by themselves do the same for free. Means are compared, not minima: a mix of short and long
//! commands has a mean that can be compared, and a minimum that belongs to the short ones alone. A difference that chance
//! alone may make is none.

use std::time::Duration;

use tokio::time::Instant;

/// A measurement takes so many calls, or [`ROUNDS`] times the limit if that is more.
const FEWEST_SAMPLES: usize = 48;
const ROUNDS: usize = 6;

/// Calls that may wait inside the worker, so that it never runs dry and the limit can rise: one and a tenth of the limit.
const ALLOWANCE: (f64, f64) = (1.0, 0.1);

/// One measurement can at most halve the limit.
const STEEPEST: f64 = 0.5;

/// How far one measurement moves the limit towards its result.
const STEP: f64 = 0.5;

/// A call that timed out shrinks the limit to this share of it.
const BACK_OFF: f64 = 0.8;

/// The base is measured again after so long and so many measurements, whichever comes later: that is a few calls in
/// a hundred at half the limit.
const PROBE_EVERY: Duration = Duration::from_secs(10);
const PROBE_AFTER_MEASUREMENTS: u32 = 24;

/// A new base within this share of the old one is noise, and averaged; outside of it something has changed.
const SAME_BASE: f64 = 0.25;

/// A difference of so many standard errors may be chance.
const CHANCE: f64 = 1.5;

/// How a call that was timed ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LatencyOutcome {
    /// It was answered.
    Answered,
    /// Its time was up while the worker had it: perhaps the worker had too many calls.
    TimedOut,
}

/// Finds out how many calls a worker should have at a time.
#[derive(Debug)]
pub struct AdaptiveLimit {
    min: usize,
    max: usize,
    limit: f64,
    /// What a call takes with few beside it.
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

/// A mean, and how far off it may be by chance: the square of its standard error.
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

    /// The mean, once there are `enough` samples; then the count starts over.
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
    /// Between so many calls and so many; begins with the fewest.
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

    /// How many calls the worker should have at a time, now.
    pub fn limit(&self) -> usize {
        if self.probing { self.half() } else { self.whole() }
    }

    fn whole(&self) -> usize {
        (self.limit as usize).clamp(self.min, self.max)
    }

    fn half(&self) -> usize {
        self.whole().div_ceil(2)
    }

    /// A call has ended. `in_flight` is how many calls the worker had when it was given this one, or now if those are more;
    /// this one included. (The first call of a burst begins alone, but it is not served alone.)
    pub fn sample(&mut self, latency: Duration, in_flight: usize, outcome: LatencyOutcome, now: Instant) {
        if outcome == LatencyOutcome::TimedOut {
            return self.back_off();
        }
        let seconds = latency.as_secs_f64();
        if in_flight <= self.half() {
            // Few calls were beside it: by chance, or because the limit is being probed.
            self.light.add(seconds);
            if let Some(mean) = self.light.take_mean(FEWEST_SAMPLES.max(ROUNDS * self.half())) {
                self.rebase(mean, now);
            }
        }
        // A call far below the limit says nothing about it, and neither does one that began before a probe.
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

    /// Once per measurement: calls that time out do so together.
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
    fn it_stays_within_its_bounds_whatever_is_measured() {
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
