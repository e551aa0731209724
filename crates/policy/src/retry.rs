//! Whether a lost call is retried, and when.
//!
//! The caller asks only for idempotent calls, and only if no part of their stream was delivered.
//!
//! **Why there is a budget besides the attempts.** If every worker of a pool fails, three attempts per call triple the
//! load just when the pool can handle the least. So calls pay for retries: each first attempt adds a tenth of a retry
//! to the pool's balance, and a retry costs one. A pool with few calls would never save enough, so there is also a
//! reserve, which refills with time. In total, there are never more retries than a tenth of the calls, plus the
//! reserve, plus one per second.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::jitter::{Chance, doubled};
#[cfg(feature = "config")]
use snakepit_settings::HumanTime;
use snakepit_settings::settings;

/// The number of balance units that a retry costs.
const UNITS: u32 = 1000;
/// The largest balance, as a multiple of the reserve. The limit keeps retries that were saved in quiet hours from
/// coming as one wave.
const LARGEST_BALANCE: u64 = 10;
/// The time in which the reserve regains one retry.
const REFILL: Duration = Duration::from_secs(1);

settings! {
    /// How a pool retries idempotent calls whose worker is lost.
    ///
    /// ```
    /// use std::time::Duration;
    /// use snakepit::policy::Retry;
    ///
    /// let eager = Retry::default().attempts(5).first_pause(Duration::from_millis(10));
    /// ```
    #[derive(Clone, Copy, PartialEq, Debug)]
    #[must_use]
    pub struct Retry {
        /// How many attempts a call gets in total, including the first.
        attempts: u32 = 3,
        /// The longest pause before the second attempt. It doubles for each further attempt. The actual pause is
        /// random, between zero and this value.
        first_pause: Duration as HumanTime = Duration::from_millis(50),
        /// The longest pause before any attempt.
        longest_pause: Duration as HumanTime = Duration::from_secs(2),
        /// How many retries each call adds to the pool's budget.
        ratio: f64 = 0.1,
        /// How many further retries the pool allows. It regains one each second.
        reserve: u32 = 10,
    }
}

/// Why an idempotent call was not retried after it lost its worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NoRetry {
    /// All attempts were made.
    Attempts,
    /// The call's time would end before the next attempt began.
    Deadline,
    /// The pool already retries too many calls.
    Budget,
    /// A part of the call's stream was delivered.
    Delivered,
    /// Workers keep dying of the call.
    Quarantined,
    /// The breaker admits no calls.
    CircuitOpen,
    /// No worker became free in time for the next attempt.
    Queue,
    /// The pool refused the call: the pool is stopping, or the worker of the call's session is busy.
    Refused,
}

impl fmt::Display for NoRetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Attempts => "all attempts were made",
            Self::Deadline => "its time has run out",
            Self::Budget => "the pool already retries too many calls",
            Self::Delivered => "part of its stream was already delivered",
            Self::Quarantined => "workers keep dying of it",
            Self::CircuitOpen => "the circuit breaker admits no calls",
            Self::Queue => "no worker became free in time for another attempt",
            Self::Refused => "the pool refused it",
        })
    }
}

/// The retries that a pool allows. All calls of the pool share the budget, without a lock.
#[derive(Debug)]
pub struct RetryBudget {
    /// The units that first attempts have added.
    balance: AtomicU64,
    deposit: AtomicU64,
    largest: AtomicU64,
    /// The time up to which the reserve is spent, in nanoseconds since `began`. Each retry moves it forward by one
    /// refill, and it cannot pass the present.
    spent_until: AtomicU64,
    reserve: AtomicU64,
    began: Instant,
}

impl RetryBudget {
    /// Returns a full budget.
    pub fn new(policy: &Retry, now: Instant) -> Self {
        let budget = Self {
            balance: AtomicU64::new(0),
            deposit: AtomicU64::new(0),
            largest: AtomicU64::new(0),
            spent_until: AtomicU64::new(0),
            reserve: AtomicU64::new(0),
            began: now,
        };
        budget.adopt(policy);
        budget
    }

    /// Changes the settings. The balance is kept, up to the new limit, and the spent part of the reserve stays spent.
    pub fn adopt(&self, policy: &Retry) {
        let reserve = u64::from(policy.reserve);
        // NaN becomes 0 here.
        let deposit = (policy.ratio.clamp(0.0, 1000.0) * f64::from(UNITS)) as u64;
        let largest = (reserve * LARGEST_BALANCE).max(1) * u64::from(UNITS);
        self.deposit.store(deposit, Ordering::Relaxed);
        self.largest.store(largest, Ordering::Relaxed);
        self.reserve.store(reserve * nanos(REFILL), Ordering::Relaxed);
        // If calls no longer pay for retries, the balance is lost.
        self.balance.fetch_min(if deposit == 0 { 0 } else { largest }, Ordering::Relaxed);
    }

    /// Records the first attempt of a call.
    pub fn deposit(&self) {
        // The balance of a healthy pool is full, so this is usually one load. Racing deposits may slightly exceed the
        // limit.
        if self.balance.load(Ordering::Relaxed) < self.largest.load(Ordering::Relaxed) {
            self.balance.fetch_add(self.deposit.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Decides about a call that was lost in its attempt number `attempt` (the first is 1) with `remaining` of its time
    /// left. Returns the pause before the retry, which is then paid for.
    pub fn decide(
        &self,
        policy: &Retry,
        attempt: u32,
        remaining: Duration,
        now: Instant,
        chance: Chance,
    ) -> Result<Duration, NoRetry> {
        if attempt >= policy.attempts {
            return Err(NoRetry::Attempts);
        }
        let most = doubled(policy.first_pause, policy.longest_pause, attempt.saturating_sub(1));
        let pause = chance.below(most);
        if pause >= remaining {
            return Err(NoRetry::Deadline);
        }
        if self.take_from_balance() || self.take_from_reserve(now) { Ok(pause) } else { Err(NoRetry::Budget) }
    }

    fn take_from_balance(&self) -> bool {
        let paid = |held: u64| held.checked_sub(UNITS.into());
        self.balance.try_update(Ordering::Relaxed, Ordering::Relaxed, paid).is_ok()
    }

    fn take_from_reserve(&self, now: Instant) -> bool {
        // The clock starts with a full reserve.
        let full_at = nanos(now.saturating_duration_since(self.began));
        let now = full_at.saturating_add(self.reserve.load(Ordering::Relaxed));
        let paid = |spent: u64| {
            let spent = spent.max(full_at).saturating_add(nanos(REFILL));
            (spent <= now).then_some(spent)
        };
        self.spent_until.try_update(Ordering::Relaxed, Ordering::Relaxed, paid).is_ok()
    }
}

/// Saturates after five centuries.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    fn half() -> Chance {
        Chance::of(0.5)
    }

    #[test]
    fn a_call_is_retried_as_often_as_the_policy_allows() {
        let (policy, now) = (Retry::default(), Instant::now());
        let budget = RetryBudget::new(&policy, now);
        let decide = |attempt| budget.decide(&policy, attempt, LONG, now, half());
        assert_eq!(decide(1), Ok(Duration::from_millis(25)));
        assert_eq!(decide(2), Ok(Duration::from_millis(50)));
        assert_eq!(decide(3), Err(NoRetry::Attempts));
    }

    #[test]
    fn pauses_grow_up_to_the_longest_pause() {
        let policy = Retry::default().attempts(u32::MAX).reserve(100);
        let now = Instant::now();
        let budget = RetryBudget::new(&policy, now);
        let longest = |attempt| budget.decide(&policy, attempt, LONG, now, Chance::of(0.999_999));
        assert!(longest(7).expect("a retry") > Duration::from_millis(1990));
        assert!(longest(1_000_000).expect("a retry") < Duration::from_secs(2));
    }

    #[test]
    fn a_retry_beyond_the_deadline_is_denied_and_costs_nothing() {
        let policy = Retry::default().reserve(1);
        let now = Instant::now();
        let budget = RetryBudget::new(&policy, now);
        let left = Duration::from_millis(25);
        assert_eq!(budget.decide(&policy, 1, left, now, half()), Err(NoRetry::Deadline));
        assert_eq!(budget.decide(&policy, 1, Duration::ZERO, now, Chance::of(0.0)), Err(NoRetry::Deadline));
        assert_eq!(budget.decide(&policy, 1, LONG, now, half()), Ok(left), "the reserve was not touched");
        assert_eq!(budget.decide(&policy, 1, LONG, now, half()), Err(NoRetry::Budget));
    }

    #[test]
    fn the_reserve_refills_with_time_up_to_its_size() {
        let (policy, began) = (Retry::default(), Instant::now());
        let budget = RetryBudget::new(&policy, began);
        let granted = |now| (0..100).filter(|_| budget.decide(&policy, 1, LONG, now, half()).is_ok()).count();
        assert_eq!(granted(began), 10);
        assert_eq!(granted(began + Duration::from_millis(999)), 0);
        assert_eq!(granted(began + Duration::from_millis(3500)), 3);
        assert_eq!(granted(began + Duration::from_hours(10)), 10);
    }

    #[test]
    fn calls_pay_for_retries_and_savings_are_limited() {
        let policy = Retry::default();
        let now = Instant::now();
        let granted = |calls: usize| {
            let budget = RetryBudget::new(&policy, now);
            (0..calls).for_each(|_| budget.deposit());
            (0..10_000).filter(|_| budget.decide(&policy, 1, LONG, now, half()).is_ok()).count()
        };
        assert_eq!(granted(0), 10);
        assert_eq!(granted(9), 10);
        assert_eq!(granted(500), 60);
        assert_eq!(granted(1_000_000), 110);
    }

    #[test]
    fn a_pool_may_forbid_all_retries() {
        let policy = Retry::default().ratio(f64::NAN).reserve(0);
        let now = Instant::now();
        let budget = RetryBudget::new(&policy, now);
        (0..1000).for_each(|_| budget.deposit());
        let later = now + Duration::from_hours(1);
        assert_eq!(budget.decide(&policy, 1, LONG, later, half()), Err(NoRetry::Budget));
    }

    #[test]
    fn new_settings_keep_the_balance_and_the_spent_reserve() {
        let (policy, now) = (Retry::default(), Instant::now());
        let budget = RetryBudget::new(&policy, now);
        let granted = |policy: &Retry, now| {
            (0..1000).filter(|_| budget.decide(policy, 1, LONG, now, half()).is_ok()).count()
        };
        assert_eq!(granted(&policy, now), 10);
        let larger = policy.reserve(15);
        budget.adopt(&larger);
        assert_eq!(granted(&larger, now), 5, "ten of the fifteen are spent");
        (0..500).for_each(|_| budget.deposit());
        budget.adopt(&policy);
        assert_eq!(granted(&policy, now), 50, "the savings are still there");
        (0..500).for_each(|_| budget.deposit());
        let none = policy.ratio(0.0).reserve(0);
        budget.adopt(&none);
        assert_eq!(granted(&none, now + LONG), 0);
        budget.adopt(&policy);
        assert_eq!(granted(&policy, now + LONG), 10, "nothing is saved while retries are off");
    }

    #[test]
    fn concurrent_threads_together_stay_within_the_budget() {
        let policy = Retry::default();
        let now = Instant::now();
        let budget = RetryBudget::new(&policy, now);
        let run = || {
            (0..1000)
                .filter(|_| {
                    budget.deposit();
                    budget.decide(&policy, 1, LONG, now, half()).is_ok()
                })
                .count()
        };
        let granted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
            threads.into_iter().map(|it| it.join().expect("a count")).sum()
        });
        assert!((400..=410).contains(&granted), "{granted}");
    }

    proptest! {
        #[test]
        fn retries_never_exceed_the_budget(
            // The number of calls, the number of lost calls, and the milliseconds that pass.
            steps in proptest::collection::vec((0..50u32, 0..50u32, 0..2000u64), 0..100),
            ratio in 0.0..0.5,
            reserve in 0..20u32,
        ) {
            let policy = Retry::default().ratio(ratio).reserve(reserve);
            let began = Instant::now();
            let budget = RetryBudget::new(&policy, began);
            let (mut now, mut calls, mut retries) = (began, 0, 0);
            for (called, lost, passed) in steps {
                (0..called).for_each(|_| budget.deposit());
                calls += called;
                for _ in 0..lost {
                    retries += u32::from(budget.decide(&policy, 1, LONG, now, half()).is_ok());
                }
                let refilled = if reserve == 0 { 0.0 } else { (now - began).as_secs_f64() };
                let most = ratio * f64::from(calls) + f64::from(reserve) + refilled;
                prop_assert!(f64::from(retries) <= most + 1e-6, "{} retries for {} calls", retries, calls);
                now += Duration::from_millis(passed);
            }
        }
    }
}
