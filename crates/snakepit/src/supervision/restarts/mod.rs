//! When the next worker may start.
//!
//! One accident is replaced at once, a series after pauses that double. Whoever dies counts into a budget, and past it the pool
//! is *degraded*: one worker at a time is tried, each after the longest pause, until one serves. What serves already goes on
//! serving; a degraded pool is only slow to start more.
//!
//! **Why the budget grows with the pool.** When the machine hiccups and all twenty workers of a healthy pool die within a
//! second, that is one accident, not twenty. So the budget is never below twice the number of workers: a pool may lose
//! everybody twice within the window and be replaced at once. The third time it is degraded, which costs it one trial: a
//! worker, after the longest pause, that passes. Then all others start together.
//!
//! **Who passes.** Whoever answers a call or lives for a second, unless that is just what those did that failed. Workers that die
//! after 1.3 s all live for a second, and perhaps they all answer calls. So one passes only when it has lived for twice as long as
//! the longest-lived of those that failed young (younger than the longest pause), and an answer counts only if none of those had
//! answered. Nobody else is started meanwhile.
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

/// A worker that lives shorter than this, and answers nothing, has failed as if it had not started.
pub(crate) const SHORT_LIFE: Duration = Duration::from_secs(1);

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
    pub(crate) counted: CountedFailures,
}

/// Which of the workers that fail count, into the budget and for pauses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum CountedFailures {
    #[default]
    All,
    /// Those that failed before they were given a call. The others may have died of their calls, and whoever asks to see what
    /// calls do must not be refused for it.
    #[cfg_attr(not(any(test, feature = "evals")), expect(dead_code, reason = "only evaluations ask for it"))]
    BeforeFirstCall,
}

impl Default for Restarts {
    fn default() -> Self {
        Self {
            failures: 5,
            within: Duration::from_mins(1),
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(5),
            counted: CountedFailures::All,
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

/// How far a worker has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Life {
    /// How long ago it got ready; nothing if it did not.
    pub(crate) lived: Duration,
    /// Whether it has answered a call.
    pub(crate) answered: bool,
    /// Whether it was given a call.
    pub(crate) was_used: bool,
}

impl Life {
    /// It neither lived for a second nor answered a call, or did not even start.
    fn is_short(self) -> bool {
        self.lived < SHORT_LIFE && !self.answered
    }
}

/// A worker that failed.
#[derive(Clone, Copy, Debug)]
struct Failure {
    at: Instant,
    life: Life,
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
    /// The workers that failed, the oldest first; as many as the budget and one more.
    failures: VecDeque<Failure>,
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
        match self.policy.counted {
            CountedFailures::BeforeFirstCall if life.was_used => return,
            CountedFailures::BeforeFirstCall | CountedFailures::All => {}
        }
        self.failures.push_back(Failure { at: now, life });
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

    /// Whether a worker that has come so far shows that workers can be started, and live.
    pub(crate) fn passes(&self, life: Life) -> bool {
        if !self.is_degraded() {
            return !life.is_short();
        }
        let failed_young = || self.failures.iter().filter(|it| it.life.lived < self.policy.longest_pause);
        let longest = failed_young().map(|it| it.life.lived).max().unwrap_or_default();
        let answer_counts = !failed_young().any(|it| it.life.answered);
        life.lived >= SHORT_LIFE.max(longest * 2) || life.answered && answer_counts
    }

    /// A worker that was started [passes](Self::passes): whatever was in the way is gone.
    pub(crate) fn served(&mut self) {
        self.series = 0;
        self.pause_until = None;
        self.trial_at = None;
    }

    pub(crate) fn next(&mut self, now: Instant) -> Start {
        self.forget_old(now);
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

    /// Forgets failures that no longer count, and with the last of them that the pool is degraded.
    pub(crate) fn forget_old(&mut self, now: Instant) {
        let old = |it: &Failure| now.saturating_duration_since(it.at) >= self.policy.within;
        while self.failures.front().is_some_and(old) {
            self.failures.pop_front();
        }
        if self.failures.is_empty() {
            // Nobody has failed for a whole window, and perhaps nobody was tried: the pool may have been made smaller.
            self.trial_at = None;
        }
    }
}

#[cfg(test)]
mod tests;
