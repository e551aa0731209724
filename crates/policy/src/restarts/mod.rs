//! When the next worker may start.
//!
//! A worker that fails once is replaced at once. In a series of failures the pauses double. Each failure counts against
//! a budget. Beyond the budget the pool is *degraded*: it tries one worker at a time, each after the longest pause,
//! until one serves. Workers that already serve continue, so a degraded pool is only slow to start more.
//!
//! **Why the budget grows with the pool.** If all twenty workers of a healthy pool die within a second because the
//! machine hiccups, that is one accident, not twenty. So the budget is never below twice the number of workers: a pool
//! may lose all its workers twice within the window, and all are replaced at once. The third time the pool is degraded.
//! That costs it one trial: one worker, started after the longest pause, must pass. Then all others start together.
//!
//! **Which worker passes.** A worker passes if it answers a call or lives for a second, unless the failed workers did
//! the same. Workers that die after 1.3 s all live for a second, and perhaps they all answer calls. So in a degraded
//! pool a worker passes only after living twice as long as the longest-lived worker that failed young (younger than the
//! longest pause). An answer counts only if none of those workers had answered. No other worker is started meanwhile.
//!
//! **Why a pause doubles only once it is over.** Twenty workers that were started together fail together. The workers
//! that fail during a pause were started before it, and say nothing about its effect.
//!
//! **Why a recovered pool keeps its failures.** Only time removes failures from the budget. A worker that serves shows
//! that starts work again, not that workers live. If workers die after their first call, the next failure within the
//! window degrades the pool again, so a crash storm costs a handful of starts per longest pause instead of a whole
//! budget.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::jitter::{Chance, doubled};
use super::time::after;
#[cfg(feature = "config")]
use snakepit_settings::HumanTime;
use snakepit_settings::settings;

/// The lifetime below which a worker that answers no call counts as one that did not start.
pub const SHORT_LIFE: Duration = Duration::from_secs(1);

/// The share by which pauses vary, in either direction.
const JITTER: f64 = 0.25;

settings! {
    /// How failed workers are replaced.
    ///
    /// ```
    /// use std::time::Duration;
    /// use snakepit::policy::Restarts;
    ///
    /// let patient = Restarts::default().failures(20).longest_pause(Duration::from_secs(30));
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[must_use]
    pub struct Restarts {
        /// How many workers may fail within the time `within` before the pool is degraded and tries one worker at a
        /// time. The pool always tolerates twice as many failures as it has workers, because all of them dying together
        /// is one accident.
        failures: usize = 5,
        /// How long a failure counts.
        within: Duration as HumanTime = Duration::from_mins(1),
        /// The pause after the second failure in a row, varied by a quarter. Each further pause is twice as long.
        first_pause: Duration as HumanTime = Duration::from_millis(100),
        /// The longest pause between two starts, and the pause between the trials of a degraded pool. Both are varied
        /// by a quarter.
        longest_pause: Duration as HumanTime = Duration::from_secs(5),
    }
    also {
        /// Which failures count.
        counted: CountedFailures = CountedFailures::All,
    }
}

/// Which failed workers count for the budget and the pauses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CountedFailures {
    /// All failed workers.
    #[default]
    All,
    /// The workers that failed before they got a call. The others may have died of their calls, and an evaluation must
    /// continue in spite of that.
    BeforeFirstCall,
}

/// What a worker has done in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorkerLife {
    /// How long ago the worker became ready. Zero if it did not.
    pub lived: Duration,
    /// Whether the worker has answered a call.
    pub answered: bool,
    /// Whether the worker was given a call.
    pub was_used: bool,
}

impl WorkerLife {
    /// Reports whether the worker did not start, or neither lived for a second nor answered a call.
    fn is_short(self) -> bool {
        self.lived < SHORT_LIFE && !self.answered
    }
}

/// A worker that failed.
#[derive(Clone, Copy, Debug)]
struct WorkerFailure {
    at: Instant,
    life: WorkerLife,
}

/// The time at which the next worker may start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextStart {
    /// The worker may start at once.
    Now,
    /// The worker may not start before this time.
    At(Instant),
    /// One worker may start at `trial_at`, if no other is starting. The time may have passed already.
    Degraded {
        /// When the next trial may start.
        trial_at: Instant,
    },
}

/// The recent failures of one pool.
#[derive(Debug)]
pub struct RestartLog {
    policy: Restarts,
    workers: usize,
    /// The failed workers, the oldest first. At most one more than the budget.
    failures: VecDeque<WorkerFailure>,
    /// The number of short lives in a row.
    series: u32,
    pause_until: Option<Instant>,
    /// When the next trial is due, while the pool is degraded.
    trial_at: Option<Instant>,
}

impl RestartLog {
    /// Returns the log of a pool with this many workers, none of which has failed.
    pub fn new(policy: Restarts, workers: usize) -> Self {
        Self { policy, workers, failures: VecDeque::new(), series: 0, pause_until: None, trial_at: None }
    }

    /// Changes the policy.
    pub fn adopt(&mut self, policy: Restarts) {
        self.policy = policy;
    }

    /// Changes how many workers the pool should have.
    pub fn resize(&mut self, workers: usize) {
        self.workers = workers;
    }

    /// Returns how many failures the pool tolerates within the window.
    pub fn budget(&self) -> usize {
        self.policy.failures.max(self.workers.saturating_mul(2))
    }

    /// Records that a worker is being started. In a degraded pool the next trial follows after a pause, however this
    /// one ends.
    pub fn started(&mut self, now: Instant, chance: Chance) {
        if self.trial_at.is_some() {
            self.trial_at = Some(self.after_longest_pause(now, chance));
        }
    }

    /// Records that a worker died or could not be started.
    pub fn failed(&mut self, now: Instant, life: WorkerLife, chance: Chance) {
        self.forget_old(now);
        match self.policy.counted {
            CountedFailures::BeforeFirstCall if life.was_used => return,
            CountedFailures::BeforeFirstCall | CountedFailures::All => {}
        }
        self.failures.push_back(WorkerFailure { at: now, life });
        while self.failures.len() > self.budget() + 1 {
            self.failures.pop_front();
        }
        if life.is_short() && self.pause_until.is_none_or(|until| until <= now) {
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

    /// Reports whether a worker with this life shows that workers start and live.
    pub fn passes(&self, life: WorkerLife) -> bool {
        if !self.is_degraded() {
            return !life.is_short();
        }
        let failed_young = || self.failures.iter().filter(|it| it.life.lived < self.policy.longest_pause);
        let longest = failed_young().map(|it| it.life.lived).max().unwrap_or_default();
        let answer_counts = !failed_young().any(|it| it.life.answered);
        life.lived >= SHORT_LIFE.max(longest * 2) || life.answered && answer_counts
    }

    /// Records that a worker [passed](Self::passes), so starts work again.
    pub fn served(&mut self) {
        self.series = 0;
        self.pause_until = None;
        self.trial_at = None;
    }

    /// Returns when the next worker may start.
    pub fn next(&mut self, now: Instant) -> NextStart {
        self.forget_old(now);
        if let Some(trial_at) = self.trial_at {
            return NextStart::Degraded { trial_at };
        }
        match self.pause_until {
            Some(until) if until > now => NextStart::At(until),
            _ => NextStart::Now,
        }
    }

    /// Reports whether the pool tries only one worker at a time.
    pub fn is_degraded(&self) -> bool {
        self.trial_at.is_some()
    }

    fn after_longest_pause(&self, now: Instant, chance: Chance) -> Instant {
        after(now, chance.around(self.policy.longest_pause, JITTER))
    }

    /// Forgets failures that no longer count. After the last of them the pool is no longer degraded.
    pub fn forget_old(&mut self, now: Instant) {
        let old = |it: &WorkerFailure| now.saturating_duration_since(it.at) >= self.policy.within;
        while self.failures.front().is_some_and(old) {
            self.failures.pop_front();
        }
        if self.failures.is_empty() {
            // No worker has failed for a whole window. Perhaps no worker was started, because the pool was made
            // smaller.
            self.trial_at = None;
        }
    }
}

#[cfg(test)]
mod tests;
