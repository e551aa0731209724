//! Whether a worker is due for replacement because of its calls, age, idle time or memory.
//!
//! Each worker draws its own [`Term`] when it starts, so that workers that started together do not all end together.

use std::fmt;
use std::time::Duration;

use super::jitter::scaled;
use snakepit_settings::settings;
#[cfg(feature = "config")]
use snakepit_settings::{ByteSize, HumanTime};

settings! {
    /// When healthy workers are replaced. Never, unless you set a limit.
    ///
    /// The replacement is ready before the old worker stops taking calls. The worker that has been due for longest is
    /// replaced first. A worker at twice its limit gets no new calls, unless no other worker can be started.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use snakepit::policy::Recycling;
    ///
    /// let weekly = Recycling::default().ttl(Duration::from_hours(7 * 24)).max_rss(2 << 30);
    /// ```
    #[derive(Clone, Copy, PartialEq, Debug)]
    #[must_use]
    pub struct Recycling {
        /// The number of calls after which a worker is replaced, varied by the jitter. 0 means no limit.
        /// Example: `max_requests = 10000`.
        @manual max_requests: Option<u64> = None,
        /// The age at which a worker is replaced, varied by the jitter. Example: `ttl = "6h"`.
        @into ttl: Option<Duration> as Option<HumanTime> = None,
        /// The share by which the limits of calls and age vary from worker to worker: 0.1 is a tenth more or less.
        jitter: f64 = 0.1 => "recycle_jitter",
        /// The time without a call after which a worker is replaced, which frees the memory that it holds. In a pool
        /// whose size follows the load, such a worker is ended instead, by default after a minute. Example:
        /// `idle_ttl = "10m"`.
        @into idle_ttl: Option<Duration> as Option<HumanTime> = None,
        /// The memory in bytes at which a worker is replaced, including all processes that it started. 0 means no limit.
        /// Example: `max_rss = "2GiB"`.
        @manual max_rss: Option<u64> as Option<ByteSize> = None,
    }
}

impl Recycling {
    /// Replaces a worker after this many calls, varied by [`jitter`](Self::jitter). 0 means no limit.
    pub fn max_requests(mut self, calls: u64) -> Self {
        self.max_requests = Some(calls);
        self
    }

    /// Replaces a worker that holds this many bytes of memory, including all processes that it started. 0 means no limit.
    pub fn max_rss(mut self, bytes: u64) -> Self {
        self.max_rss = Some(bytes);
        self
    }

    /// Returns how much memory a worker may hold, if that is limited.
    pub fn memory_limit(&self) -> Option<u64> {
        self.max_rss.filter(|bytes| *bytes > 0)
    }
}

/// Why a worker is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RecycleReason {
    /// The worker has had this many calls, which reaches its limit.
    MaxRequests(u64),
    /// The worker has reached this age, which reaches its limit.
    Ttl(Duration),
    /// The worker has had no call for this long.
    Idle(Duration),
    /// The worker and the processes that it started hold too much memory.
    Memory {
        /// The bytes that they hold.
        bytes: u64,
        /// The bytes that they may hold.
        limit: u64,
    },
    /// A user asked for the replacement.
    ByHand,
}

impl fmt::Display for RecycleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MIB: f64 = 1024.0 * 1024.0;
        match self {
            Self::MaxRequests(calls) => write!(f, "it has had {calls} calls (max_requests)"),
            Self::Ttl(age) => write!(f, "it is {} s old (ttl)", age.as_secs_f64().round()),
            Self::Idle(time) => {
                write!(f, "it has had no call for {} s (idle_ttl)", time.as_secs_f64().round())
            }
            Self::Memory { bytes, limit } => {
                let (held, limit) = (*bytes as f64 / MIB, *limit as f64 / MIB);
                write!(f, "it holds {held:.1} MiB of memory, and may hold {limit:.1} MiB (max_rss)")
            }
            Self::ByHand => f.write_str("a user asked for it"),
        }
    }
}

/// How much a worker has been used.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkerUsage {
    /// How many calls the worker has served.
    pub calls: u64,
    /// How long the worker has served.
    pub age: Duration,
    /// How long the worker has had no call. `None` while it has a call.
    pub idle_for: Option<Duration>,
    /// How many bytes the worker and its descendants hold, if that could be read.
    pub memory: Option<u64>,
}

/// The limits of one worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Term {
    max_requests: Option<u64>,
    ttl: Option<Duration>,
    idle_ttl: Option<Duration>,
    max_rss: Option<u64>,
}

impl Term {
    /// Draws the term of a worker. `random` returns numbers from 0 to 1.
    pub fn draw(config: &Recycling, mut random: impl FnMut() -> f64) -> Self {
        let jitter = if config.jitter.is_finite() { config.jitter.clamp(0.0, 1.0) } else { 0.0 };
        let mut share = || 1.0 + jitter * (random().clamp(0.0, 1.0) * 2.0 - 1.0);
        Self {
            max_requests: config
                .max_requests
                .filter(|calls| *calls > 0)
                .map(|calls| ((calls as f64 * share()).round() as u64).max(1)),
            ttl: config.ttl.map(|ttl| scaled(ttl, share())),
            idle_ttl: config.idle_ttl,
            max_rss: config.memory_limit(),
        }
    }

    /// Returns the number of calls after which the worker is due.
    pub fn calls(&self) -> u64 {
        self.max_requests.unwrap_or(u64::MAX)
    }

    /// Reports whether the worker has reached twice a limit of calls, age or memory, so that it is long overdue.
    pub fn is_exceeded_twice(&self, wear: &WorkerUsage) -> bool {
        let doubled = Self {
            max_requests: self.max_requests.map(|calls| calls.saturating_mul(2)),
            ttl: self.ttl.map(|ttl| ttl.saturating_mul(2)),
            idle_ttl: None,
            max_rss: self.max_rss.map(|bytes| bytes.saturating_mul(2)),
        };
        doubled.due(wear).is_some()
    }

    /// Returns why the worker is due, if it is. Memory comes first, because it is the most urgent reason.
    pub fn due(&self, wear: &WorkerUsage) -> Option<RecycleReason> {
        let reached = |limit: Option<Duration>, time: Duration| limit.is_some_and(|limit| time >= limit);
        if let (Some(limit), Some(bytes)) = (self.max_rss, wear.memory)
            && bytes >= limit
        {
            return Some(RecycleReason::Memory { bytes, limit });
        }
        if self.max_requests.is_some_and(|limit| wear.calls >= limit) {
            return Some(RecycleReason::MaxRequests(wear.calls));
        }
        if reached(self.ttl, wear.age) {
            return Some(RecycleReason::Ttl(wear.age));
        }
        wear.idle_for.filter(|idle| reached(self.idle_ttl, *idle)).map(RecycleReason::Idle)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Dice;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn wear() -> WorkerUsage {
        WorkerUsage { calls: 99, age: 59 * SECOND, idle_for: Some(9 * SECOND), memory: Some(999) }
    }

    fn term() -> Term {
        let config =
            Recycling::default().max_requests(100).ttl(60 * SECOND).idle_ttl(10 * SECOND).max_rss(1000);
        Term::draw(&config.jitter(0.0), || 0.3)
    }

    #[test]
    fn each_limit_is_due_when_it_is_reached_and_not_before() {
        let rows = [
            (wear(), None),
            (WorkerUsage { calls: 100, ..wear() }, Some(RecycleReason::MaxRequests(100))),
            (WorkerUsage { age: 60 * SECOND, ..wear() }, Some(RecycleReason::Ttl(60 * SECOND))),
            (WorkerUsage { idle_for: Some(11 * SECOND), ..wear() }, Some(RecycleReason::Idle(11 * SECOND))),
            (
                WorkerUsage { memory: Some(1000), ..wear() },
                Some(RecycleReason::Memory { bytes: 1000, limit: 1000 }),
            ),
            (WorkerUsage { idle_for: None, memory: None, ..wear() }, None),
            (
                WorkerUsage { calls: 500, memory: Some(2000), ..wear() },
                Some(RecycleReason::Memory { bytes: 2000, limit: 1000 }),
            ),
        ];
        for (wear, due) in rows {
            assert_eq!(term().due(&wear), due, "{wear:?}");
        }
    }

    #[test]
    fn twice_the_term_is_twice_each_limit_except_idleness() {
        let rows = [
            (WorkerUsage { calls: 199, age: 119 * SECOND, memory: Some(1999), ..wear() }, false),
            (WorkerUsage { calls: 200, ..wear() }, true),
            (WorkerUsage { age: 120 * SECOND, ..wear() }, true),
            (WorkerUsage { memory: Some(2000), ..wear() }, true),
            (WorkerUsage { idle_for: Some(1000 * SECOND), ..wear() }, false),
        ];
        for (wear, exceeded) in rows {
            assert_eq!(term().is_exceeded_twice(&wear), exceeded, "{wear:?}");
        }
    }

    #[test]
    fn without_limits_no_worker_is_due() {
        let ages = Duration::from_secs(u64::MAX);
        let wear = WorkerUsage { calls: u64::MAX, age: ages, idle_for: Some(ages), memory: Some(u64::MAX) };
        let unlimited = Recycling::default().max_requests(0).max_rss(0);
        assert_eq!(Term::draw(&unlimited, || 0.5).due(&wear), None);
    }

    #[test]
    fn terms_of_workers_differ_by_at_most_the_jitter() {
        let config = Recycling::default().max_requests(1000).ttl(1000 * SECOND);
        let mut dice = Dice::new(7);
        let terms: Vec<Term> = (0..1000).map(|_| Term::draw(&config, || dice.unit())).collect();
        let calls: Vec<u64> = terms.iter().filter_map(|term| term.max_requests).collect();
        let (least, most) = (calls.iter().min().copied(), calls.iter().max().copied());
        assert!(least >= Some(900) && least < Some(920), "{least:?}");
        assert!(most <= Some(1100) && most > Some(1080), "{most:?}");
        assert!(terms.iter().all(|term| term.ttl.is_some_and(|ttl| (900..=1100).contains(&ttl.as_secs()))));
    }

    #[test]
    fn a_worker_serves_at_least_one_call_and_the_longest_ttl_does_not_overflow() {
        let config = Recycling::default().max_requests(1).ttl(Duration::MAX).jitter(1.0);
        assert_eq!(Term::draw(&config, || 0.0).max_requests, Some(1));
        assert_eq!(Term::draw(&config, || 1.0).ttl, Some(Duration::MAX));
    }

    #[test]
    fn a_recycling_reason_is_readable_text() {
        let memory = RecycleReason::Memory { bytes: 600 << 20, limit: 512 << 20 };
        assert_eq!(memory.to_string(), "it holds 600.0 MiB of memory, and may hold 512.0 MiB (max_rss)");
        assert_eq!(RecycleReason::MaxRequests(1024).to_string(), "it has had 1024 calls (max_requests)");
        assert_eq!(RecycleReason::Ttl(3600 * SECOND).to_string(), "it is 3600 s old (ttl)");
        assert_eq!(RecycleReason::Idle(90 * SECOND).to_string(), "it has had no call for 90 s (idle_ttl)");
        assert_eq!(RecycleReason::ByHand.to_string(), "a user asked for it");
    }
}
