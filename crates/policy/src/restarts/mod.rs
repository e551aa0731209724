//! When the next worker may start.
//!
//! A worker that fails once is replaced at once; in a series of failures the pauses double. Each failure counts against a budget,
//! and past it the pool is *degraded*: it tries one worker at a time, each after the longest pause, until one serves. Workers that
//! serve already go on; a degraded pool is only slow to start more.
//!
//! **Why the budget grows with the pool.** When the machine hiccups and all twenty workers of a healthy pool die within a
//! second, that is one accident, not twenty. So the budget is never below twice the number of workers: a pool may lose all its
//! workers twice within the window, and all are replaced at once. The third time the pool is degraded, which costs it one trial: one
//! worker that passes, started after the longest pause. Then all others start together.
//!
//! **Which worker passes.** One that answers a call or lives for a second, unless the failed workers did just that. Workers that die
//! after 1.3 s all live for a second, and perhaps they all answer calls. So a worker passes only when it has lived for twice as long
//! as the longest-lived of those that failed young (younger than the longest pause), and an answer counts only if none of those had
//! answered. No other worker is started meanwhile.
//!
//! **Why a pause is doubled only when it is over.** Twenty workers that were started together fail together. Those that fail
//! while a pause is pending were started before it, and say nothing about its effect.
//!
//! **Why a restored pool is not forgiven.** Failures leave the budget with time alone. A worker that serves shows that starts
//! work again, not that workers live: if they die after their first call, the next failure within the window degrades the pool
//! again, so that a storm costs a handful of starts for each longest pause and not a whole budget.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::jitter::{Chance, doubled};
use super::time::after;
#[cfg(feature = "config")]
use snakepit_settings::HumanTime;
use snakepit_settings::settings;

/// A worker that lives shorter than this and answers nothing counts as one that did not start.
pub const SHORT_LIFE: Duration = Duration::from_secs(1);

/// How far pauses are varied, in either direction.
const JITTER: f64 = 0.25;

settings! {
    /// How workers that fail are replaced.
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
        /// How many workers may fail within the time `within` before the pool is degraded and tries one worker at a time. A pool
        /// always bears twice as many failures as it has workers: if all of them die together, that is one accident.
        failures: usize = 5,
        /// How long a failure counts.
        within: Duration as HumanTime = Duration::from_mins(1),
        /// The pause after the second failure in a row, varied by a quarter; each further pause is twice as long.
        first_pause: Duration as HumanTime = Duration::from_millis(100),
        /// The longest pause between two starts, varied by a quarter, and the pause between the trials of a degraded pool.
        longest_pause: Duration as HumanTime = Duration::from_secs(5),
    }
    also {
        /// Which failures count.
        counted: CountedFailures = CountedFailures::All,
    }
}

/// Which of the workers that fail count, into the budget and for pauses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CountedFailures {
    /// All of them.
    #[default]
    All,
    /// Those that failed before they were given a call. The others may have died of their calls, which an evaluation must not be
    /// refused for.
    BeforeFirstCall,
}

/// What a worker has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorkerLife {
    /// How long ago it got ready; zero if it did not.
    pub lived: Duration,
    /// Whether it has answered a call.
    pub answered: bool,
    /// Whether it was given a call.
    pub was_used: bool,
}

impl WorkerLife {
    /// Whether it did not start, or neither lived for a second nor answered a call.
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

/// When the next worker may start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextStart {
    /// At once.
    Now,
    /// Not before then.
    At(Instant),
    /// One worker, if none is starting, when the time has come; it may have come already.
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
    /// The workers that failed, the oldest first; as many as the budget and one more.
    failures: VecDeque<WorkerFailure>,
    /// How many short lives there were in a row.
    series: u32,
    pause_until: Option<Instant>,
    /// When the next trial is due, while the pool is degraded.
    trial_at: Option<Instant>,
}

impl RestartLog {
    /// The log of a pool with so many workers, none of which has failed.
    pub fn new(policy: Restarts, workers: usize) -> Self {
        Self { policy, workers, failures: VecDeque::new(), series: 0, pause_until: None, trial_at: None }
    }

    /// Changes the policy.
    pub fn adopt(&mut self, policy: Restarts) {
        self.policy = policy;
    }

    /// Changes how many workers the pool is to have.
    pub fn resize(&mut self, workers: usize) {
        self.workers = workers;
    }

    /// How many failures the pool bears within the window.
    pub fn budget(&self) -> usize {
        self.policy.failures.max(self.workers.saturating_mul(2))
    }

    /// A worker is being started. In a degraded pool the next trial comes after a pause, however this one ends.
    pub fn started(&mut self, now: Instant, chance: Chance) {
        if self.trial_at.is_some() {
            self.trial_at = Some(self.after_longest_pause(now, chance));
        }
    }

    /// A worker died, or could not be started.
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

    /// Whether such a worker shows that workers start and live.
    pub fn passes(&self, life: WorkerLife) -> bool {
        if !self.is_degraded() {
            return !life.is_short();
        }
        let failed_young = || self.failures.iter().filter(|it| it.life.lived < self.policy.longest_pause);
        let longest = failed_young().map(|it| it.life.lived).max().unwrap_or_default();
        let answer_counts = !failed_young().any(|it| it.life.answered);
        life.lived >= SHORT_LIFE.max(longest * 2) || life.answered && answer_counts
    }

    /// A worker [passes](Self::passes): starts work again.
    pub fn served(&mut self) {
        self.series = 0;
        self.pause_until = None;
        self.trial_at = None;
    }

    /// When the next worker may start.
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

    /// Whether only one worker at a time is tried.
    pub fn is_degraded(&self) -> bool {
        self.trial_at.is_some()
    }

    fn after_longest_pause(&self, now: Instant, chance: Chance) -> Instant {
        after(now, chance.around(self.policy.longest_pause, JITTER))
    }

    /// Forgets failures that no longer count, and with the last of them that the pool is degraded.
    pub fn forget_old(&mut self, now: Instant) {
        let old = |it: &WorkerFailure| now.saturating_duration_since(it.at) >= self.policy.within;
        while self.failures.front().is_some_and(old) {
            self.failures.pop_front();
        }
        if self.failures.is_empty() {
            // No worker has failed for a whole window; perhaps none was started, since the pool was made smaller.
            self.trial_at = None;
        }
    }
}

#[cfg(test)]
mod tests;
