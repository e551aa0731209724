//! When the next worker may start.
//!
//! One accident is replaced at once, a series after pauses that double. Whoever dies counts into a budget, and past it the pool
//! is *degraded*: one worker at a time is tried, each after the longest pause, until one serves. What serves already goes on
//! serving; a degraded pool is only slow to start more.
//!
//! **Why the budget grows with the pool.** When the machine hiccups and all twenty workers of a healthy pool die within a
//! second, that is one accident, not twenty. So the budget is never below twice the number of workers: a pool may lose
//! everybody twice within the window and be replaced at once. The third time it is degraded, which costs it one trial: a
//! worker, after the longest pause, that answers a call or lives for a second. Then all others start together.
//!
//! **Why a pause is doubled only when it is over.** Twenty workers that were started together fail together. Those that fail
//! while a pause is pending were started before it, and say nothing about what the pause has brought.
//!
//! **Why a restored pool is not forgiven.** Failures leave the budget with time alone. A worker that serves shows that starts
//! work again, not that workers live: if they die after their first call, the next failure within the window degrades the pool
//! again, so that a storm costs a handful of starts for each longest pause and not a whole budget.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::jitter::{Chance, doubled};
use crate::call::waiting::after;

/// How far pauses are varied, in either direction.
const JITTER: f64 = 0.25;

/// How workers that fail are replaced.
///
/// ```
/// use std::time::Duration;
/// use snakepit::Restarts;
///
/// let patient = Restarts::default().failures(20).longest_pause(Duration::from_secs(30));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Restarts {
    pub(crate) failures: usize,
    pub(crate) within: Duration,
    pub(crate) first_pause: Duration,
    pub(crate) longest_pause: Duration,
}

impl Default for Restarts {
    fn default() -> Self {
        Self {
            failures: 5,
            within: Duration::from_mins(1),
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(5),
        }
    }
}

impl Restarts {
    /// How many workers may fail within the time of [`within`](Self::within) before the pool is degraded; 5 unless it is set.
    /// It is never less than twice the number of workers: that all die together once is one accident.
    pub fn failures(mut self, failures: usize) -> Self {
        self.failures = failures;
        self
    }

    /// How long a failure counts; 60 s unless it is set.
    pub fn within(mut self, time: Duration) -> Self {
        self.within = time;
        self
    }

    /// The pause after the second failure in a row, varied by a quarter; it doubles from there; 100 ms unless it is set.
    pub fn first_pause(mut self, pause: Duration) -> Self {
        self.first_pause = pause;
        self
    }

    /// The longest pause between two starts, varied by a quarter, and the pause between the trials of a degraded pool; 5 s
    /// unless it is set.
    pub fn longest_pause(mut self, pause: Duration) -> Self {
        self.longest_pause = pause;
        self
    }
}

/// How far a worker came before it failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    /// It neither lived for a second nor answered a call, or did not even start.
    Short,
    /// It has served.
    Served,
}

/// When the next worker may start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    Now,
    At(Instant),
    /// One worker, if none is starting, when the time has come; it may have come already.
    Degraded {
        trial_at: Instant,
    },
}

/// What happened to the workers of one pool lately.
#[derive(Debug)]
pub(crate) struct RestartLog {
    policy: Restarts,
    workers: usize,
    /// When workers failed, the oldest first; as many as the budget and one more.
    failures: VecDeque<Instant>,
    /// How many short lives there were in a row.
    series: u32,
    pause_until: Option<Instant>,
    /// When the next trial is due, while the pool is degraded.
    trial_at: Option<Instant>,
}

impl RestartLog {
    pub(crate) fn new(policy: Restarts, workers: usize) -> Self {
        Self { policy, workers, failures: VecDeque::new(), series: 0, pause_until: None, trial_at: None }
    }

    /// Another policy, from now on.
    pub(crate) fn adopt(&mut self, policy: Restarts) {
        self.policy = policy;
    }

    /// How many workers the pool is meant to have from now on.
    pub(crate) fn resize(&mut self, workers: usize) {
        self.workers = workers;
    }

    /// How many failures are borne within the window.
    pub(crate) fn budget(&self) -> usize {
        self.policy.failures.max(self.workers.saturating_mul(2))
    }

    /// A worker is being started. Only a degraded pool has to know: the next trial comes after a pause, however this one ends.
    pub(crate) fn started(&mut self, now: Instant, chance: Chance) {
        if self.trial_at.is_some() {
            self.trial_at = Some(self.after_longest_pause(now, chance));
        }
    }

    /// A worker died, or could not be started.
    pub(crate) fn failed(&mut self, now: Instant, life: Life, chance: Chance) {
        self.forget_old(now);
        self.failures.push_back(now);
        while self.failures.len() > self.budget() + 1 {
            self.failures.pop_front();
        }
        if life == Life::Short && self.pause_until.is_none_or(|until| until <= now) {
            self.series = self.series.saturating_add(1);
            self.pause_until = self.series.checked_sub(2).map(|steps| {
                let pause = doubled(self.policy.first_pause, self.policy.longest_pause, steps);
                after(now, chance.around(pause, JITTER))
            });
        }
        if self.trial_at.is_some() || self.failures.len() > self.budget() {
            self.trial_at = Some(self.after_longest_pause(now, chance));
        }
    }

    /// A worker that was started has lived for a second, or has answered a call: whatever was in the way is gone.
    pub(crate) fn served(&mut self) {
        self.series = 0;
        self.pause_until = None;
        self.trial_at = None;
    }

    pub(crate) fn next(&mut self, now: Instant) -> Start {
        self.forget_old(now);
        if self.failures.is_empty() {
            // Nobody has failed for a whole window, and perhaps nobody was tried: the pool may have been made smaller.
            self.trial_at = None;
        }
        if let Some(trial_at) = self.trial_at {
            return Start::Degraded { trial_at };
        }
        match self.pause_until {
            Some(until) if until > now => Start::At(until),
            _ => Start::Now,
        }
    }

    pub(crate) fn is_degraded(&self) -> bool {
        self.trial_at.is_some()
    }

    fn after_longest_pause(&self, now: Instant, chance: Chance) -> Instant {
        after(now, chance.around(self.policy.longest_pause, JITTER))
    }

    fn forget_old(&mut self, now: Instant) {
        let old = |at: &Instant| now.saturating_duration_since(*at) >= self.policy.within;
        while self.failures.front().is_some_and(old) {
            self.failures.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EVEN: fn() -> Chance = || Chance::of(0.5);

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn log(workers: usize) -> RestartLog {
        RestartLog::new(Restarts::default(), workers)
    }

    #[test]
    fn one_accident_is_replaced_at_once() {
        let (mut log, now) = (log(1), Instant::now());
        assert_eq!(log.next(now), Start::Now);
        log.failed(now, Life::Short, EVEN());
        assert_eq!(log.next(now), Start::Now);
    }

    #[test]
    fn a_series_waits_twice_as_long_each_time() {
        let (mut log, mut now) = (log(10), Instant::now());
        log.failed(now, Life::Short, EVEN());
        let mut pauses = Vec::new();
        for _ in 0..8 {
            log.failed(now, Life::Short, EVEN());
            let Start::At(at) = log.next(now) else { panic!("{log:?}") };
            pauses.push((at - now).as_millis());
            now = at;
            assert_eq!(log.next(now), Start::Now);
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        log.served();
        log.failed(now, Life::Short, EVEN());
        assert_eq!(log.next(now), Start::Now, "a worker that served ended the series");
    }

    #[test]
    fn workers_that_fail_together_are_one_step_of_the_series() {
        let (mut log, now) = (log(20), Instant::now());
        (0..20).for_each(|_| log.failed(now, Life::Short, EVEN()));
        assert_eq!(log.next(now), Start::At(now + millis(100)));
    }

    #[test]
    fn workers_that_have_served_are_replaced_without_a_pause() {
        let (mut log, now) = (log(1), Instant::now());
        for count in 0..5 {
            log.failed(now + seconds(count), Life::Served, EVEN());
            assert_eq!(log.next(now + seconds(count)), Start::Now);
        }
        log.failed(now + seconds(6), Life::Served, EVEN());
        assert_eq!(log.next(now + seconds(6)), Start::Degraded { trial_at: now + seconds(11) });
    }

    #[test]
    fn failures_fall_out_of_the_window() {
        let (mut log, mut now) = (log(1), Instant::now());
        for _ in 0..100 {
            log.failed(now, Life::Served, EVEN());
            assert_eq!(log.next(now), Start::Now);
            now += millis(12_500);
        }
    }

    #[test]
    fn a_healthy_pool_that_loses_everybody_twice_is_replaced_at_once_and_soon_the_third_time() {
        let (mut log, mut now) = (log(20), Instant::now());
        for _ in 0..2 {
            (0..20).for_each(|_| log.failed(now, Life::Served, EVEN()));
            assert_eq!(log.next(now), Start::Now);
            now += seconds(10);
        }
        (0..20).for_each(|_| log.failed(now, Life::Served, EVEN()));
        let trial_at = now + seconds(5);
        assert_eq!(log.next(now), Start::Degraded { trial_at });
        log.started(trial_at, EVEN());
        log.served();
        assert_eq!(log.next(trial_at), Start::Now, "one that serves brings the others back");
    }

    #[test]
    fn trials_come_one_by_one_and_the_first_that_serves_restores_the_pool() {
        let (mut log, mut now) = (log(1), Instant::now());
        (0..6).for_each(|_| log.failed(now, Life::Short, EVEN()));
        for _ in 0..3 {
            let Start::Degraded { trial_at } = log.next(now) else { panic!("{log:?}") };
            assert_eq!(trial_at, now + seconds(5));
            now = trial_at;
            log.started(now, EVEN());
            assert_eq!(log.next(now), Start::Degraded { trial_at: now + seconds(5) }, "none beside it");
            now += millis(300);
            log.failed(now, Life::Short, EVEN());
        }
        log.started(now, EVEN());
        log.served();
        assert!(!log.is_degraded());
        assert_eq!(log.next(now), Start::Now);
        log.failed(now, Life::Served, EVEN());
        assert!(log.is_degraded(), "the failures of the last minute still count");
    }

    #[test]
    fn a_pool_that_tries_nobody_is_not_degraded_for_ever() {
        let (mut log, now) = (log(1), Instant::now());
        (0..6).for_each(|_| log.failed(now, Life::Served, EVEN()));
        assert!(matches!(log.next(now + seconds(59)), Start::Degraded { .. }));
        assert_eq!(log.next(now + seconds(60)), Start::Now);
    }

    #[test]
    fn a_smaller_pool_bears_less() {
        let (mut log, now) = (log(20), Instant::now());
        (0..20).for_each(|_| log.failed(now, Life::Served, EVEN()));
        log.resize(2);
        log.failed(now, Life::Served, EVEN());
        assert!(log.is_degraded());
        assert_eq!(log.failures.len(), 6, "no more is remembered than is needed");
    }

    /// Ten minutes in which every worker fails `life` after its start: how many starts there are.
    fn storm(workers: usize, life: Duration, kind: Life) -> usize {
        let began = Instant::now();
        let (mut log, mut now, mut starts) = (log(workers), began, 0);
        // When those that run will fail; when those that live long enough will have served.
        let mut failing: VecDeque<Instant> = VecDeque::new();
        let mut serving: VecDeque<Instant> = VecDeque::new();
        while now < began + seconds(600) {
            while serving.front().is_some_and(|&at| at <= now) {
                serving.pop_front();
                log.served();
            }
            while failing.front().is_some_and(|&at| at <= now) {
                failing.pop_front();
                log.failed(now, kind, Chance::draw());
            }
            let mut wake = None;
            while failing.len() < workers {
                match log.next(now) {
                    Start::Degraded { trial_at } if trial_at <= now => {}
                    Start::Now => {}
                    Start::At(at) | Start::Degraded { trial_at: at } => {
                        wake = Some(at);
                        break;
                    }
                }
                starts += 1;
                log.started(now, Chance::draw());
                failing.push_back(now + life);
                if kind == Life::Served {
                    serving.push_back(now + life / 2);
                }
            }
            let events = [wake, failing.front().copied(), serving.front().copied()];
            now = events.into_iter().flatten().min().expect("something is always due").max(now + millis(1));
        }
        starts
    }

    #[test]
    fn a_crash_storm_at_the_start_costs_a_trial_for_every_longest_pause() {
        // 600 s and a trial every 5 s, varied by a quarter and averaged: 120, besides the budget of the beginning.
        for (workers, life) in [(1, 1), (1, 300), (4, 50), (20, 1), (20, 300)] {
            let starts = storm(workers, millis(life), Life::Short);
            let budget = 5.max(2 * workers);
            assert!((90..150 + budget + workers).contains(&starts), "{workers} workers: {starts} starts");
        }
    }

    #[test]
    fn a_storm_of_workers_that_die_after_they_served_replaces_each_only_so_often() {
        for workers in [1, 4, 20] {
            let starts = storm(workers, millis(200), Life::Served);
            let budget = 5.max(2 * workers);
            // A trial that serves brings the others back: all of them, but not the whole budget.
            assert!(starts < budget + 150 * (workers + 1), "{workers} workers: {starts} starts");
            assert!(starts > 90, "{workers} workers: {starts} starts");
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Pass(u64),
        Failed(bool, f64),
        Started(f64),
        Served,
        Resize(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..70_000u64).prop_map(Step::Pass),
            (0..300u64).prop_map(Step::Pass),
            (any::<bool>(), 0.0..1.0).prop_map(|(short, chance)| Step::Failed(short, chance)),
            (any::<bool>(), 0.0..1.0).prop_map(|(short, chance)| Step::Failed(short, chance)),
            (0.0..1.0).prop_map(Step::Started),
            Just(Step::Served),
            (0..30usize).prop_map(Step::Resize),
        ]
    }

    proptest! {
        #[test]
        fn whatever_happened_there_is_a_next_start_and_it_is_near(
            steps in proptest::collection::vec(step(), 0..100),
        ) {
            let (mut log, mut now) = (log(4), Instant::now());
            for step in steps {
                match step {
                    Step::Pass(time) => now += millis(time),
                    Step::Failed(true, chance) => log.failed(now, Life::Short, Chance::of(chance)),
                    Step::Failed(false, chance) => log.failed(now, Life::Served, Chance::of(chance)),
                    Step::Started(chance) => log.started(now, Chance::of(chance)),
                    Step::Served => log.served(),
                    Step::Resize(workers) => log.resize(workers),
                }
                let next = log.next(now);
                prop_assert_eq!(log.next(now), next, "to ask changes nothing");
                match next {
                    Start::Now => {}
                    Start::At(at) => {
                        prop_assert!(at > now && at <= now + millis(6250));
                        prop_assert_eq!(log.next(at), Start::Now);
                    }
                    Start::Degraded { trial_at } => prop_assert!(trial_at <= now + millis(6250)),
                }
                prop_assert!(log.failures.len() <= 61);
            }
            log.served();
            prop_assert_eq!(log.next(now), Start::Now, "a worker that serves restores any pool");
        }
    }
}
