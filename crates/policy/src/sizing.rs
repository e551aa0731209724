//! How many workers a pool should have: more before calls fail, fewer once workers have idled long enough.
//!
//! The sizer keeps two questions apart. The queue decides *whether* to grow: its head has waited too long. The load
//! decides *by how much*: the calls that arrive per second, times the cost of a call, is the number of workers that are
//! kept busy. So a burst of short calls, which is a long queue but little work, does not start a worker for each call.
//!
//! The size stays calm because growing needs both a wait and a lack of workers, and shrinking needs
//! [`Sizing::idle_ttl`] without either. The wide range of loads in between changes nothing.

use std::time::Duration;

use tokio::time::Instant;

#[cfg(feature = "config")]
use snakepit_settings::HumanTime;
use snakepit_settings::settings;

/// The time for which arrivals are remembered, roughly. It is short, so that a sudden rise shows at once.
const MEMORY_OF_ARRIVALS: Duration = Duration::from_millis(250);

/// The time for which the cost of a call is remembered, roughly.
const MEMORY_OF_COSTS: Duration = Duration::from_secs(5);

/// The share of the time that workers are planned to be busy. Above it, chance alone builds queues.
const UTILIZATION: f64 = 0.75;

/// The time in which the pool should work off its queue.
const CATCH_UP: Duration = Duration::from_secs(1);

/// The share of the surplus workers that a pool ends at a time, so that a mistake stays small.
const SHRINK_SHARE: f64 = 0.25;

/// The number of times that a pool may shrink within [`Sizing::idle_ttl`].
const SHRINKS_PER_TTL: u32 = 8;

settings! {
    /// How the size of a pool follows its load.
    ///
    /// The size stays between `min_workers` and `max_workers`. The pool grows when the first queued call has waited for
    /// [`grow_after`](Self::grow_after), long before anything times out. It shrinks by workers that have idled for
    /// [`idle_ttl`](Self::idle_ttl).
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use snakepit::policy::Sizing;
    ///
    /// let sizing = Sizing::between(1, 8).grow_after(Duration::from_millis(20)).idle_ttl(Duration::from_mins(5));
    /// assert_eq!((sizing.min_workers, sizing.max_workers), (1, 8));
    /// ```
    #[derive(Clone, Copy, PartialEq, Debug)]
    #[must_use]
    pub struct Sizing {
        /// The fewest workers of a pool whose size follows the load. Example: `min_workers = 1`.
        @manual min_workers: usize = 1,
        /// The most workers, in place of `workers`. The size then follows the load. Unset: the size is fixed. Example:
        /// `max_workers = 8`.
        @manual max_workers: usize = 1,
        /// How long the first queued call waits before the pool grows. Example: `grow_after = "50ms"`.
        grow_after: Duration as HumanTime = Duration::from_millis(50),
        /// The largest factor by which one decision may multiply the number of workers, at least 1.1. Example:
        /// `grow_factor = 2.0`.
        grow_factor: f64 = 2.0,
    }
    also {
        /// How long a worker beyond `min_workers` may idle.
        idle_ttl: Duration = Duration::from_mins(1),
    }
}

impl Sizing {
    /// Returns a sizing between these numbers of workers. If `max_workers` is below `min_workers`, `min_workers`
    /// applies.
    pub fn between(min_workers: usize, max_workers: usize) -> Self {
        Self { min_workers, max_workers: max_workers.max(min_workers).max(1), ..Self::default() }
    }

    /// Returns a sizing with a fixed number of workers.
    pub fn fixed(workers: usize) -> Self {
        Self { min_workers: workers, max_workers: workers, ..Self::default() }
    }

    /// Sets how long a worker beyond `min_workers` may idle. The default is a minute.
    pub fn idle_ttl(mut self, ttl: Duration) -> Self {
        self.idle_ttl = ttl;
        self
    }

    fn factor(&self) -> f64 {
        if self.grow_factor.is_finite() { self.grow_factor.max(1.1) } else { 2.0 }
    }
}

/// The state of a pool at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Observation {
    /// The number of queued calls.
    pub queued: usize,
    /// How long the first queued call has waited.
    pub head_waits: Duration,
    /// The number of workers that are ready.
    pub serving: usize,
    /// The number of workers that are starting.
    pub starting: usize,
    /// The number of `serving` workers that have a call.
    pub busy: usize,
    /// The number of `serving` workers that have idled for [`Sizing::idle_ttl`] or longer.
    pub long_idle: usize,
    /// The number of calls that have arrived so far, without refused calls.
    pub arrived: u64,
    /// The number of calls that workers have finished so far.
    pub finished: u64,
}

/// A sum whose amounts count less the longer ago they were added.
#[derive(Clone, Copy, Debug, Default)]
struct DecayingSum(f64);

impl DecayingSum {
    fn add(&mut self, amount: f64, elapsed: Duration, memory: Duration) {
        self.0 = self.0 * (-elapsed.as_secs_f64() / memory.as_secs_f64()).exp() + amount;
    }
}

/// The state from which the number of workers is decided.
#[derive(Debug)]
pub struct Sizer {
    config: Sizing,
    target: usize,
    /// When the last decision was made, and how many calls had arrived and finished by then.
    asked: Option<(Instant, u64, u64)>,
    arrivals: DecayingSum,
    arrival_time: DecayingSum,
    busy_time: DecayingSum,
    finished: DecayingSum,
    /// When the target last grew or was set.
    grown: Option<Instant>,
    shrunk: Option<Instant>,
}

impl Sizer {
    /// Returns a sizer whose target is `min_workers`.
    pub fn new(config: Sizing) -> Self {
        Self {
            config,
            target: config.min_workers,
            asked: None,
            arrivals: DecayingSum::default(),
            arrival_time: DecayingSum::default(),
            busy_time: DecayingSum::default(),
            finished: DecayingSum::default(),
            grown: None,
            shrunk: None,
        }
    }

    /// Returns how long a worker that is not needed may idle.
    pub fn idle_ttl(&self) -> Duration {
        self.config.idle_ttl
    }

    /// Returns the number of workers that the pool should have.
    pub fn target(&self) -> usize {
        self.target
    }

    /// Sets the target, until the load changes it.
    pub fn set(&mut self, workers: usize, now: Instant) {
        self.target = workers.clamp(self.config.min_workers, self.config.max_workers);
        self.grown = Some(now);
    }

    /// Decides how many workers the pool should have, including starting workers.
    pub fn decide(&mut self, seen: &Observation, now: Instant) -> usize {
        self.learn(seen, now);
        if let Some(more) = self.growth(seen) {
            self.target = more;
            self.grown = Some(now);
        } else if let Some(fewer) = self.shrinkage(seen, now) {
            self.target = fewer;
            self.shrunk = Some(now);
        }
        self.target
    }

    fn learn(&mut self, seen: &Observation, now: Instant) {
        if let Some((before, arrived, finished)) = self.asked {
            let elapsed = now.saturating_duration_since(before);
            let seconds = elapsed.as_secs_f64();
            let came = seen.arrived.saturating_sub(arrived) as f64;
            let went = seen.finished.saturating_sub(finished) as f64;
            self.arrivals.add(came, elapsed, MEMORY_OF_ARRIVALS);
            self.arrival_time.add(seconds, elapsed, MEMORY_OF_ARRIVALS);
            self.busy_time.add(seen.busy as f64 * seconds, elapsed, MEMORY_OF_COSTS);
            self.finished.add(went, elapsed, MEMORY_OF_COSTS);
        }
        self.asked = Some((now, seen.arrived, seen.finished));
    }

    fn growth(&self, seen: &Observation) -> Option<usize> {
        let present = seen.serving + seen.starting;
        if seen.queued == 0 || self.target >= self.config.max_workers {
            return None;
        }
        // No worker is ready or starting, so the first call starts one at once.
        if self.target == 0 {
            return Some(1);
        }
        // Missing workers that are not even starting yet are up to the supervisor. More of them would be just as late.
        if seen.head_waits < self.config.grow_after || present < self.target {
            return None;
        }
        let need = self.need(seen);
        // The call waits although there should be enough workers, so the estimate is wrong, unless a worker is just
        // starting.
        let least = if seen.starting == 0 { self.target + 1 } else { self.target };
        let most = (self.target as f64 * self.config.factor()).ceil() as usize;
        let more = need.max(least).min(most.max(self.target + 1)).min(self.config.max_workers);
        (more > self.target).then_some(more)
    }

    /// Returns how many workers the load keeps busy, plus those that the queue needs.
    fn need(&self, seen: &Observation) -> usize {
        // Never more than one worker for each call.
        let by_count = seen.busy + seen.queued;
        if self.finished.0 < 0.5 || self.arrival_time.0 <= 0.0 {
            return by_count;
        }
        let cost = self.busy_time.0 / self.finished.0;
        let per_second = self.arrivals.0 / self.arrival_time.0;
        let load = per_second * cost / UTILIZATION;
        let backlog = seen.queued as f64 * cost / CATCH_UP.as_secs_f64();
        by_count.min((load + backlog).ceil() as usize)
    }

    fn shrinkage(&self, seen: &Observation, now: Instant) -> Option<usize> {
        let ttl = self.config.idle_ttl;
        let surplus = seen.long_idle.min(self.target.saturating_sub(self.config.min_workers));
        let lately = |then: Option<Instant>, pause: Duration| {
            then.is_some_and(|then| now.saturating_duration_since(then) < pause)
        };
        let calm = seen.queued == 0 && seen.starting == 0 && seen.serving >= self.target;
        if surplus == 0 || !calm || lately(self.grown, ttl) || lately(self.shrunk, ttl / SHRINKS_PER_TTL) {
            return None;
        }
        let few = (surplus as f64 * SHRINK_SHARE).ceil() as usize;
        Some(self.target - few)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(50);

    /// Returns an observation of long calls, none of which has ended yet.
    fn waiting(queued: usize, serving: usize, starting: usize) -> Observation {
        let head_waits = Duration::from_millis(60);
        Observation { queued, head_waits, serving, starting, busy: serving, ..Observation::default() }
    }

    #[test]
    fn a_short_wait_does_not_grow_the_pool() {
        let mut sizer = Sizer::new(Sizing::between(2, 10));
        let seen = Observation { head_waits: Duration::from_millis(49), ..waiting(30, 2, 0) };
        assert_eq!(sizer.decide(&seen, Instant::now()), 2);
    }

    #[test]
    fn a_pool_doubles_towards_the_need_up_to_its_maximum() {
        let mut sizer = Sizer::new(Sizing::between(2, 10));
        let now = Instant::now();
        assert_eq!(sizer.decide(&waiting(30, 2, 0), now), 4);
        assert_eq!(sizer.decide(&waiting(30, 2, 2), now + TICK), 8);
        assert_eq!(sizer.decide(&waiting(30, 2, 6), now + 2 * TICK), 10);
        assert_eq!(sizer.decide(&waiting(30, 2, 8), now + 3 * TICK), 10);
    }

    #[test]
    fn starting_workers_count_towards_the_need() {
        let mut sizer = Sizer::new(Sizing::between(2, 100));
        let now = Instant::now();
        assert_eq!(sizer.decide(&waiting(2, 2, 0), now), 4);
        // The two starting workers are for the two queued calls.
        assert_eq!(sizer.decide(&waiting(2, 2, 2), now + TICK), 4);
    }

    #[test]
    fn workers_awaiting_their_restart_do_not_grow_the_pool() {
        let mut sizer = Sizer::new(Sizing::between(4, 100));
        assert_eq!(sizer.decide(&waiting(50, 1, 0), Instant::now()), 4);
    }

    #[test]
    fn the_first_call_of_an_empty_pool_starts_a_worker_at_once() {
        let mut sizer = Sizer::new(Sizing::between(0, 4));
        let seen = Observation { queued: 1, ..Observation::default() };
        assert_eq!(sizer.decide(&seen, Instant::now()), 1);
    }

    #[test]
    fn a_long_queue_of_short_calls_is_little_work() {
        let mut sizer = Sizer::new(Sizing::between(4, 100));
        let start = Instant::now();
        let mut seen = Observation { serving: 4, busy: 2, ..Observation::default() };
        for tick in 0..40 {
            // 2000 calls a second of 1 ms each: half of what four workers can do.
            (seen.arrived, seen.finished) = (tick * 100, tick * 100);
            sizer.decide(&seen, start + TICK * tick as u32);
        }
        let burst = Observation { arrived: seen.arrived + 300, ..waiting(300, 4, 0) };
        let target = sizer.decide(&Observation { finished: seen.finished, ..burst }, start + TICK * 40);
        assert!((5..=8).contains(&target), "{target}");
    }

    #[test]
    fn a_pool_shrinks_gradually_down_to_its_minimum() {
        let config = Sizing::between(2, 40);
        let mut sizer = Sizer::new(config);
        let mut now = Instant::now();
        sizer.set(34, now);
        let mut sizes = Vec::new();
        for _ in 0..1000 {
            now += Duration::from_secs(1);
            let serving = sizer.target();
            sizes.push(
                sizer.decide(&Observation { serving, long_idle: serving, ..Observation::default() }, now),
            );
        }
        assert_eq!(sizes[58], 34, "not before `idle_ttl` has passed");
        assert_eq!(sizes[59], 26, "a quarter of the surplus");
        assert_eq!(sizes.last(), Some(&2));
        sizes.dedup();
        assert!(sizes.is_sorted_by(|a, b| a > b), "{sizes:?}");
    }

    #[test]
    fn a_size_set_by_hand_is_clamped_to_the_bounds() {
        let mut sizer = Sizer::new(Sizing::between(2, 8));
        sizer.set(100, Instant::now());
        assert_eq!(sizer.target(), 8);
        sizer.set(0, Instant::now());
        assert_eq!(sizer.target(), 2);
        assert_eq!(Sizing::fixed(0).max_workers, 0);
    }
}
