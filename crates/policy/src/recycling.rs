//! Whether a worker is due to be replaced: by calls, age, idleness or memory.
//!
//! Each worker draws a [`Term`] of its own when it starts, so that workers that started together do not all end together.

use std::fmt;
use std::time::Duration;

use snakepit_settings::settings;
#[cfg(feature = "config")]
use snakepit_settings::{ByteSize, HumanTime};

settings! {
    /// When workers are replaced although nothing is wrong with them. Never, unless something is set.
    ///
    /// A replacement is ready before the old worker stops taking calls, and those that have been due for longest go first. A
    /// worker that has reached twice its limit gets no new call, unless no other can be started.
    #[derive(Clone, Copy, PartialEq, Debug)]
    #[must_use]
    pub struct Recycling {
        /// Replaces a worker after so many calls, more or less by the jitter; 0 is no limit. Example: `max_requests = 10000`.
        @manual max_requests: Option<u64> = None,
        /// Replaces a worker at this age, more or less by the jitter. Example: `ttl = "6h"`.
        @into ttl: Option<Duration> as Option<HumanTime> = None,
        /// By which share the limits for calls and age differ from worker to worker: 0.1 is a tenth more or less.
        jitter: f64 = 0.1 => "recycle_jitter",
        /// Replaces a worker that had no call for so long, which frees the memory that it holds. Where the pool's size follows the
        /// load, such a worker is ended instead, after a minute unless this is set. Example: `idle_ttl = "10m"`.
        @into idle_ttl: Option<Duration> as Option<HumanTime> = None,
        /// Replaces a worker that holds so many bytes of memory, together with all processes that it started; 0 is no limit.
        /// Example: `max_rss = "2GiB"`.
        @manual max_rss: Option<u64> as Option<ByteSize> = None,
    }
}

impl Recycling {
    /// Replaces a worker after so many calls, more or less by [`jitter`](Self::jitter); 0 is no limit.
    pub fn max_requests(mut self, calls: u64) -> Self {
        self.max_requests = Some(calls);
        self
    }

    /// Replaces a worker that holds so many bytes of memory, together with all processes that it started; 0 is no limit.
    pub fn max_rss(mut self, bytes: u64) -> Self {
        self.max_rss = Some(bytes);
        self
    }

    /// How much memory a worker may hold, if that is limited.
    pub fn memory_limit(&self) -> Option<u64> {
        self.max_rss.filter(|bytes| *bytes > 0)
    }
}

/// Why a worker is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Why {
    /// It has had so many calls, which is its limit.
    MaxRequests(u64),
    /// It has reached this age, which is its limit.
    Ttl(Duration),
    /// It has had no call for so long.
    Idle(Duration),
    /// It and what it started hold too much memory.
    Memory {
        /// What they hold.
        bytes: u64,
        /// What they may hold.
        limit: u64,
    },
    /// A user asked for it.
    ByHand,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MIB: f64 = 1024.0 * 1024.0;
        match self {
            Self::MaxRequests(calls) => write!(f, "it has had {calls} calls (max_requests)"),
            Self::Ttl(age) => write!(f, "it is {} s old (ttl)", age.as_secs_f64().round()),
            Self::Idle(time) => write!(f, "it has idled for {} s (idle_ttl)", time.as_secs_f64().round()),
            Self::Memory { bytes, limit } => {
                let (held, limit) = (*bytes as f64 / MIB, *limit as f64 / MIB);
                write!(f, "it holds {held:.1} MiB of memory, {limit:.1} MiB are allowed (max_rss)")
            }
            Self::ByHand => f.write_str("somebody asked for it"),
        }
    }
}

/// How much a worker has been used.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkerUsage {
    /// How many calls it has served.
    pub calls: u64,
    /// How long it has served.
    pub age: Duration,
    /// How long it has had no call; `None` while it has one.
    pub idle_for: Option<Duration>,
    /// How many bytes it and its descendants hold, if that could be read.
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
    /// Draws the term of a worker; `random` gives numbers from 0 to 1.
    pub fn draw(config: &Recycling, mut random: impl FnMut() -> f64) -> Self {
        let jitter = if config.jitter.is_finite() { config.jitter.clamp(0.0, 1.0) } else { 0.0 };
        let mut share = || 1.0 + jitter * (random().clamp(0.0, 1.0) * 2.0 - 1.0);
        Self {
            max_requests: config
                .max_requests
                .filter(|calls| *calls > 0)
                .map(|calls| ((calls as f64 * share()).round() as u64).max(1)),
            // Saturates where the product is too long.
            ttl: config
                .ttl
                .map(|ttl| Duration::try_from_secs_f64(ttl.as_secs_f64() * share()).unwrap_or(Duration::MAX)),
            idle_ttl: config.idle_ttl,
            max_rss: config.memory_limit(),
        }
    }

    /// After how many calls the worker is due.
    pub fn calls(&self) -> u64 {
        self.max_requests.unwrap_or(u64::MAX)
    }

    /// Whether the worker has reached twice a limit of calls, age or memory, so has been due for long.
    pub fn is_exceeded_twice(&self, wear: &WorkerUsage) -> bool {
        let doubled = Self {
            max_requests: self.max_requests.map(|calls| calls.saturating_mul(2)),
            ttl: self.ttl.map(|ttl| ttl.saturating_mul(2)),
            idle_ttl: None,
            max_rss: self.max_rss.map(|bytes| bytes.saturating_mul(2)),
        };
        doubled.due(wear).is_some()
    }

    /// Why the worker is due, if it is. Memory comes first: it is the most urgent reason.
    pub fn due(&self, wear: &WorkerUsage) -> Option<Why> {
        let reached = |limit: Option<Duration>, time: Duration| limit.is_some_and(|limit| time >= limit);
        if let (Some(limit), Some(bytes)) = (self.max_rss, wear.memory)
            && bytes >= limit
        {
            return Some(Why::Memory { bytes, limit });
        }
        if self.max_requests.is_some_and(|limit| wear.calls >= limit) {
            return Some(Why::MaxRequests(wear.calls));
        }
        if reached(self.ttl, wear.age) {
            return Some(Why::Ttl(wear.age));
        }
        wear.idle_for.filter(|idle| reached(self.idle_ttl, *idle)).map(Why::Idle)
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
            (WorkerUsage { calls: 100, ..wear() }, Some(Why::MaxRequests(100))),
            (WorkerUsage { age: 60 * SECOND, ..wear() }, Some(Why::Ttl(60 * SECOND))),
            (WorkerUsage { idle_for: Some(11 * SECOND), ..wear() }, Some(Why::Idle(11 * SECOND))),
            (WorkerUsage { memory: Some(1000), ..wear() }, Some(Why::Memory { bytes: 1000, limit: 1000 })),
            (WorkerUsage { idle_for: None, memory: None, ..wear() }, None),
            (
                WorkerUsage { calls: 500, memory: Some(2000), ..wear() },
                Some(Why::Memory { bytes: 2000, limit: 1000 }),
            ),
        ];
        for (wear, due) in rows {
            assert_eq!(term().due(&wear), due, "{wear:?}");
        }
    }

    #[test]
    fn twice_its_term_is_twice_of_each_limit_but_of_idleness() {
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
    fn nothing_is_due_unless_something_is_set() {
        let ages = Duration::from_secs(u64::MAX);
        let wear = WorkerUsage { calls: u64::MAX, age: ages, idle_for: Some(ages), memory: Some(u64::MAX) };
        let unlimited = Recycling::default().max_requests(0).max_rss(0);
        assert_eq!(Term::draw(&unlimited, || 0.5).due(&wear), None);
    }

    #[test]
    fn workers_differ_by_the_jitter_and_never_by_more() {
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
    fn a_worker_serves_at_least_one_call_and_no_time_is_too_long() {
        let config = Recycling::default().max_requests(1).ttl(Duration::MAX).jitter(1.0);
        assert_eq!(Term::draw(&config, || 0.0).max_requests, Some(1));
        assert_eq!(Term::draw(&config, || 1.0).ttl, Some(Duration::MAX));
    }

    #[test]
    fn reasons_are_said_in_words() {
        let memory = Why::Memory { bytes: 600 << 20, limit: 512 << 20 };
        assert_eq!(memory.to_string(), "it holds 600.0 MiB of memory, 512.0 MiB are allowed (max_rss)");
        assert_eq!(Why::MaxRequests(1024).to_string(), "it has had 1024 calls (max_requests)");
        assert_eq!(Why::Ttl(3600 * SECOND).to_string(), "it is 3600 s old (ttl)");
        assert_eq!(Why::Idle(90 * SECOND).to_string(), "it has idled for 90 s (idle_ttl)");
        assert_eq!(Why::ByHand.to_string(), "somebody asked for it");
    }
}
